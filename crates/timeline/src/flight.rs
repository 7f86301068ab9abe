//! The flight recorder: follows the rings, finds slow requests, and has windows written.

mod control;
mod cooldown;
mod follow;
mod functions;
mod holding;
mod jvms;
mod machine;
mod notice;
mod options;
mod rest;
mod sdk;
mod trigger;
mod writer;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tailscope_kernel::timeline::{Events, Tier};
use tailscope_kernel::{Also, Measurement, drop_capabilities};
use tailscope_output::Folder;
use tailscope_sdk_server::sockets::Sockets;
use tailscope_signals::clock::Monotonic;
use tailscope_signals::event::abi;
use tailscope_signals::event_ring::EventRings;

use crate::about::{Gap, Reason};
use crate::probed::Probed;
use crate::request::Requests;
use crate::slow::Judge;
pub use control::ask_for_window;
use control::{Control, hear};
use cooldown::Cooldown;
use holding::{Holding, filled};
use jvms::Jvms;
pub use notice::{Figures, Notice};
pub use options::{FlightError, Options, SpanProbes};
use rest::Rest;
use sdk::Sdk;
use writer::Writer;

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
    sdk: Option<Sdk>,
    judge: Judge,
    /// By CPU: the first event that has not been looked at.
    seen: Vec<u64>,
    began: Vec<u64>,
    began_at: u64,
    looked_at: u64,
    /// Slow requests that no window holds.
    cooldown: Cooldown,
    holding: Holding,
    /// The number of the latest window that was given to the writer.
    number: u64,
    /// The window up to now is asked for.
    asked: bool,
    /// It was asked for since the last poll.
    follows_now: bool,
    gaps: Vec<Gap>,
    /// The same of spans of the SDK.
    sdk_gaps: Vec<Gap>,
    gaps_at: u64,
    figures: Figures,
    resting: Option<Rest>,
}

/// How often the kernel is asked what it skipped, for which it has to walk all its programs, and the
/// processes are looked at, in ns.
const SLOWLY_NS: u64 = 1_000_000_000;
/// How often the rings are read at the most: processes that connect make polls at any rate.
const FOLLOW_EVERY_NS: u64 = 25_000_000;
/// Where spans of the SDK are followed, this part of the memory is theirs: one event each, where a
/// request on a socket takes some twenty.
const SDK_SHARE: u64 = 8;

/// Where there are no packets, requests are followed without.
fn requests_of(tier: Tier) -> Requests {
    Requests::with(tier >= Tier::Requests)
}

/// How many spans have room in so many bytes.
fn spans_in(bytes: u64) -> u32 {
    let spans = bytes / u64::from(abi::TL_EVENT_BYTES);
    spans.clamp(1 << 10, 1 << 24) as u32
}

