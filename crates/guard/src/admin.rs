//! Metrics in Prometheus's text format, and the status as JSON.

use std::convert::Infallible;
use std::fmt::Write;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Value, json};
use tailscope_signals::clock::Monotonic;
use tailscope_signals::hazard::Kind;
use tokio::net::TcpListener;
use tokio::task::spawn_local;
use tokio::time::sleep;

use crate::figures::{Figures, Trigger};
use crate::options::Options;
use crate::replica::Fleet;

const LIMIT: Duration = Duration::from_secs(2);

/// What the pages are made from.
#[derive(Debug)]
pub struct Page {
    fleet: Arc<Fleet>,
    figures: Arc<Figures>,
    budget: f64,
    dry_run: bool,
}

/// Serves the pages.
pub async fn serve(page: Page, listener: TcpListener) {
    let page = Rc::new(page);
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(Duration::from_millis(10)).await;
            continue;
        };
        let page = Rc::clone(&page);
        let service = service_fn(move |request: Request<Incoming>| {
            let reply = page.reply(&request);
            async move { Ok::<_, Infallible>(reply) }
        });
        let connection = Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(LIMIT)
            .keep_alive(false)
            .serve_connection(TokioIo::new(stream), service);
        spawn_local(async move {
            let _ = connection.await;
        });
    }
}

impl Page {
    /// Of a guard with these.
    #[must_use]
    pub fn new(fleet: Arc<Fleet>, figures: Arc<Figures>, options: &Options) -> Self {
        Self {
            fleet,
            figures,
            budget: options.budget,
            dry_run: options.dry_run,
        }
    }

    fn reply(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let (status, kind, text) = match (request.method(), request.uri().path()) {
            (&Method::GET, "/metrics") => {
                (StatusCode::OK, "text/plain; version=0.0.4", self.metrics())
            }
            (&Method::GET, "/status") => (
                StatusCode::OK,
                "application/json",
                format!("{:#}\n", self.status()),
            ),
            _ => (
                StatusCode::NOT_FOUND,
                "text/plain",
                "guard: there are /metrics and /status\n".to_owned(),
            ),
        };
        let mut response = Response::new(Full::new(Bytes::from(text)));
        *response.status_mut() = status;
        response
            .headers_mut()
            .insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        response
    }

    fn metrics(&self) -> String {
        let mut text = String::new();
        for (name, value) in self.figures.counts() {
            let _ = writeln!(text, "# TYPE tailscope_guard_{name}_total counter");
            let _ = writeln!(text, "tailscope_guard_{name}_total {value}");
        }
        text += "# TYPE tailscope_guard_hedges_total counter\n";
        for trigger in Trigger::all() {
            let value = self.figures.hedges(trigger);
            let name = trigger.name();
            let _ = writeln!(
                text,
                "tailscope_guard_hedges_total{{trigger=\"{name}\"}} {value}"
            );
        }
        let now = Monotonic::now();
        for (what, kind) in [
            ("replica_requests_total", "counter"),
            ("replica_errors_total", "counter"),
            ("replica_outstanding", "gauge"),
        ] {
            let _ = writeln!(text, "# TYPE tailscope_guard_{what} {kind}");
            for replica in self.fleet.replicas() {
                let value = match what {
                    "replica_requests_total" => replica.requests.load(Relaxed),
                    "replica_errors_total" => replica.errors.load(Relaxed),
                    _ => replica.outstanding() as u64,
                };
                let address = replica.address;
                let _ = writeln!(
                    text,
                    "tailscope_guard_{what}{{replica=\"{address}\"}} {value}"
                );
            }
        }
        self.hazards(&mut text, now);
        text
    }

    fn hazards(&self, text: &mut String, now: Monotonic) {
        *text += "# TYPE tailscope_guard_hazards_total counter\n";
        let mut seconds = "# TYPE tailscope_guard_hazard_seconds_total counter\n".to_owned();
        let mut active = "# TYPE tailscope_guard_hazard_active gauge\n".to_owned();
        let board = self.fleet.board();
        for (i, replica) in self.fleet.replicas().iter().enumerate() {
            let holds = board.active(i, now);
            for kind in Kind::ALL {
                let (count, total) = board.counted(i, kind);
                let labels = format!(
                    "{{replica=\"{}\",kind=\"{}\"}}",
                    replica.address,
                    kind.name()
                );
                let _ = writeln!(text, "tailscope_guard_hazards_total{labels} {count}");
                let total = total as f64 / 1e9;
                let _ = writeln!(
                    seconds,
                    "tailscope_guard_hazard_seconds_total{labels} {total}"
                );
                let value = u8::from(holds.has(kind));
                let _ = writeln!(active, "tailscope_guard_hazard_active{labels} {value}");
            }
        }
        *text += &seconds;
        *text += &active;
    }

    fn status(&self) -> Value {
        let now = Monotonic::now();
        let board = self.fleet.board();
        let replicas = self
            .fleet
            .replicas()
            .iter()
            .enumerate()
            .map(|(i, replica)| {
                let hazards: Vec<&str> = board.active(i, now).kinds().map(Kind::name).collect();
                json!({
                    "address": replica.address.to_string(),
                    "pids": board.pids(i),
                    "signals": board.coverage(i),
                    "incarnation": board.words().word(i as u32).incarnation(),
                    "hazards": hazards,
                    "down": replica.is_down(now),
                    "outstanding": replica.outstanding(),
                    "requests": replica.requests.load(Relaxed),
                    "errors": replica.errors.load(Relaxed),
                })
            });
        let counts: serde_json::Map<String, Value> = self
            .figures
            .counts()
            .map(|(name, value)| (name.to_owned(), value.into()))
            .collect();
        let hedges: serde_json::Map<String, Value> = Trigger::all()
            .map(|trigger| {
                (
                    trigger.name().to_owned(),
                    self.figures.hedges(trigger).into(),
                )
            })
            .collect();
        json!({
            "kind": "guard",
            "dry_run": self.dry_run,
            "budget": self.budget,
            "replicas": replicas.collect::<Vec<_>>(),
            "counts": counts,
            "hedges": hedges,
            "latest_hedges": self.figures.latest(),
        })
    }
}
