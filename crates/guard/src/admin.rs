//! Metrics in Prometheus's text format, and the status as JSON.

use std::convert::Infallible;
use std::fmt::Write;
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
use tokio::sync::watch;
use tokio::task::spawn_local;
use tokio::time::sleep;

use crate::board::Hold;
use crate::budget::WINDOW;
use crate::figures::{Figures, Trigger};
use crate::replica::Fleet;
use crate::setup::Setup;
use crate::thread::Phase;

const LIMIT: Duration = Duration::from_secs(2);

/// What the pages are made from.
#[derive(Debug)]
pub struct Page {
    setup: watch::Receiver<Arc<Setup>>,
    figures: Arc<Figures>,
}

/// Serves the pages, until another guard does.
pub async fn serve(page: Arc<Page>, listener: TcpListener, mut phase: watch::Receiver<Phase>) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = phase.wait_for(|phase| *phase == Phase::HandedOver) => return,
        };
        let Ok((stream, _)) = accepted else {
            sleep(Duration::from_millis(10)).await;
            continue;
        };
        let page = Arc::clone(&page);
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
    pub fn new(setup: watch::Receiver<Arc<Setup>>, figures: Arc<Figures>) -> Self {
        Self { setup, figures }
    }

    fn setup(&self) -> Arc<Setup> {
        Arc::clone(&self.setup.borrow())
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
        let setup = self.setup();
        let fleet = &setup.fleet;
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
            ("replica_collections_asked_total", "counter"),
            ("replica_collections_met_total", "counter"),
            ("replica_outstanding", "gauge"),
        ] {
            let _ = writeln!(text, "# TYPE tailscope_guard_{what} {kind}");
            for replica in fleet.replicas() {
                let value = match what {
                    "replica_requests_total" => replica.requests.load(Relaxed),
                    "replica_collections_asked_total" => fleet.board().collections(replica.slot).0,
                    "replica_collections_met_total" => fleet.board().collections(replica.slot).1,
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
        hazards(fleet, &mut text, now);
        text
    }

    /// The state of all replicas, and what was done.
    pub fn status(&self) -> Value {
        let now = Monotonic::now();
        let setup = self.setup();
        let board = setup.fleet.board();
        let replicas = setup.fleet.replicas().iter().map(|replica| {
            let slot = replica.slot;
            let (asked, met) = board.collections(slot);
            let hazards: Vec<&str> = board.active(slot, now).kinds().map(Kind::name).collect();
            json!({
                "address": replica.address.to_string(),
                "pids": board.pids(slot),
                "signals": board.coverage(slot),
                "signals_from": board.source(slot).map(|source| source.to_string()),
                "incarnation": board.word(slot).incarnation(),
                "hazards": hazards,
                "silent": board.is_silent(slot, now),
                "down": replica.is_down(now),
                "drains": board.is_held(slot, Hold::Drains),
                "warms_up": board.is_held(slot, Hold::Warms),
                "collections_asked": asked,
                "collections_met": met,
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
        let (requests, extra) = self.figures.window();
        json!({
            "kind": "guard",
            "pid": std::process::id(),
            "dry_run": setup.options.dry_run,
            "budget": setup.options.budget,
            "window": { "seconds": WINDOW.as_secs(), "requests": requests, "hedges": extra },
            "replicas": replicas.collect::<Vec<_>>(),
            "counts": counts,
            "hedges": hedges,
            "latest_hedges": self.figures.latest(),
        })
    }
}

fn hazards(fleet: &Fleet, text: &mut String, now: Monotonic) {
    *text += "# TYPE tailscope_guard_hazards_total counter\n";
    let mut seconds = "# TYPE tailscope_guard_hazard_seconds_total counter\n".to_owned();
    let mut active = "# TYPE tailscope_guard_hazard_active gauge\n".to_owned();
    let board = fleet.board();
    for replica in fleet.replicas() {
        let holds = board.active(replica.slot, now);
        for kind in Kind::ALL {
            let (count, total) = board.counted(replica.slot, kind);
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