impl Flight {
    /// Loads the programs. From here on events are kept; nobody is watched yet.
    ///
    /// The calling thread, and those that it starts, then have only the capabilities that a running
    /// recorder needs.
    pub fn begin(options: Options) -> Result<Self, FlightError> {
        let system = |what: String| move |source| FlightError::System { what, source };
        let folder = Folder::make(&options.folder)
            .map_err(system(format!("write to {}", options.folder.display())))?;
        let control = options
            .control
            .as_deref()
            .map(|path| Control::open(path).map_err(system(format!("serve {}", path.display()))));
        let control = control.transpose()?;
        let for_spans = options.sdk.then_some(options.memory / SDK_SHARE);
        let memory = options.memory - for_spans.unwrap_or_default();
        let mut events = Events::load(options.with_memory(memory))?;
        for probe in options.spans.iter().flat_map(|span| &span.probes) {
            events.attach_probe(probe)?;
        }
        let names = options.spans.iter().map(|span| span.name.clone()).collect();
        let sockets = for_spans.map(|_| Sockets::open(None)).transpose()?;
        // Before the first thread, and after all that is opened by its name.
        // A JVM or a program with the SDK may start later.
        let also = [
            (Also::EndCommand, options.ends_command),
            (Also::AttachProbes, true),
        ];
        drop_capabilities(also)?;
        let opened = sockets.zip(for_spans);
        let sdk = opened.map(|(sockets, bytes)| Sdk::start(sockets, names, spans_in(bytes)));
        let sdk = sdk.transpose()?;
        let rings = Arc::new(events.rings().map_err(system("map the rings".into()))?);
        let began: Vec<u64> = (0..rings.cpus()).map(|cpu| rings.head(cpu)).collect();
        let own = sdk.as_ref().map(|sdk| Arc::clone(sdk.ring()));
        let writer = Writer::begin(
            Arc::clone(&rings),
            own,
            folder,
            &options,
            events.mechanisms(),
        )
        .map_err(system("start a thread".into()))?;
        let now = Monotonic::now().0;
        let holding = Holding::new(
            now,
            &filled(&rings, sdk.as_ref()),
            options.keep.as_nanos() as u64,
        );
        Ok(Self {
            writer,
            control,
            number: 0,
            rings,
            events,
            jvms: Jvms::default(),
            requests: requests_of(options.tier),
            probed: Probed::default(),
            sdk,
            judge: Judge::new(options.slow),
            seen: began.clone(),
            began,
            began_at: now,
            looked_at: now,
            cooldown: Cooldown::new(options.per_minute),
            holding,
            asked: false,
            follows_now: false,
            gaps: Vec::new(),
            sdk_gaps: Vec::new(),
            gaps_at: 0,
            figures: Figures::default(),
            resting: None,
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

    /// Stops watching it.
    pub fn unwatch(&self, pid: u32) {
        self.events.unwatch(pid);
    }

    /// Attaches to the SDK in a program file, before a process runs it, so that its first spans are
    /// recorded too. Does nothing where spans of the SDK are not followed.
    pub fn attach_sdk(&mut self, program: &Path) {
        if let Some(sdk) = &mut self.sdk {
            sdk.attach_program(program, &mut self.events);
        }
    }

    /// Waits until the next poll: so long, or until a process with the SDK connects.
    pub fn wait(&self, patience: Duration) {
        let Some(sdk) = &self.sdk else {
            return std::thread::sleep(patience);
        };
        let patience = patience.min(sdk.poll_again_in().unwrap_or(patience));
        let sockets = sdk
            .fds()
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        let mut sockets: Vec<_> = sockets.collect();
        let most = Timespec {
            tv_sec: patience.as_secs() as i64,
            tv_nsec: patience.subsec_nanos().into(),
        };
        // Interrupted by a signal, it looks a little early.
        let _ = poll(&mut sockets, Some(&most));
    }

    /// The processes that are watched now.
    #[must_use]
    pub fn watched(&self) -> Vec<u32> {
        self.events.watched()
    }

    /// Whether any process that was named, or a child of it, still lives.
    #[must_use]
    pub fn any_is_alive(&self) -> bool {
        self.events.any_is_watched()
    }

    /// What this kernel can't tell, in words.
    #[must_use]
    pub fn limits(&self) -> Vec<String> {
        let missing = self.events.mechanisms().iter();
        missing
            .filter(|(_, mechanism)| mechanism.hook.is_none())
            // What the person left out needs no word.
            .filter(|(_, mechanism)| !mechanism.why.starts_with("--"))
            .map(|(what, mechanism)| {
                let cost = match what {
                    Measurement::Receive | Measurement::Send => ": Tailscope can't follow requests",
                    Measurement::Tcp | Measurement::Packet | Measurement::Transmit => {
                        ": Tailscope follows requests without their packets"
                    }
                    _ => "",
                };
                format!("{what} is not recorded: {}{cost}", mechanism.why)
            })
            .collect()
    }

    /// What the rings take, in bytes.
    #[must_use]
    pub fn ring_bytes(&self) -> u64 {
        let spans = self.sdk.as_ref().map_or(0, |sdk| sdk.ring().slots());
        (self.rings.cpus() as u64 * self.rings.slots() + spans) * u64::from(abi::TL_EVENT_BYTES)
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
            passed_over: self.cooldown.passed_over(),
            ..self.figures
        }
    }

    /// Wants the window up to now written: however often that is asked for meanwhile, once.
    pub fn ask(&mut self) {
        self.asked = true;
        self.follows_now = true;
    }

    /// Looks at what is new. To be called some twenty times a second.
    pub fn poll(&mut self) -> Vec<Notice> {
        let mut notices = Vec::new();
        if let Some(sdk) = &mut self.sdk {
            sdk.answer(&mut self.events);
            let notes = sdk.search(&mut self.events, false);
            notices.extend(notes.into_iter().map(Notice::Note));
        }
        if self.control.as_mut().is_some_and(Control::poll) {
            self.ask();
        }
        let now = Monotonic::now().0;
        let follows_now = std::mem::take(&mut self.follows_now);
        if follows_now || now - self.looked_at >= FOLLOW_EVERY_NS {
            self.follow_sdk();
            // What is older than the last look has been written since, on whatever CPU: so the CPUs'
            // events can be put in the order of their time.
            let until = std::mem::replace(&mut self.looked_at, now);
            self.follow(until);
            // A window has all spans that ended until now.
            self.trigger(now);
        }
        if now - self.gaps_at >= SLOWLY_NS {
            self.count_gaps(now);
            match self.resting {
                Some(_) => self.forget_gone(),
                None => notices.extend(self.look_around(now)),
            }
        }
        let told = self.writer.notices();
        if told.iter().any(|(_, n)| matches!(n, Notice::Failed { .. })) {
            self.cooldown.failed();
        }
        notices.extend(hear(self.control.as_mut(), told));
        notices
    }

    /// What it does slowly while it is attached.
    fn look_around(&mut self, now: u64) -> Vec<Notice> {
        let rings = filled(&self.rings, self.sdk.as_ref());
        let bytes = self.ring_bytes();
        let mut notes = self.jvms.poll(&mut self.events);
        if let Some(sdk) = &mut self.sdk {
            notes.extend(sdk.search(&mut self.events, true));
        }
        let holds = self.holding.check(now, &rings, bytes);
        let notes = notes.into_iter().map(Notice::Note);
        holds.into_iter().chain(notes).collect()
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
        let sdk_lost = self.sdk.as_ref().map_or(0, Sdk::lost);
        let events = sdk_lost - self.figures.sdk_lost;
        if events > 0 {
            self.figures.sdk_lost = sdk_lost;
            self.sdk_gaps.push(Gap {
                from_ns,
                to_ns: now,
                events,
            });
        }
        let oldest = now.saturating_sub(self.options.keep.as_nanos() as u64);
        self.gaps.retain(|gap| gap.to_ns >= oldest);
        self.sdk_gaps.retain(|gap| gap.to_ns >= oldest);
    }

    /// Ends: writes the last window if none was written, and waits until all are on disk.
    pub fn finish(mut self) -> (Figures, Vec<Notice>) {
        self.follow_sdk();
        self.follow(Monotonic::now().0);
        self.count_gaps(Monotonic::now().0);
        let now = Monotonic::now().0;
        let last = self.job(now, Reason::End, None);
        if self.number == 0 {
            self.cooldown.held(now);
        }
        let figures = self.figures();
        let Self {
            writer,
            mut control,
            ..
        } = self;
        let told = writer.finish(last);
        (figures, hear(control.as_mut(), told))
    }
}
