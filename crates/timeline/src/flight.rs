//! The flight recorder: follows the rings, finds slow requests, and has windows written.

mod jvms;
mod machine;
mod writer;

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tailscope_kernel::LoadError;
use tailscope_kernel::timeline::{Config, Events};
use tailscope_signals::clock::Monotonic;
use tailscope_signals::event::{Event, abi, at_of, kind_of};
use tailscope_signals::event_ring::EventRings;

use crate::about::{Gap, Reason};
use crate::request::{Request, Requests};
use crate::slow::{Judge, Slow};
use jvms::Jvms;
use writer::{Job, Writer};

/// What is decided before it begins.
#[derive(Debug, Clone)]
pub struct Options {
    /// How much of the past a window holds.
    pub keep: Duration,
    /// Bytes that the rings may take.
    pub memory: u64,
    /// Which requests have the window around them written.
    pub slow: Option<Slow>,
    /// Where windows go.
    pub folder: PathBuf,
    /// Windows a minute, at most, for slow requests.
    pub per_minute: u32,
    /// Bytes that all windows of this recording may take on disk.
    pub disk: u64,
    /// Whether children of watched processes are watched too.
    pub follow_children: bool,
    /// Whether a Perfetto trace is written beside each window.
    pub perfetto: bool,
}

/// The timeline can't be recorded.
#[derive(Debug, thiserror::Error)]
pub enum FlightError {
    /// The kernel's programs can't be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// No more processes can be watched.
    #[error("no more processes can be watched at a time than the programs' table has room for")]
    TooMany,
    /// The system refused.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// What it said.
        source: io::Error,
    },
}

/// What is worth telling.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// A window was written.
    Written {
        /// Its file.
        path: PathBuf,
        /// Why.
        reason: Reason,
        /// How much of the past it holds, in ns.
        held_ns: u64,
        /// Events in it.
        events: u64,
        /// Events that are missing in it.
        lost: u64,
        /// How long the writing took, in ns.
        took_ns: u64,
    },
    /// Something that limits what the windows will tell.
    Note(String),
    /// A window could not be written.
    Failed {
        /// Why.
        why: String,
    },
}

/// Figures since the begin.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// Events that were written to the rings.
    pub events: u64,
    /// Requests that were followed to their end.
    pub requests: u64,
    /// Those that were slow.
    pub slow: u64,
    /// Slow ones, or asked for, for which no window was written: too many a minute, or no room.
    pub passed_over: u64,
    /// Events that the kernel skipped.
    pub skipped: u64,
    /// Events that the ring had lost before we looked: requests may not have been seen.
    pub unseen: u64,
}

/// Records until it is dropped.
pub struct Flight {
    writer: Writer,
    rings: Arc<EventRings>,
    events: Events,
    options: Options,
    jvms: Jvms,
    requests: Requests,
    judge: Judge,
    /// By CPU: the first event that has not been looked at.
    seen: Vec<u64>,
    began: Vec<u64>,
    began_at: u64,
    looked_at: u64,
    /// Begins of the windows written for slow requests in the last minute, in ns.
    lately: Vec<u64>,
    wanted: Option<Reason>,
    gaps: Vec<Gap>,
    gaps_at: u64,
    figures: Figures,
}

/// How often the kernel is asked what it skipped, for which it has to walk all its programs, and the
/// processes are looked at, in ns.
const SLOWLY_NS: u64 = 1_000_000_000;
/// So many events of a CPU are looked at in one turn: bounds the memory where we were held up.
const MOST_NEWS: u64 = 1 << 19;
const MINUTE_NS: u64 = 60_000_000_000;

impl Flight {
    /// Loads the programs. From here on events are kept; nobody is watched yet.
    pub fn begin(options: Options) -> Result<Self, FlightError> {
        let system = |what: String| move |source| FlightError::System { what, source };
        fs::create_dir_all(&options.folder)
            .map_err(system(format!("make {}", options.folder.display())))?;
        let events = Events::load(Config {
            memory: options.memory,
            follow_children: options.follow_children,
        })?;
        let rings = Arc::new(events.rings().map_err(system("map the rings".into()))?);
        let began: Vec<u64> = (0..rings.cpus()).map(|cpu| rings.head(cpu)).collect();
        let writer = Writer::begin(Arc::clone(&rings), &options, events.ladder())
            .map_err(system("start a thread".into()))?;
        Ok(Self {
            writer,
            rings,
            events,
            jvms: Jvms::default(),
            requests: Requests::default(),
            judge: Judge::new(options.slow),
            seen: began.clone(),
            began,
            began_at: Monotonic::now().0,
            looked_at: Monotonic::now().0,
            lately: Vec::new(),
            wanted: None,
            gaps: Vec::new(),
            gaps_at: 0,
            figures: Figures::default(),
            options,
        })
    }

    /// Watches a process.
    pub fn watch(&self, pid: u32) -> Result<(), FlightError> {
        self.events
            .watch(pid)
            .then_some(())
            .ok_or(FlightError::TooMany)
    }

    /// Whether any process that was named, or a child of it, still lives.
    #[must_use]
    pub fn anybody_lives(&self) -> bool {
        !self.events.watched().is_empty()
    }

    /// What this kernel can't tell, in words.
    #[must_use]
    pub fn limits(&self) -> Vec<String> {
        let missing = self.events.ladder().iter();
        missing
            .filter(|(_, rung)| rung.mechanism.is_none())
            .map(|(what, rung)| {
                let cost = match what {
                    "receive" | "send" => ": no request can be followed",
                    "tcp" | "packet" | "transmit" => {
                        ": requests are followed without their packets"
                    }
                    _ => "",
                };
                format!("{what} is not told: {}{cost}", rung.why)
            })
            .collect()
    }

