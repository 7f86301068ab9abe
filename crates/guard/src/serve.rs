//! Serving a client: each of its requests gets an answer.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use bytes::Bytes;
use hyper::body::{Body, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Version};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional};
use tokio::net::TcpStream;
use tokio::task::spawn_local;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

use crate::attempt::{Failure, Reply, send};
use crate::connection::ThisThread;
use crate::figures::Figures;
use crate::headers;
use crate::options::HEAD;
use crate::proxy_protocol::{self, Ends};
use crate::race::race;
use crate::replica::Lease;
use crate::reply_body::ReplyBody;
use crate::request_body::{RequestBody, Stream};
use crate::screen::{Gate, LARGEST_HEAD, Screen};
use crate::template::Template;
use crate::thread::Client;
use crate::worker::{Own, Worker};

/// How often a request that was never sent is tried elsewhere.
const MOST_UNSENT: u32 = 3;
/// Requests that one client may have at a time on a connection of HTTP/2.
const MOST_STREAMS: u32 = 256;

/// Serves one client from its first byte to its last.
pub async fn greet(client: Client, mut stream: TcpStream, peer: SocketAddr) {
    let (Ok(()), Ok(destination)) = (stream.set_nodelay(true), stream.local_addr()) else {
        return; // it is gone
    };
    let source = peer;
    let mut ends = Ends {
        source,
        destination,
    };
    let worker = client.thread().worker();
    if worker.proxy_protocol {
        match timeout(HEAD, proxy_protocol::read(&mut stream)).await {
            Ok(Ok(told)) => ends = told.unwrap_or(ends),
            _ => {
                Figures::add(&worker.figures.malformed);
                return;
            }
        }
    }
    let tls = worker.tls.clone();
    drop(worker);
    match tls {
        None => speak(client, stream, ends, false).await,
        // In a box, as in other rare cases here: each client has room for what is not in one.
        Some(tls) => Box::pin(greet_by_tls(client, stream, ends, tls)).await,
    }
}

/// A client that says nothing, or does not speak TLS, is left without an answer.
async fn greet_by_tls(client: Client, stream: TcpStream, ends: Ends, tls: Arc<ServerConfig>) {
    let handshake = TlsAcceptor::from(tls).accept(stream);
    if let Ok(Ok(stream)) = timeout(HEAD, handshake).await {
        let has_chosen_2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        speak(client, stream, ends, has_chosen_2).await;
    }
}

