//! The service: one recorder that goes on, and what is around it.

mod budget;
mod error;
mod ledgers;
mod parts;
mod processes;
mod recording;
mod reload;
mod report;

use std::net::TcpListener;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tailscope_record::{Counted, RecordError};
use tailscope_signals::clock::unix_ns;
use tailscope_trace::Written;

use crate::archive::{Archive, Holding};
use crate::by_process;
use crate::config::Config;
use crate::ledger_worker::{Done, LedgerWorker};
use crate::otlp::{self, Exporter};
use crate::rotation::Reason;
use crate::scrape::Scrape;
use crate::scrape_requests::{ScrapeRequests, Waker};
use crate::systemd::{notify, passed_listener};
use budget::Held;
pub use budget::{Predict, Predicted};
pub use error::AgentError;
use error::system;
use parts::{allow_descriptors, begin_now, exporter, listener, recorder, scrape};
use recording::Recording;

/// How often it looks at the ledger, the clock and the disk.
const ROUTINE_EVERY: Duration = Duration::from_secs(1);
/// How often it looks at all processes, for those that took another name since they started.
const SEARCH_EVERY: Duration = Duration::from_secs(60);

/// What signals tell it.
#[derive(Debug, Default)]
pub struct Orders {
    /// End properly.
    pub stop: Arc<AtomicBool>,
    /// Read the configuration again.
    pub reload: Arc<AtomicBool>,
}

/// A running agent.
pub struct Agent {
    path: PathBuf,
    config: Config,
    say: Box<dyn Fn(&str)>,
    predict: Box<Predict>,
    // The recorder before what it taps into.
    recording: Recording,
    held: Option<Held>,
    exporter: Option<Exporter>,
    exported: Arc<otlp::Counts>,
    by_process: by_process::Shared,
    scrape: Option<Scrape>,
    /// The socket for metrics that systemd passed, which no configuration replaces.
    passed: Option<TcpListener>,
    ledger_worker: LedgerWorker,
    scrape_requests: Arc<ScrapeRequests>,
    waker: Arc<Waker>,
    /// Processes that a rule fits; what they start is watched with them.
    chosen: Vec<u32>,
    began: Instant,
    /// The next ledger is being begun, for this reason.
    rotating: Option<Reason>,
    not_before: Option<Instant>,
    holding: Holding,
    shrinking: bool,
    /// Bytes of the present ledger when the quota was last looked at.
    shrunk_at: u64,
    written: Arc<Written>,
    counts: Counts,
    started_ns: i64,
}

/// What is counted beyond one recorder and one exporter.
#[derive(Debug, Default)]
struct Counts {
    turns: [u64; Reason::ALL.len()],
    reloads: u64,
    refused_reloads: u64,
    last_refused: bool,
    write_errors: u64,
    /// By the recorders before the present one.
    before: Counted,
}

impl Agent {
    /// Starts with the configuration in this file. `say` gets what people should know; `predict` is for
    /// a budget of overhead.
    ///
    /// # Errors
    /// If it can't do all that it is told to.
    pub fn start(
        path: &Path,
        say: impl Fn(&str) + 'static,
        predict: Box<Predict>,
    ) -> Result<Self, AgentError> {
        let config = Config::read(path)?;
        allow_descriptors();
        let archive = Archive::open(config.ledger.folder.as_ref())?;
        let waker = Arc::new(Waker::new().map_err(system("create an eventfd"))?);
        let scrape_requests = Arc::new(ScrapeRequests::new(Arc::clone(&waker)));
        let passed = passed_listener();
        // Before the recorder, which drops the right to a port below 1024.
        let listener = listener(&config, passed.as_ref())?;
        let mut recorder = recorder(&config, None)?;
        let written = Arc::default();
        let ledger_worker = LedgerWorker::start(archive, Arc::clone(&waker), Arc::clone(&written))
            .map_err(system("start a thread"))?;
        recorder.rotate(begin_now(&ledger_worker, &recorder, &mut Vec::new())?);
        let scrape = scrape(listener, &scrape_requests)?;
        let exported = Arc::default();
        let exporter = exporter(&config, recorder.measured(), &exported)?;
        let by_process = by_process::Shared::default();
        recorder.tap(Some(by_process.tap(exporter.as_ref())));
        let mut agent = Self {
            path: path.to_owned(),
            config,
            say: Box::new(say),
            predict,
            recording: Recording::of(recorder),
            held: None,
            exporter,
            exported,
            by_process,
            scrape,
            passed,
            ledger_worker,
            scrape_requests,
            waker,
            chosen: Vec::new(),
            began: Instant::now(),
            rotating: None,
            not_before: None,
            holding: Holding::default(),
            shrinking: false,
            shrunk_at: 0,
            written,
            counts: Counts::default(),
            started_ns: unix_ns(),
        };
        agent.ask_by_process();
        agent.search()?;
        agent.shrink();
        agent.tell();
        agent.announce();
        agent.begin_budget()?;
        Ok(agent)
    }