    /// What the rings take, in bytes.
    #[must_use]
    pub fn ring_bytes(&self) -> u64 {
        self.rings.cpus() as u64 * self.rings.slots() * u64::from(abi::TL_EVENT_BYTES)
    }

    /// Figures since the begin.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let heads = (0..self.rings.cpus()).map(|cpu| self.rings.head(cpu));
        Figures {
            events: heads
                .zip(&self.began)
                .map(|(head, began)| head - began)
                .sum(),
            ..self.figures
        }
    }

    /// Wants the window up to now written.
    pub fn ask(&mut self) {
        self.wanted = Some(Reason::Asked);
    }

    /// Looks at what is new. To be called some twenty times a second.
    pub fn turn(&mut self) -> Vec<Notice> {
        // What is older than the last look has been written since, on whatever CPU: so the CPUs'
        // events can be put in the order of their time.
        let now = Monotonic::now().0;
        let until = std::mem::replace(&mut self.looked_at, now);
        self.follow(until);
        let mut notices = Vec::new();
        if now - self.gaps_at >= SLOWLY_NS {
            self.count_gaps(now);
            notices.extend(
                self.jvms
                    .look(&mut self.events)
                    .into_iter()
                    .map(Notice::Note),
            );
        }
        self.trigger(now);
        notices.extend(self.writer.notices());
        notices
    }

    fn follow(&mut self, until: u64) {
        let mut news: Vec<(u32, Event)> = Vec::new();
        for cpu in 0..self.rings.cpus() {
            let mut next = None;
            let head = self.rings.head(cpu);
            let from = self.seen[cpu].max(head.saturating_sub(MOST_NEWS));
            self.figures.unseen += from - self.seen[cpu];
            let read = self.rings.read(cpu, from, head, |number, bytes| {
                if at_of(bytes) >= until {
                    next = Some(number);
                    return false;
                }
                if MATTERS[kind_of(bytes) as usize & 31] {
                    news.extend(Event::parse(bytes).map(|event| (cpu as u32, event)));
                }
                true
            });
            self.figures.unseen += read.overwritten;
            self.seen[cpu] = next.unwrap_or(head);
        }
        news.sort_by_key(|(_, event)| event.at);
        let (judge, figures) = (&mut self.judge, &mut self.figures);
        let wanted = &mut self.wanted;
        for (cpu, event) in news {
            self.requests.take(cpu, &event, |request: Request| {
                figures.requests += 1;
                if judge.take(request.end(), request.latency()) {
                    figures.slow += 1;
                    wanted.get_or_insert(Reason::Slow);
                }
            });
        }
    }

    fn count_gaps(&mut self, now: u64) {
        let lost = self.events.lost();
        let from_ns = std::mem::replace(&mut self.gaps_at, now);
        let events = lost.skipped - self.figures.skipped;
        if events > 0 {
            self.figures.skipped = lost.skipped;
            self.gaps.push(Gap {
                from_ns,
                to_ns: now,
                events,
            });
        }
        let oldest = now.saturating_sub(self.options.keep.as_nanos() as u64);
        self.gaps.retain(|gap| gap.to_ns >= oldest);
    }

    fn trigger(&mut self, now: u64) {
        let Some(reason) = self.wanted.take() else {
            return;
        };
        self.lately.retain(|at| now - at < MINUTE_NS);
        let allowed = match reason {
            Reason::Slow => self.lately.len() < self.options.per_minute as usize,
            _ => true,
        };
        if !allowed {
            self.figures.passed_over += 1;
            return;
        }
        let job = self.job(now, reason);
        if self.writer.give(job) {
            if reason == Reason::Slow {
                self.lately.push(now);
            }
        } else if reason == Reason::Asked {
            self.wanted = Some(reason); // after the one that is being written
        } else {
            self.figures.passed_over += 1;
        }
    }

    fn job(&self, now: u64, reason: Reason) -> Job {
        Job {
            from_ns: now
                .saturating_sub(self.options.keep.as_nanos() as u64)
                .max(self.began_at),
            to_ns: now,
            reason,
            slow_ns: self.judge.threshold(),
            watched: self.events.watched(),
            gaps: self.gaps.clone(),
            processes_lost: self.events.lost().processes,
        }
    }

    /// Ends: writes the last window if none was written, and waits until all are on disk.
    pub fn finish(mut self) -> (Figures, Vec<Notice>) {
        self.follow(Monotonic::now().0);
        self.count_gaps(Monotonic::now().0);
        let figures = self.figures();
        let last = self.job(Monotonic::now().0, Reason::End);
        let Self { writer, .. } = self;
        (figures, writer.finish(last))
    }
}

/// The kinds of events that make requests, so that all others are passed over unread.
const MATTERS: [bool; 32] = {
    let mut kinds = [false; 32];
    kinds[abi::TL_SOFTIRQ_OUT as usize] = true;
    kinds[abi::TL_PACKET_IN as usize] = true;
    kinds[abi::TL_TCP_IN as usize] = true;
    kinds[abi::TL_READY as usize] = true;
    kinds[abi::TL_RECEIVE as usize] = true;
    kinds[abi::TL_SEND as usize] = true;
    kinds[abi::TL_TRANSMIT as usize] = true;
    kinds
};
