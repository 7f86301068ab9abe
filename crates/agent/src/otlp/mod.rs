//! Export of kept spans to an OpenTelemetry collector: OTLP over HTTP, protobuf.
//!
//! The thread that records only offers rows to a bounded queue. What is over the rate or finds the
//! queue full is dropped and counted; the ledger has it all the same. A thread of its own
//! collects batches and sends them, and tries again for a while where the collector may recover.

mod message;
mod sender;
pub(crate) mod trust;

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{
    Receiver, Sender, SyncSender, TryRecvError, TrySendError, channel, sync_channel,
};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Instant;

use tailscope_record::Tap;
use tailscope_trace::{CauseSet, SpanRow};
use ureq::tls::TlsConfig;

use crate::config::Otlp;
use sender::Collector;

/// A kept row on its way.
#[derive(Debug, Clone)]
pub(crate) struct Kept {
    row: SpanRow,
    name: Box<str>,
}

/// What became of spans so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Exported {
    pub(crate) sent: u64,
    /// Dropped: over `spans_per_second`.
    pub(crate) over_rate: u64,
    /// Dropped: the queue was full.
    pub(crate) queue_full: u64,
    /// Dropped: the collector was down or slow, or refused.
    pub(crate) failed: u64,
    /// The collector took the request, and not these.
    pub(crate) rejected: u64,
    /// Requests that failed.
    pub(crate) failures: u64,
}

/// What exporters count, one after the other.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    sent: AtomicU64,
    over_rate: AtomicU64,
    queue_full: AtomicU64,
    failed: AtomicU64,
    rejected: AtomicU64,
    failures: AtomicU64,
    trouble: Mutex<Trouble>,
}

/// What goes wrong, for people, who need to hear it once.
#[derive(Debug, Default)]
struct Trouble {
    present: Option<String>,
    is_told: bool,
}

fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

impl Counts {
    pub(crate) fn read(&self) -> Exported {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Exported {
            sent: of(&self.sent),
            over_rate: of(&self.over_rate),
            queue_full: of(&self.queue_full),
            failed: of(&self.failed),
            rejected: of(&self.rejected),
            failures: of(&self.failures),
        }
    }

    fn trouble(&self, why: String) {
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        if trouble.present.as_ref() != Some(&why) {
            *trouble = Trouble {
                present: Some(why),
                is_told: false,
            };
        }
    }

    fn goes_well(&self) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = Trouble::default();
    }

    /// What has gone wrong, and was not told before.
    pub(crate) fn take_trouble(&self) -> Option<String> {
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut trouble.is_told, true) {
            return None;
        }
        trouble.present.clone()
    }
}

/// The thread that sends. Dropped, it ends by itself, after the request that it is at.
pub(crate) struct Exporter {
    queue: Option<SyncSender<Kept>>,
    /// Hung up on to end the thread in mid-wait.
    stop: Option<Sender<()>>,
    rate: u32,
    counts: Arc<Counts>,
    thread: Option<JoinHandle<()>>,
}

impl Exporter {
    /// `measured`: the causes that are not null here.
    pub(crate) fn start(
        config: &Otlp,
        tls: TlsConfig,
        measured: CauseSet,
        counts: Arc<Counts>,
    ) -> io::Result<Self> {
        let (queue, rows) = sync_channel(config.queue.max(1));
        let (stop, stopped) = channel();
        let collector = Collector::new(config, tls, measured, Arc::clone(&counts));
        let thread = Builder::new()
            .name("agent-otlp".into())
            .spawn(move || run(collector, &rows, &stopped))?;
        Ok(Self {
            queue: Some(queue),
            stop: Some(stop),
            rate: config.spans_per_second,
            counts,
            thread: Some(thread),
        })
    }

    /// What takes rows for it.
    pub(crate) fn tap(&self) -> Option<Tap> {
        let queue = self.queue.clone()?;
        let counts = Arc::clone(&self.counts);
        let mut allowance = Allowance::new(self.rate, Instant::now());
        Some(Box::new(move |row, name| {
            if !allowance.take(Instant::now()) {
                return count(&counts.over_rate, 1);
            }
            let kept = Kept {
                row: row.clone(),
                name: name.into(),
            };
            if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) = queue.try_send(kept)
            {
                count(&counts.queue_full, 1);
            }
        }))
    }

    /// Waits until what is in the queue was tried once.
    pub(crate) fn end(mut self) {
        (self.queue, self.stop) = (None, None);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(mut collector: Collector, rows: &Receiver<Kept>, stopped: &Receiver<()>) {
    while let Some(batch) = sender::batch(rows) {
        let delivered = collector.deliver(&batch, stopped);
        // At the end nobody waits for a collector that is down.
        if !delivered && stopped.try_recv() == Err(TryRecvError::Disconnected) {
            collector.give_up(rows.iter().count());
            return;
        }
    }
}

/// So many a second, and no more than a second's at once.
#[derive(Debug)]
struct Allowance {
    per_second: f64,
    left: f64,
    at: Instant,
}

impl Allowance {
    fn new(per_second: u32, at: Instant) -> Self {
        let per_second = f64::from(per_second);
        Self {
            per_second,
            left: per_second,
            at,
        }
    }

    fn take(&mut self, now: Instant) -> bool {
        if self.left < 1.0 {
            let passed = now.saturating_duration_since(self.at).as_secs_f64();
            self.left = (self.left + passed * self.per_second).min(self.per_second);
            self.at = now;
        }
        let may = self.left >= 1.0;
        if may {
            self.left -= 1.0;
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn no_more_than_the_rate_goes_through() {
        let start = Instant::now();
        let mut allowance = Allowance::new(100, start);
        let taken = |allowance: &mut Allowance, ms: u64| {
            let now = start + Duration::from_millis(ms);
            (0..1000).filter(|_| allowance.take(now)).count()
        };
        assert_eq!(taken(&mut allowance, 0), 100);
        assert_eq!(taken(&mut allowance, 500), 50);
        assert_eq!(taken(&mut allowance, 60_000), 100);
    }
}
