//! The flight recorder: follows the rings, finds slow requests, and has windows written.

mod control;
mod jvms;
mod machine;
mod notice;
mod options;
mod writer;

use std::fs;
use std::sync::Arc;

use tailscope_kernel::timeline::{Config, Events};
use tailscope_signals::clock::Monotonic;
use tailscope_signals::event::{Event, abi, at_of, kind_of};
use tailscope_signals::event_ring::EventRings;

use crate::about::{Gap, Reason};
use crate::probed::Probed;
use crate::request::{Request, Requests};
use crate::slow::Judge;
use control::Control;
pub use control::ask_for_window;
use jvms::Jvms;
pub use notice::{Figures, Notice};
pub use options::{FlightError, Options, SpanProbes};
use writer::{Job, Writer};

/// Records until it is dropped.
pub struct Flight {
    writer: Writer,
    control: Option<Control>,
    rings: Arc<EventRings>,
    events: Events,
    options: Options,
    jvms: Jvms,
    requests: Requests,
    probed: Probed,
    judge: Judge,
    /// By CPU: the first event that has not been looked at.
    seen: Vec<u64>,
    began: Vec<u64>,
    began_at: u64,
    looked_at: u64,
    /// Begins of the windows written for slow requests in the last minute, in ns.
    lately: Vec<u64>,
    /// The number of the latest window that was given to the writer.
    number: u64,
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
        let control = options
            .control
            .as_deref()
            .map(|path| Control::open(path).map_err(system(format!("serve {}", path.display()))));
        let control = control.transpose()?;
        let mut events = Events::load(Config {
            memory: options.memory,
            follow_children: options.follow_children,
            probes: !options.spans.is_empty(),
        })?;
        for probe in options.spans.iter().flat_map(|span| &span.probes) {
            events.attach_probe(probe)?;
        }
        let rings = Arc::new(events.rings().map_err(system("map the rings".into()))?);
        let began: Vec<u64> = (0..rings.cpus()).map(|cpu| rings.head(cpu)).collect();
        let writer = Writer::begin(Arc::clone(&rings), &options, events.ladder())
            .map_err(system("start a thread".into()))?;
        Ok(Self {
            writer,
            control,
            number: 0,
            rings,
            events,
            jvms: Jvms::default(),
            requests: Requests::default(),
            probed: Probed::default(),
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

    /// Wants the window up to now written: however often that is asked for meanwhile, once.
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
        if self.control.as_mut().is_some_and(Control::look) {
            self.ask();
        }
        self.trigger(now);
        let told = self.writer.notices();
        notices.extend(hear(self.control.as_mut(), told));
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
        let mut ended = |request: Request| {
            figures.requests += 1;
            if judge.take(request.end(), request.latency()) {
                figures.slow += 1;
                wanted.get_or_insert(Reason::Slow);
            }
        };
        for (cpu, event) in news {
            if self.options.sockets {
                self.requests.take(cpu, &event, &mut ended);
            }
            self.probed.take(&event, &mut ended);
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
            self.number += 1;
            if reason == Reason::Slow {
                self.lately.push(now);
            } else if let Some(control) = &mut self.control {
                control.begun(self.number);
            }
        } else if reason == Reason::Asked {
            self.wanted = Some(reason); // after the one that is being written
        } else {
            self.figures.passed_over += 1;
        }
    }

    fn job(&self, now: u64, reason: Reason) -> Job {
        Job {
            number: self.number + 1,
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
        let Self {
            writer,
            mut control,
            ..
        } = self;
        let told = writer.finish(last);
        (figures, hear(control.as_mut(), told))
    }
}

/// Has those who wait for windows told of them. What is told goes on.
fn hear(mut control: Option<&mut Control>, told: Vec<(u64, Notice)>) -> Vec<Notice> {
    let mut notices = Vec::new();
    for (number, notice) in told {
        if let Some(control) = &mut control {
            control.told(number, &notice);
        }
        notices.push(notice);
    }
    notices
}

/// The kinds of events that make requests, so that all others are passed over unread.
const MATTERS: [bool; 32] = {
    let mut kinds = [false; 32];
    kinds[abi::TL_SOFTIRQ_OUT as usize] = true;
    kinds[abi::TL_PACKET_IN as usize] = true;
    kinds[abi::TL_TCP_IN as usize] = true;
    kinds[abi::TL_READY as usize] = true;
    kinds[abi::TL_RECEIVE as usize] = true;
    kinds[abi::TL_TAKEN as usize] = true;
    kinds[abi::TL_SEND as usize] = true;
    kinds[abi::TL_TRANSMIT as usize] = true;
    kinds[abi::TL_SPAN_IN as usize] = true;
    kinds[abi::TL_SPAN_OUT as usize] = true;
    kinds[abi::TL_NAME_BACK as usize] = true;
    kinds
};
