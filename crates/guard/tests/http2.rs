//! HTTP/2 on both sides, as gRPC uses it: streams in both directions, and trailers.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Frame, Incoming};
use hyper::header::{HeaderMap, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tailscope_guard::{Board, Guard, Inherited, Options};
use tailscope_signals::hazard::Words;
use tokio::net::{TcpListener, TcpStream};

/// Frames that are handed on as they come, from a channel.
struct Channel(tokio::sync::mpsc::Receiver<Frame<Bytes>>);

impl Body for Channel {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|frame| frame.map(Ok))
    }
}

/// Sends each piece of the request back at once, and then a trailer.
async fn echo(request: Request<Incoming>) -> Result<Response<Channel>, Infallible> {
    let (sender, receiver) = tokio::sync::mpsc::channel(4);
    let te = request.headers().get("te").cloned();
    let host = request.uri().authority().map(ToString::to_string);
    tokio::spawn(async move {
        let mut body = request.into_body();
        while let Some(Ok(frame)) = body.frame().await {
            if let Ok(data) = frame.into_data() {
                let _ = sender.send(Frame::data(data)).await;
            }
        }
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from_static("0"));
        let _ = sender.send(Frame::trailers(trailers)).await;
    });
    let mut response = Response::new(Channel(receiver));
    for (name, value) in [
        ("x-te", te),
        ("x-host", host.and_then(|host| host.parse().ok())),
    ] {
        if let Some(value) = value {
            response.headers_mut().insert(name, value);
        }
    }
    Ok(response)
}

async fn replica() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            tokio::spawn(builder.serve_connection(TokioIo::new(stream), service_fn(echo)));
        }
    });
    address
}

fn guard(replicas: Vec<SocketAddr>) -> Guard {
    let words = Words::in_memory(64).expect("memory");
    let board = Arc::new(Board::new(words, replicas.len()));
    let options = Options {
        listen: vec!["127.0.0.1:0".parse().expect("an address")],
        proxy_protocol: false,
        send_proxy: None,
        tls: None,
        replicas,
        replicas_speak_2: true,
        replica_tls: None,
        budget: 0.01,
        quantile: 0.95,
        health: None,
        concurrency: 0,
        timeout: Duration::from_secs(60),
        dry_run: false,
        admin: None,
        warm_up: false,
        threads: 1,
        grace: Duration::from_secs(10),
    };
    // What starts a guard loses its capabilities: not this thread.
    std::thread::spawn(move || {
        Guard::start(&options, board, &mut Inherited::default()).expect("it starts")
    })
    .join()
    .expect("it ends")
}

type Client<B> = hyper::client::conn::http2::SendRequest<B>;

async fn client<B>(address: SocketAddr) -> Client<B>
where
    B: Body<Data = Bytes, Error = Infallible> + Send + Unpin + 'static,
{
    let stream = TcpStream::connect(address).await.expect("it listens");
    let builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    let (sender, connection) = builder
        .handshake(TokioIo::new(stream))
        .await
        .expect("HTTP/2");
    tokio::spawn(connection);
    sender
}

#[tokio::test]
async fn a_call_streams_both_ways_and_ends_with_trailers() {
    let guard = guard(vec![replica().await, replica().await]);
    let mut client: Client<Channel> = client(guard.addresses()[0]).await;
    let (sender, receiver) = tokio::sync::mpsc::channel(4);
    let request = Request::post("http://service.example/call")
        .header("te", "trailers")
        .body(Channel(receiver))
        .expect("a request");
    let response = client.send_request(request).await.expect("an answer");
    assert_eq!(response.version(), Version::HTTP_2);
    assert_eq!(response.headers()["x-te"], "trailers");
    assert_eq!(response.headers()["x-host"], "service.example");
    let mut body = response.into_body();
    for piece in ["one", "two"] {
        // The answer to each comes before the next is sent.
        sender
            .send(Frame::data(Bytes::from(piece)))
            .await
            .expect("it is read");
        let frame = body.frame().await.expect("more").expect("no error");
        assert_eq!(frame.into_data().expect("data"), piece);
    }
    drop(sender);
    let frame = body.frame().await.expect("more").expect("no error");
    assert_eq!(frame.into_trailers().expect("trailers")["grpc-status"], "0");
}

#[tokio::test]
async fn many_calls_share_a_connection_and_a_dead_replica_fails_none_of_the_safe_ones() {
    let dead: SocketAddr = {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        listener.local_addr().expect("bound")
    };
    let guard = guard(vec![replica().await, dead]);
    let client: Client<Full<Bytes>> = client(guard.addresses()[0]).await;
    let calls = (0..100).map(|i| {
        let mut client = client.clone();
        tokio::spawn(async move {
            let builder = if i % 2 == 0 {
                Request::get("http://a/")
            } else {
                Request::post("http://a/") // never sent to a server that does not listen
            };
            let body = if i % 2 == 0 { "" } else { "text" };
            let request = builder.body(Full::from(body)).expect("a request");
            let response = client.send_request(request).await.expect("an answer");
            let status = response.status();
            let collected = response.into_body().collect().await.expect("a body");
            assert!(collected.trailers().is_some());
            assert_eq!(collected.to_bytes(), body);
            status.as_u16()
        })
    });
    for call in calls.collect::<Vec<_>>() {
        assert_eq!(call.await.expect("it ends"), 200);
    }
}
