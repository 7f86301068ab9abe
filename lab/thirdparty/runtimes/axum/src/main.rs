//! A server on axum.   known-axum PORT BACKEND_PORT

use std::env::args;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use axum::http::Uri;
use axum::routing::get;
use axum::Router;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

static IDLE: Mutex<Vec<TcpStream>> = Mutex::new(Vec::new());

fn port(nth: usize) -> u16 {
    args().nth(nth).expect("a port").parse().expect("a number")
}

async fn timer() -> &'static str {
    tokio::time::sleep(Duration::from_millis(5)).await;
    "ok\n"
}

async fn cpu() -> &'static str {
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(1) {}
    "ok\n"
}

/// The backend is asked for the path that the client asked for.
async fn ask(uri: Uri) -> &'static str {
    let kept = IDLE.lock().expect("not poisoned").pop();
    let mut backend = match kept {
        Some(backend) => backend,
        None => TcpStream::connect(("127.0.0.1", port(2)))
            .await
            .expect("a backend"),
    };
    let request = format!("GET {} HTTP/1.1\r\nHost: here\r\n\r\n", uri.path());
    backend.write_all(request.as_bytes()).await.expect("sent");
    let read = backend.read(&mut [0; 4096]).await;
    read.expect("an answer");
    IDLE.lock().expect("not poisoned").push(backend);
    "ok\n"
}

#[tokio::main]
async fn main() {
    let routes = Router::new();
    let routes = routes.route("/timer", get(timer));
    let routes = routes.route("/cpu", get(cpu));
    let routes = routes.route("/", get(ask)).route("/fast", get(ask));
    let listener = TcpListener::bind(("127.0.0.1", port(1)))
        .await
        .expect("bound");
    axum::serve(listener, routes).await.expect("served");
}