/// `has_chosen_2`: the client has agreed to speak HTTP/2. Without TLS its first bytes say so.
async fn speak<S: AsyncRead + AsyncWrite + Send + Unpin + 'static>(
    client: Client,
    stream: S,
    ends: Ends,
    has_chosen_2: bool,
) {
    let figures = Arc::clone(&client.thread().worker().figures);
    let (mut screen, gate) = Screen::new(stream, move |_| Figures::add(&figures.malformed));
    let is_2 = if has_chosen_2 {
        screen.pass_http2();
        true
    } else {
        match timeout(HEAD, screen.is_http2()).await {
            Ok(Ok(is_2)) => is_2,
            _ => return, // it is gone, or says nothing
        }
    };
    let (thread, own) = (Rc::clone(client.thread()), Rc::new(Own::new(ends)));
    let source = HeaderValue::from_str(&ends.source.ip().to_string());
    let source = source.unwrap_or(HeaderValue::from_static("unknown")); // RFC 7239, 6.2
    let service = service_fn(move |request: Request<Incoming>| {
        let (thread, gate) = (Rc::clone(&thread), Arc::clone(&gate));
        let (worker, source) = (own.worker(thread.worker()), source.clone());
        async move {
            let mut reply = answer(worker, request, source, gate).await;
            if !is_2 && thread.leaves() && reply.status() != StatusCode::SWITCHING_PROTOCOLS {
                headers::close(&mut reply);
            }
            Ok::<_, Infallible>(reply)
        }
    });
    // What goes wrong on a connection is the client's: it is answered as far as that is possible.
    if is_2 {
        let connection = http2::Builder::new(ThisThread)
            .timer(TokioTimer::new())
            .max_concurrent_streams(MOST_STREAMS)
            .max_header_list_size(LARGEST_HEAD as u32)
            .keep_alive_interval(HEAD)
            .serve_connection(TokioIo::new(screen), service);
        let mut connection = Box::pin(connection);
        tokio::select! {
            _ = connection.as_mut() => return,
            () = client.thread().closes(true) => {}
        }
        connection.as_mut().graceful_shutdown();
        let _ = connection.await;
        return;
    }
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(128 * 1024)
        .serve_connection(TokioIo::new(screen), service)
        .with_upgrades();
    let mut connection = pin!(connection);
    tokio::select! {
        biased;
        _ = connection.as_mut() => return,
        () = client.thread().closes(false) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}

/// How a request is passed on. What is rare is in a box: each request has room for what is not in one.
enum Ask {
    /// As often as that helps.
    Safe(Rc<Template>),
    /// Once.
    Once(Box<Request<RequestBody>>),
    /// To speak another protocol.
    Upgrade(Box<Request<Incoming>>),
}

/// The answer to one request. What can be done at once is done here, so that the future is small.
fn answer(
    worker: Rc<Worker>,
    mut request: Request<Incoming>,
    client: HeaderValue,
    gate: Arc<Gate>,
) -> impl Future<Output = Reply> {
    Figures::add(&worker.figures.requests);
    worker.budget.borrow_mut().earn(Instant::now());
    let upgrades = request.method() == Method::CONNECT || headers::wants_upgrade(request.headers());
    let (is_connect, version) = (request.method() == Method::CONNECT, request.version());
    let to_2 = worker.pool.is_2();
    headers::prepare(&mut request, client, upgrades && !is_connect, to_2);
    let is_safe = matches!(
        *request.method(),
        Method::GET | Method::HEAD | Method::OPTIONS
    );
    let cannot = upgrades && (to_2 || version == Version::HTTP_2);
    let has_ended = Rc::new(Cell::new(true));
    let ask = if upgrades {
        Ask::Upgrade(Box::new(request))
    } else if is_safe && request.body().is_end_stream() {
        let (head, _) = request.into_parts();
        Ask::Safe(Rc::new(Template {
            method: head.method,
            uri: head.uri,
            version: head.version,
            headers: head.headers,
        }))
    } else {
        let body = |body| RequestBody::Stream(Stream::new(body, &has_ended));
        Ask::Once(Box::new(request.map(body)))
    };
    async move {
        if cannot {
            gate.decide(false);
            let why = "CONNECT and Upgrade are only passed on from HTTP/1.1 to HTTP/1.1";
            return say(StatusCode::NOT_IMPLEMENTED, why);
        }
        let mut reply = match timeout(worker.timeout, forward(&worker, ask, &gate)).await {
            Ok(Ok(reply)) => checked(&worker, reply, upgrades),
            Ok(Err(why)) => {
                Figures::add(&worker.figures.failed);
                say(StatusCode::BAD_GATEWAY, &why)
            }
            Err(_) => {
                Figures::add(&worker.figures.timed_out);
                let limit = worker.timeout.as_secs_f64();
                let why = format!("no replica answered within {limit} s");
                say(StatusCode::GATEWAY_TIMEOUT, &why)
            }
        };
        let switched = reply.status() == StatusCode::SWITCHING_PROTOCOLS;
        if upgrades && !(switched || reply.extensions().get::<Tunnel>().is_some()) {
            gate.decide(false);
        }
        headers::strip(reply.headers_mut(), switched);
        // What is left of the request's body may never be read.
        if !has_ended.get() && version != Version::HTTP_2 {
            headers::close(&mut reply);
        }
        reply
    }
}

async fn forward(worker: &Rc<Worker>, ask: Ask, gate: &Arc<Gate>) -> Result<Reply, String> {
    let Some(lease) = pick(worker).await else {
        return Err("no replica".to_owned());
    };
    match ask {
        Ask::Safe(template) => {
            if worker.warms_up {
                worker.recent.offer(&template);
            }
            race(worker, &template, lease).await
        }
        Ask::Once(request) => Box::pin(once(worker, request, lease)).await,
        Ask::Upgrade(request) => Box::pin(upgrade(worker, *request, lease, gate)).await,
    }
}

/// A replica's answer, if the client can make sense of it.
fn checked(worker: &Worker, reply: Reply, upgrades: bool) -> Reply {
    if upgrades || reply.status() != StatusCode::SWITCHING_PROTOCOLS {
        return reply;
    }
    Figures::add(&worker.figures.failed);
    let why = "the replica changed the protocol, and nobody asked";
    say(StatusCode::BAD_GATEWAY, why)
}

/// An answer of guard's own.
fn say(status: StatusCode, why: &str) -> Reply {
    let mut reply = Response::new(ReplyBody::from(Bytes::from(format!("guard: {why}\n"))));
    *reply.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    reply.headers_mut().insert(CONTENT_TYPE, plain);
    reply
}

async fn pick(worker: &Worker) -> Option<Lease> {
    let fleet = &worker.fleet;
    let lease = match fleet.pick(&[]) {
        Some(lease) => lease,
        None => Box::pin(fleet.pick_waiting(&[])).await?,
    };
    if fleet.has_hazard_besides(lease.slot()) {
        worker.figures.steered.fetch_add(1, Relaxed);
    }
    Some(lease)
}

/// Sends a request that must not be executed twice: another replica gets it only if it was certainly
/// never sent.
async fn once(
    worker: &Rc<Worker>,
    mut request: Box<Request<RequestBody>>,
    mut lease: Lease,
) -> Result<Reply, String> {
    let mut tried = Vec::new();
    loop {
        let replica = lease.slot();
        let (unsent, why) = match send(worker, lease, request).await {
            Ok(reply) => return Ok(reply),
            Err(Failure::Lost(why)) => return Err(why),
            Err(Failure::NeverSent(unsent, why)) => (unsent, why),
        };
        tried.push(replica);
        if tried.len() > MOST_UNSENT as usize {
            return Err(why);
        }
        Figures::add(&worker.figures.retries_unsent);
        lease = match worker.fleet.pick_waiting(&tried).await {
            Some(lease) => lease,
            None => return Err(why),
        };
        request = unsent;
    }
}

/// Marks the answer to a CONNECT that was granted.
#[derive(Debug, Clone, Copy)]
struct Tunnel;

/// Passes a request for another protocol on, and then the bytes of both sides.
async fn upgrade(
    worker: &Rc<Worker>,
    mut request: Request<Incoming>,
    lease: Lease,
    gate: &Arc<Gate>,
) -> Result<Reply, String> {
    let is_connect = request.method() == Method::CONNECT;
    let ours = hyper::upgrade::on(&mut request);
    let mut reply = once(worker, Box::new(request.map(|_| RequestBody::Empty)), lease).await?;
    let granted = reply.status() == StatusCode::SWITCHING_PROTOCOLS
        || is_connect && reply.status().is_success();
    if !granted {
        return Ok(reply);
    }
    Figures::add(&worker.figures.upgrades);
    let theirs = hyper::upgrade::on(&mut reply);
    gate.decide(true);
    // The replica stays taken for as long as the other protocol is spoken.
    let (mut reply, body) = {
        let (head, body) = reply.into_parts();
        let fresh = ReplyBody::from(Bytes::new());
        (Response::from_parts(head, fresh), body)
    };
    spawn_local(async move {
        let _held = body;
        if let (Ok(ours), Ok(theirs)) = (ours.await, theirs.await) {
            let _: io::Result<_> =
                copy_bidirectional(&mut TokioIo::new(ours), &mut TokioIo::new(theirs)).await;
        }
    });
    if is_connect {
        reply.extensions_mut().insert(Tunnel);
    }
    Ok(reply)
}
