//! Batches, and how they are delivered.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message;
use tailscope_trace::CauseSet;
use ureq::Agent;
use ureq::http::StatusCode;
use ureq::tls::TlsConfig;

use super::message::Composer;
use super::{Counts, Kept, count, trust};
use crate::config::Otlp;

/// Spans that go in one request.
const BATCH: usize = 512;
/// How long the first of them waits for the others.
const LINGER: Duration = Duration::from_secs(1);
/// How long a collector that may recover is waited for, each time twice as long.
const FIRST_WAIT: Duration = Duration::from_millis(500);
const TRIES: u32 = 5;

/// The next batch: waits for a first row, and a moment for more. `None`: there will be none.
pub(super) fn batch(rows: &Receiver<Kept>) -> Option<Vec<Kept>> {
    let mut batch = vec![rows.recv().ok()?];
    let until = Instant::now() + LINGER;
    while batch.len() < BATCH {
        match rows.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(row) => batch.push(row),
            Err(_) => break,
        }
    }
    Some(batch)
}

/// Where spans are sent to.
pub(super) struct Collector {
    agent: Agent,
    url: String,
    headers: Vec<(String, String)>,
    composer: Composer,
    counts: Arc<Counts>,
}

/// What became of one request.
enum Outcome {
    /// All but so many were taken.
    Taken(u64),
    /// It may work later.
    Later,
    Refused,
}

impl Collector {
    pub(super) fn new(
        config: &Otlp,
        tls: TlsConfig,
        measured: CauseSet,
        counts: Arc<Counts>,
    ) -> Self {
        let agent = Agent::config_builder()
            .tls_config(tls)
            .timeout_global(Some(config.timeout))
            .http_status_as_error(false)
            .max_redirects(0)
            .user_agent(concat!("tailscope-agent/", env!("CARGO_PKG_VERSION")))
            .build()
            .into();
        let headers = config.headers.clone().into_iter().collect();
        Self {
            agent,
            url: format!("{}/v1/traces", config.endpoint),
            headers,
            composer: Composer::new(measured),
            counts,
        }
    }

    /// Sends a batch, or drops it after some tries and returns false. Hung up on, it does not wait
    /// any more.
    pub(super) fn deliver(&mut self, batch: &[Kept], stopped: &Receiver<()>) -> bool {
        let body = self.composer.request(batch).encode_to_vec();
        let all = batch.len() as u64;
        let mut wait = FIRST_WAIT;
        for attempt in 1..=TRIES {
            match self.send(&body) {
                Outcome::Taken(rejected) => {
                    count(&self.counts.sent, all.saturating_sub(rejected));
                    count(&self.counts.rejected, rejected.min(all));
                    return true;
                }
                Outcome::Refused => {
                    count(&self.counts.failures, 1);
                    break;
                }
                Outcome::Later => count(&self.counts.failures, 1),
            }
            let ended = attempt == TRIES
                || stopped.recv_timeout(wait) == Err(RecvTimeoutError::Disconnected);
            if ended {
                break;
            }
            wait *= 2;
        }
        count(&self.counts.failed, all);
        false
    }

    /// Counts rows that are not even tried.
    pub(super) fn give_up(&self, rows: usize) {
        count(&self.counts.failed, rows as u64);
    }

    fn send(&self, body: &[u8]) -> Outcome {
        let mut request = self
            .agent
            .post(&self.url)
            .header("Content-Type", "application/x-protobuf");
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let mut response = match request.send(body) {
            Ok(response) => response,
            Err(error) => {
                self.counts.trouble(trust::why(&error));
                return Outcome::Later;
            }
        };
        let status = response.status();
        if status.is_success() {
            self.counts.goes_well();
        } else {
            self.counts.trouble(format!("it answered {status}"));
        }
        match status {
            status if status.is_success() => {
                // A collector may take a request and not all of its spans.
                let body = response.body_mut().read_to_vec().unwrap_or_default();
                let rejected = ExportTraceServiceResponse::decode(body.as_slice())
                    .ok()
                    .and_then(|answer| answer.partial_success)
                    .map_or(0, |partial| partial.rejected_spans.max(0) as u64);
                Outcome::Taken(rejected)
            }
            StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => Outcome::Later,
            _ => Outcome::Refused,
        }
    }
}

#[cfg(fuzzing)]
pub(crate) fn fuzz(config: &Otlp, tls: TlsConfig, measured: CauseSet, counts: Arc<Counts>) {
    let _ = Collector::new(config, tls, measured, counts).send(b"spans");
}