    fn ask_by_process(&self) {
        let metrics = &self.config.metrics;
        let mut figures = self.by_process.lock();
        figures.configure(metrics.listen.is_some(), metrics.pid);
    }

    fn announce(&self) {
        let folder = self.config.ledger.folder.as_ref().display();
        (self.say)(&format!(
            "recording {} of {} processes to {folder}",
            self.config
                .record
                .sources()
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(", "),
            self.recording.watched()
        ));
        if let Some(scrape) = &self.scrape {
            (self.say)(&format!("metrics at http://{}/metrics", scrape.address()));
            let wanted = self.config.metrics.listen;
            if let Some(wanted) = wanted.filter(|wanted| *wanted != scrape.address())
                && self.passed.is_some()
            {
                (self.say)(&format!(
                    "listen = \"{wanted}\" has no effect: systemd passed a socket; change \
                     ListenStream= with systemctl edit tailscope-agent.socket"
                ));
            }
        }
    }

    /// Goes on until it is told to stop; then everything that was kept is sealed.
    ///
    /// # Errors
    /// If the kernel's programs can't be served any more. A ledger that can't be written is none:
    /// its lost rows are counted, and it tries again.
    pub fn run(mut self, orders: &Orders) -> Result<(), AgentError> {
        notify("READY=1");
        let went = self.rounds(orders);
        notify("STOPPING=1");
        went.and(self.end())
    }

    fn rounds(&mut self, orders: &Orders) -> Result<(), AgentError> {
        let (mut routine_at, mut searched) = (Instant::now(), Instant::now());
        while !orders.stop.load(Ordering::Relaxed) {
            let wake = Arc::clone(&self.waker);
            self.by_process.lock().advance(Instant::now());
            match self.recording.round(wake.as_fd()) {
                Err(RecordError::Ledger(e)) => self.failed_to_write(&e.to_string()),
                Err(e @ RecordError::Watch(_)) => (self.say)(&e.to_string()),
                done => done?,
            }
            self.waker.clear();
            self.adopt()?;
            self.hold_budget()?;
            self.poll_ledger_worker();
            let scrape_requests = Arc::clone(&self.scrape_requests);
            scrape_requests.answer(|| self.figures().render());
            if orders.reload.swap(false, Ordering::Relaxed) {
                self.reload()?;
            }
            if routine_at.elapsed() >= ROUTINE_EVERY {
                routine_at = Instant::now();
                self.routine();
                let recorder = self.recording.attached();
                let missed =
                    recorder.map_or(Ok(false), |recorder| recorder.missed_process_events());
                if missed? || searched.elapsed() >= SEARCH_EVERY {
                    searched = Instant::now();
                    self.search()?;
                }
            }
        }
        Ok(())
    }

    fn end(mut self) -> Result<(), AgentError> {
        drop(self.scrape.take());
        // A ledger that is being begun is there already, and has to be sealed like any other.
        self.settle();
        let closing = self.recording.end_ledger();
        self.seal(closing);
        let Self {
            ledger_worker,
            say,
            exporter,
            recording,
            ..
        } = self;
        drop(recording);
        if let Some(exporter) = exporter {
            exporter.end();
        }
        for done in ledger_worker.end() {
            if let Done::Sealed(folder, Err(why)) = done {
                say(&format!("can't seal {}: {why}", folder.display()));
            }
        }
        say("stopped; the recording is kept");
        Ok(())
    }

    /// What the recorder has to say.
    fn tell(&mut self) {
        let recorder = self.recording.attached();
        let notices = recorder.map(|recorder| recorder.take_notices());
        for notice in notices.unwrap_or_default() {
            (self.say)(&notice);
        }
    }
}
