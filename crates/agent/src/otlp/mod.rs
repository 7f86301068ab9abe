//! Export of kept spans to an OpenTelemetry collector: OTLP over HTTP, protobuf.
//!
//! The thread that records only offers rows to a bounded queue. What is over the rate or finds the
//! queue full is dropped and counted; the ledger has it all the same. A thread of its own
//! collects batches and sends them, and tries again for a while where the collector may recover.

mod message;
mod sender;
#[cfg(fuzzing)]
pub(crate) use sender::fuzz;
pub(crate) mod trust;

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{
    Receiver, Sender, SyncSender, TryRecvError, TrySendError, channel, sync_channel,
};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use tailscope_record::Tap;
use tailscope_trace::{CauseSet, SpanRow};
use ureq::tls::TlsConfig;

use crate::config::Otlp;
use sender::Collector;
use trust::TrustError;

/// How connections to this collector are made.
pub(crate) fn tls(collector: &Otlp) -> Result<TlsConfig, TrustError> {
    let ca_file = collector.ca_file.as_ref();
    trust::tls(
        collector.is_encrypted(),
        ca_file.map(|file| file.get_ref().as_path()),
    )
}

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
        let thread = Builder::new().name("agent-otlp".into()).spawn({
            let patience = config.timeout;
            move || run(collector, &rows, &stopped, patience)
        })?;
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
        Some(Box::new(move |row, _, name| {
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

    /// Waits until what is in the queue was tried once, as long as that goes well, and for no longer
    /// than one request may take.
    pub(crate) fn end(mut self) {
        (self.queue, self.stop) = (None, None);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(
    mut collector: Collector,
    rows: &Receiver<Kept>,
    stopped: &Receiver<()>,
    patience: Duration,
) {
    let mut until = None;
    while let Some(batch) = sender::batch(rows) {
        let delivered = collector.deliver(&batch, stopped);
        if stopped.try_recv() != Err(TryRecvError::Disconnected) {
            continue;
        }
        // At the end nobody waits for a collector that is down, nor long for a slow one.
        let now = Instant::now();
        if !delivered || now >= *until.get_or_insert(now + patience) {
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
    use std::collections::BTreeMap;
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    /// Reads one request and answers it after this time.
    fn answer(stream: TcpStream, after: Duration) -> io::Result<()> {
        let mut reader = BufReader::new(stream);
        loop {
            let mut length = 0;
            let mut line = String::new();
            while line != "\r\n" {
                line.clear();
                if reader.read_line(&mut line)? == 0 {
                    return Ok(());
                }
                if let Some(bytes) = line.to_lowercase().strip_prefix("content-length: ") {
                    length = bytes.trim().parse().expect("a length");
                }
            }
            io::copy(&mut reader.by_ref().take(length), &mut io::sink())?;
            std::thread::sleep(after);
            let stream = reader.get_mut();
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")?;
        }
    }

    #[test]
    fn at_the_end_a_slow_collector_is_waited_for_no_longer_than_for_one_request() {
        const ROWS: u64 = 20_000;
        let listener = TcpListener::bind("127.0.0.1:0").expect("it listens");
        let endpoint = format!("http://{}", listener.local_addr().expect("bound"));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let _ = answer(stream.expect("a connection"), Duration::from_millis(100));
            }
        });
        let config = Otlp {
            endpoint,
            ca_file: None,
            headers: BTreeMap::new(),
            spans_per_second: 1_000_000,
            queue: ROWS as usize,
            timeout: Duration::from_millis(500),
        };
        let counts = Arc::default();
        let tls = tls(&config).expect("there is none");
        let exporter = Exporter::start(&config, tls, CauseSet::default(), Arc::clone(&counts))
            .expect("it starts");
        let mut tap = exporter.tap().expect("it takes rows");
        for _ in 0..ROWS {
            tap(&SpanRow::default(), 0, "get");
        }
        drop(tap);
        exporter.end();
        // Forty requests it would have taken.
        let exported = counts.read();
        assert_eq!(exported.sent + exported.failed, ROWS, "{exported:?}");
        assert!(exported.failed > 0, "{exported:?}");
    }

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
