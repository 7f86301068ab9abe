//! The service: one recorder that goes on, and what is around it.

mod parts;
mod reload;
mod report;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tailscope_record::{Process, RecordError, Recorder};
use tailscope_signals::clock::unix_ns;

use crate::archive::{Archive, ArchiveError, Holding};
use crate::choice::{Facts, everybody};
use crate::clerk::{Clerk, Done, Job};
use crate::config::{Config, Problem};
use crate::mailbox::{Bell, Mailbox};
use crate::otlp::trust::TrustError;
use crate::otlp::{self, Exporter};
use crate::rotation::{Present, Reason, Rotation};
use crate::scrape::Scrape;
use crate::systemd::notify;
use parts::{begin_now, exporter, recorder, scrape};

/// How often it looks at the ledger, the clock and the disk.
const TEND_EVERY: Duration = Duration::from_secs(1);
/// How often it looks at all processes, for those that took another name since they started.
const SEARCH_EVERY: Duration = Duration::from_secs(60);
/// How long it waits after a ledger that could not be begun.
const AGAIN_AFTER: Duration = Duration::from_secs(10);

/// An agent can't start or go on.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// Its configuration.
    #[error(transparent)]
    Config(#[from] Problem),
    /// Its folder.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// Its recorder.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The probes of `spans`.
    #[error(transparent)]
    Aim(#[from] tailscope_record::AimError),
    /// The first ledger.
    #[error("can't begin a ledger: {0}")]
    Begin(String),
    /// `listen` of its metrics.
    #[error("can't serve metrics at {address}: {source}")]
    Listen {
        /// Where.
        address: std::net::SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// The collector's certificate can't be held against anything.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// A thread or a descriptor.
    #[error("can't {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

fn system(what: &'static str) -> impl FnOnce(io::Error) -> AgentError {
    move |source| AgentError::System { what, source }
}

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
    // The recorder before what it taps into.
    recorder: Recorder,
    exporter: Option<Exporter>,
    exported: Arc<otlp::Counts>,
    scrape: Option<Scrape>,
    clerk: Clerk,
    mailbox: Arc<Mailbox>,
    bell: Arc<Bell>,
    /// Processes that a rule fits; what they start is watched with them.
    chosen: Vec<u32>,
    began: Instant,
    /// The next ledger is being begun, for this reason.
    turning: Option<Reason>,
    not_before: Option<Instant>,
    holding: Holding,
    shrinking: bool,
    /// Bytes of the present ledger when the quota was last looked at.
    shrunk_at: u64,
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
    /// Of ledgers that are sealed.
    bytes: u64,
    /// Of recorders before the present one.
    rows: u64,
    spans: u64,
    lost: BTreeMap<String, u64>,
}

impl Agent {
    /// Starts with the configuration in this file. `say` hears what people should know.
    ///
    /// # Errors
    /// If it can't do all that it is told to.
    pub fn start(path: &Path, say: impl Fn(&str) + 'static) -> Result<Self, AgentError> {
        let config = Config::read(path)?;
        let archive = Archive::open(config.ledger.folder.as_ref())?;
        let bell = Arc::new(Bell::new().map_err(system("make a bell"))?);
        let mailbox = Arc::new(Mailbox::new(Arc::clone(&bell)));
        let mut recorder = recorder(&config, false)?;
        let clerk = Clerk::start(archive, Arc::clone(&bell)).map_err(system("start a thread"))?;
        recorder.turn(begin_now(&clerk, &recorder)?);
        let scrape = scrape(&config, &mailbox)?;
        let exported = Arc::default();
        let exporter = exporter(&config, &recorder, &exported)?;
        recorder.tap(exporter.as_ref().and_then(Exporter::tap));
        let mut agent = Self {
            path: path.to_owned(),
            config,
            say: Box::new(say),
            recorder,
            exporter,
            exported,
            scrape,
            clerk,
            mailbox,
            bell,
            chosen: Vec::new(),
            began: Instant::now(),
            turning: None,
            not_before: None,
            holding: Holding::default(),
            shrinking: false,
            shrunk_at: 0,
            counts: Counts::default(),
            started_ns: unix_ns(),
        };
        agent.search()?;
        agent.shrink();
        agent.tell();
        agent.greet();
        Ok(agent)
    }

    fn greet(&self) {
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
            self.recorder.processes().len()
        ));
        if let Some(scrape) = &self.scrape {
            (self.say)(&format!("metrics at http://{}/metrics", scrape.address()));
        }
    }

    /// Goes on until it is told to stop; then everything that was kept is sealed.
    ///
    /// # Errors
    /// If the kernel's programs can't be served any more. A ledger that can't be written is none:
    /// its lost rows are counted, and it tries again.
    pub fn run(mut self, orders: &Orders) -> Result<(), AgentError> {
        notify("READY=1");
        let (mut tended, mut searched) = (Instant::now(), Instant::now());
        while !orders.stop.load(Ordering::Relaxed) {
            let wake = Arc::clone(&self.bell);
            match self.recorder.round(Some(wake.as_fd())) {
                Err(RecordError::Ledger(e)) => self.failed_to_write(&e.to_string()),
                Err(e @ RecordError::Watch(_)) => (self.say)(&e.to_string()),
                done => done?,
            }
            self.bell.clear();
            self.meet()?;
            self.take_up();
            let mailbox = Arc::clone(&self.mailbox);
            mailbox.answer(|| self.figures().render());
            if orders.reload.swap(false, Ordering::Relaxed) {
                self.reload()?;
            }
            if tended.elapsed() >= TEND_EVERY {
                tended = Instant::now();
                self.tend();
                let missed = self.recorder.missed_news()?;
                if missed || searched.elapsed() >= SEARCH_EVERY {
                    searched = Instant::now();
                    self.search()?;
                }
            }
        }
        notify("STOPPING=1");
        self.end()
    }

    fn end(mut self) -> Result<(), AgentError> {
        self.recorder.tap(None);
        drop(self.scrape.take());
        // A ledger that is being begun is there already, and has to be sealed like any other.
        self.settle();
        if let Some(closing) = self.recorder.end_ledger() {
            self.clerk.give(Job::Seal(Box::new(closing)));
        }
        let Self {
            clerk,
            say,
            exporter,
            recorder,
            ..
        } = self;
        drop(recorder);
        if let Some(exporter) = exporter {
            exporter.end();
        }
        for done in clerk.end() {
            if let Done::Sealed(folder, Err(why)) = done {
                say(&format!("can't seal {}: {why}", folder.display()));
            }
        }
        say("stopped; what was recorded is kept");
        Ok(())
    }

    fn failed_to_write(&mut self, why: &str) {
        self.counts.write_errors += 1;
        (self.say)(&format!("{why}; recording goes on"));
        // What is over the quota may be what fills the disk.
        self.shrink();
    }

    /// Programs that started: those that are chosen are watched before they have done much.
    fn meet(&mut self) -> Result<(), AgentError> {
        for pid in self.recorder.take_programs() {
            self.consider(pid, false)?;
        }
        Ok(())
    }

    /// Looks at every process.
    fn search(&mut self) -> Result<(), AgentError> {
        let watched = self.recorder.processes();
        self.chosen.retain(|pid| watched.contains(pid));
        for pid in everybody() {
            self.consider(pid, true)?;
        }
        Ok(())
    }

    /// Watches a process if it is chosen; with all that it has started, if it is not new.
    fn consider(&mut self, pid: u32, is_old: bool) -> Result<(), AgentError> {
        if pid == std::process::id() || self.recorder.processes().contains(&pid) {
            return Ok(());
        }
        let facts = Facts::of(pid);
        let rules = &self.config.process;
        if !rules.iter().any(|rule| rule.as_ref().fits(&facts)) {
            return Ok(());
        }
        // It may be gone by now, or a thread of the kernel's own that took the name.
        let Ok(process) = Process::find(pid, true) else {
            return Ok(());
        };
        self.watch(&process)?;
        self.chosen.push(pid);
        if is_old && self.config.record.children {
            for child in process.descendants() {
                self.watch(&child)?;
            }
        }
        Ok(())
    }

    fn watch(&mut self, process: &Process) -> Result<(), AgentError> {
        match self.recorder.watch(process) {
            // One too many is no reason to leave the others.
            Err(e @ RecordError::Watch(_)) => {
                (self.say)(&format!("process {} is not recorded: {e}", process.pid));
                Ok(())
            }
            done => Ok(done?),
        }
    }

    /// What the recorder has to say.
    fn tell(&mut self) {
        for notice in self.recorder.take_notices() {
            (self.say)(&notice);
        }
    }

    /// What is due about once a second.
    fn tend(&mut self) {
        self.tell();
        if let (Some(why), Some(otlp)) = (self.exported.take_trouble(), &self.config.otlp) {
            let endpoint = &otlp.endpoint;
            (self.say)(&format!(
                "no spans get to {endpoint}: {why}; recording goes on"
            ));
        }
        let Config { ledger, .. } = &self.config;
        let rotation = Rotation {
            size: *ledger.rotate_size.as_ref(),
            age: *ledger.rotate_age.as_ref(),
        };
        let present = Present {
            began: self.began,
            now: Instant::now(),
            bytes: self.recorder.sealed().bytes,
            step_ns: self.recorder.clock_step_ns(),
        };
        if let Some(reason) = rotation.due(&present) {
            self.turn(reason);
        }
        if present.bytes != std::mem::replace(&mut self.shrunk_at, present.bytes) {
            self.shrink();
        }
    }

    /// Has the next ledger begun. The present one goes on until that is done.
    fn turn(&mut self, reason: Reason) {
        let too_early = self.not_before.is_some_and(|at| Instant::now() < at);
        if self.turning.is_none() && !too_early {
            self.turning = Some(reason);
            let next = Box::new(self.recorder.next_ledger());
            self.clerk.give(Job::Begin(next));
        }
    }

    fn shrink(&mut self) {
        if !std::mem::replace(&mut self.shrinking, true) {
            let quota = *self.config.ledger.quota.as_ref();
            self.clerk.give(Job::Shrink(quota));
        }
    }

    /// Takes up what the clerk has done.
    fn take_up(&mut self) {
        let done: Vec<Done> = self.clerk.done().collect();
        for done in done {
            self.take_up_one(done);
        }
    }

    fn take_up_one(&mut self, done: Done) {
        match done {
            Done::Begun(Ok(ledger)) => {
                if let Some(reason) = self.turning.take() {
                    self.counts.turns[reason.index()] += 1;
                }
                self.began = Instant::now();
                if let Some(closing) = self.recorder.turn(*ledger) {
                    self.clerk.give(Job::Seal(Box::new(closing)));
                }
            }
            Done::Begun(Err(why)) => {
                self.turning = None;
                self.not_before = Some(Instant::now() + AGAIN_AFTER);
                self.failed_to_write(&format!("can't begin the next ledger: {why}"));
            }
            Done::Sealed(folder, totals) => {
                match totals {
                    Ok(totals) => self.counts.bytes += totals.bytes,
                    Err(why) => {
                        self.failed_to_write(&format!("can't seal {}: {why}", folder.display()));
                    }
                }
                self.shrink();
            }
            Done::Shrunk(holding, failed) => {
                self.shrinking = false;
                self.holding = holding;
                for why in failed {
                    (self.say)(&format!("the quota is not kept: {why}"));
                }
            }
        }
    }
}
