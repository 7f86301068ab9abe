//! The recorder: one thread that looks, twenty times a second, at what spans have ended.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tailscope_kernel::{Config, Event, Kernel, SocketSpans};
use tailscope_signals::clock::{Clock, Cycles, own_cpu_ns, unix_ns};
use tailscope_signals::keeping::Keeping;
use tailscope_signals::meters::Meters;
use tailscope_trace::{Cost, LedgerWriter, Sealing, Summary};

use crate::book::{Book, Weights};
use crate::keeping::{Flow, Keeper, row_bytes};
use crate::metadata::{measured, metadata};
use crate::options::{End, Options, Progress, RecordError};
use crate::rungs::{attach_probes, check_sockets};
use crate::sdk::SdkServer;
use crate::{Aim, Process, SpanSource, StealClock, files, machine};

/// How often the recorder looks.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How often it decides anew what to keep.
const STEER_EVERY: Duration = Duration::from_millis(200);
/// How often it tells of its progress.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// In how many processes it looks, once a second, for libraries loaded since.
const SCANNED: usize = 64;

/// A recording.
pub struct Recorder {
    kernel: Kernel,
    sdk: Option<SdkServer>,
    aims: Vec<Aim>,
    /// Files that were looked into for the SDK.
    inspected: HashSet<PathBuf>,
    clock: Clock,
    steal: Option<StealClock>,
    book: Book,
    processes: HashSet<u32>,
    started: Instant,
    notices: Vec<String>,
    sample: f64,
    cpu_at_start: u64,
}

impl Recorder {
    /// Loads the programs and begins the ledger. Nobody is recorded yet. `aims`: the probes of
    /// those sources that have some.
    pub fn start(options: &Options, aims: Vec<Aim>) -> Result<Self, RecordError> {
        let of_all = |p: f64| {
            if p >= 1.0 {
                1 << 32
            } else {
                (p * 4_294_967_296.0) as u64
            }
        };
        let sample = of_all(options.sample);
        let keeper = Keeper::new(options.keep);
        let sockets = options.spans.iter().find_map(|source| match source {
            SpanSource::RecvSend => Some(SocketSpans::FromReceive),
            SpanSource::ReadySend => Some(SocketSpans::FromReady),
            SpanSource::Sdk | SpanSource::Probes(_) => None,
        });
        let cpu_at_start = own_cpu_ns();
        let config = Config {
            sample,
            follow_children: options.children,
            sockets,
            probes: !aims.is_empty(),
        };
        let mut kernel = Kernel::load(&config)?;
        check_sockets(sockets, kernel.ladder())?;
        attach_probes(&mut kernel, &aims)?;
        let sdk = options
            .spans
            .contains(&SpanSource::Sdk)
            .then(|| SdkServer::open(sample, keeper.of_unknown()))
            .transpose()?;
        let steal = StealClock::start();
        let clock = Clock::calibrate();
        let measured = measured(&kernel, steal.is_some(), sockets);
        let metadata = metadata(options, &kernel, &clock, steal.is_some());
        let ledger = LedgerWriter::create(
            &options.output,
            metadata,
            measured,
            Sealing::default(),
            options.existing,
        )?;
        let name = match sockets {
            Some(SocketSpans::FromReceive) => SpanSource::RecvSend.span_name(),
            _ => SpanSource::ReadySend.span_name(),
        };
        let weights = Weights {
            socket: 1.0 / config.socket_sample(),
            sdk: 1.0 / options.sample,
            probe: 1.0 / options.sample,
        };
        let probe_names: Vec<String> = SpanSource::probes(&options.spans)
            .map(|source| source.span_name())
            .collect();
        let mut recorder = Self {
            kernel,
            sdk,
            inspected: HashSet::new(),
            clock,
            steal,
            cpu_at_start,
            book: Book::new(ledger, &name, &probe_names, weights, keeper),
            processes: HashSet::new(),
            started: Instant::now(),
            notices: aims.iter().flat_map(Aim::notices).collect(),
            aims,
            sample: options.sample,
        };
        recorder.tell_what_to_keep()?;
        Ok(recorder)
    }

    /// Tells all who write rows which.
    fn tell_what_to_keep(&mut self) -> Result<(), RecordError> {
        for (source, keeping) in self.book.keepings() {
            self.kernel.keep(source, keeping)?;
        }
        if let Some(sdk) = &self.sdk {
            let hz = u128::from(self.clock.hz());
            let cycles = |ns: u64| (u128::from(ns) * hz / 1_000_000_000) as u64;
            sdk.keep(|name| {
                let keeping = self.book.keeper.of(name);
                Keeping {
                    always_from: keeping.always_from.map(cycles),
                    ..keeping
                }
            });
        }
        Ok(())
    }

    /// Decides anew what to keep, from what came since the last time.
    fn steer(&mut self) -> Result<(), RecordError> {
        if !self.book.keeper.steers() {
            return Ok(());
        }
        let flow = Flow {
            at: Instant::now(),
            spans: self.metered(),
            rows: self.book.rows,
        };
        let sealed = self.book.ledger.totals();
        self.book
            .keeper
            .steer(flow, row_bytes(sealed.rows, sealed.bytes));
        self.tell_what_to_keep()
    }

    /// Records a process from now on.
    pub fn watch(&mut self, process: &Process) -> Result<(), RecordError> {
        self.kernel.watch(process.pid)?;
        self.processes.insert(process.pid);
        self.call_sdk_in(process)
    }

    /// Lets the SDK in a program file know of us, before a process runs it or while it does.
    pub fn call_sdk(&mut self, file: &Path) -> Result<(), RecordError> {
        let real = file.canonicalize().unwrap_or_else(|_| file.to_owned());
        if self.sdk.is_none() || self.inspected.contains(&real) {
            return Ok(());
        }
        if files::has_sdk(file).unwrap_or(false) {
            self.kernel.call_sdk(&real)?;
        }
        self.inspected.insert(real);
        Ok(())
    }

    /// Looks for the SDK in what a process has mapped by now.
    fn call_sdk_in(&mut self, process: &Process) -> Result<(), RecordError> {
        if self.sdk.is_some() {
            for file in process.code_files().unwrap_or_default() {
                self.call_sdk(&file)?;
            }
        }
        Ok(())
    }

    /// Looks for it in libraries that were loaded since.
    fn call_sdk_in_all(&mut self) -> Result<(), RecordError> {
        let processes: Vec<u32> = self.processes.iter().copied().take(SCANNED).collect();
        processes
            .into_iter()
            .try_for_each(|pid| self.call_sdk_in(&Process { pid }))
    }

    /// Records until `duration` is over, `stop` is set, or no process is left. `tell` hears of
    /// the progress once a second.
    pub fn run(
        &mut self,
        duration: Option<Duration>,
        stop: &AtomicBool,
        mut tell: impl FnMut(&Progress, &[String]),
    ) -> Result<End, RecordError> {
        self.started = Instant::now();
        let (mut told, mut steered) = (Instant::now(), Instant::now());
        loop {
            self.wait()?;
            self.look()?;
            if steered.elapsed() >= STEER_EVERY {
                steered = Instant::now();
                self.steer()?;
            }
            if told.elapsed() >= TELL_EVERY || !self.notices.is_empty() {
                told = Instant::now();
                self.clock.refine();
                self.call_sdk_in_all()?;
                self.look_for_replaced_files();
                let notices = std::mem::take(&mut self.notices);
                tell(&self.progress(), &notices);
            }
            if stop.load(Ordering::Relaxed) {
                return Ok(End::Stopped);
            }
            if duration.is_some_and(|d| self.started.elapsed() >= d) {
                return Ok(End::Duration);
            }
            if self.processes.is_empty() {
                return Ok(End::Exited);
            }
        }
    }

    /// Says once of each file with probes that another has taken its place.
    fn look_for_replaced_files(&mut self) {
        for file in self.aims.iter_mut().flat_map(|aim| &mut aim.files) {
            if !file.replaced && file.is_replaced_now() {
                file.replaced = true;
                self.notices.push(format!(
                    "{} was replaced: processes that start from the new file are not probed; \
                     record anew for those",
                    file.shown.display()
                ));
            }
        }
    }

    /// Waits for the next look, or for a process that knocks or ends.
    fn wait(&self) -> Result<(), RecordError> {
        let mut fds = vec![PollFd::from_borrowed_fd(
            self.kernel.events_fd(),
            PollFlags::IN,
        )];
        if let Some(sdk) = &self.sdk {
            fds.push(PollFd::from_borrowed_fd(sdk.fd(), PollFlags::IN));
        }
        let patience = Timespec {
            tv_sec: 0,
            tv_nsec: LOOK_EVERY.as_nanos() as i64,
        };
        match poll(&mut fds, Some(&patience)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(RecordError::Wait(e.into())),
        }
    }

    fn look(&mut self) -> Result<(), RecordError> {
        // The kernel tells of a child or a new program before that can knock, so the news are
        // heard between the knock and the answer: a child would be turned away as a stranger,
        // and an exec heard later would throw out the program that has just come in.
        let knocks = self.sdk.as_ref().map(SdkServer::knocks).unwrap_or_default();
        self.hear_news()?;
        if !knocks.is_empty() {
            self.call_sdk_in_all()?;
        }
        if let Some(sdk) = &mut self.sdk {
            let processes = &self.processes;
            sdk.welcome(knocks, &mut self.kernel, |pid| processes.contains(&pid));
            sdk.beat(Cycles::now(), self.clock.hz());
        }
        if let Some(steal) = &mut self.steal {
            steal.tick();
        }
        let mut page = self.book.open(&self.clock, self.steal.as_ref());
        self.kernel.rows(|row| page.enter_socket(&row));
        let kernel = &mut self.kernel;
        kernel.probe_rows(|row, text| page.enter_probe(&row, text));
        if let Some(sdk) = &mut self.sdk {
            sdk.drain(&mut page);
        }
        page.close()?;
        self.book.ledger.tick(Instant::now())?;
        Ok(())
    }

    fn hear_news(&mut self) -> Result<(), RecordError> {
        let mut news = Vec::new();
        self.kernel.events(|event| news.push(event));
        for event in news {
            match event {
                Event::Child { pid, .. } => {
                    self.processes.insert(pid);
                }
                Event::Exec { pid } => {
                    self.forget(pid)?;
                    self.call_sdk_in(&Process { pid })?;
                }
                Event::Exit { pid } => {
                    self.processes.remove(&pid);
                    self.forget(pid)?;
                }
                Event::Refused { pid, errno } => {
                    let error = io::Error::from_raw_os_error(errno);
                    let path = SdkServer::path();
                    self.notices.push(format!(
                        "process {pid} can't reach the recorder at {}: {error}; its SDK spans are not recorded",
                        path.display()
                    ));
                }
            }
        }
        Ok(())
    }

    fn forget(&mut self, pid: u32) -> Result<(), RecordError> {
        if let Some(sdk) = &mut self.sdk
            && sdk.serves(pid)
        {
            let mut page = self.book.open(&self.clock, self.steal.as_ref());
            sdk.forget(pid, &mut page);
            page.close()?;
            self.kernel.take_back_meters(pid);
        }
        Ok(())
    }

    /// How it goes.
    #[must_use]
    pub fn progress(&self) -> Progress {
        Progress {
            elapsed: self.started.elapsed(),
            rows: self.book.rows,
            p50_ns: self.book.live.quantile(0.5),
            p99_ns: self.book.live.quantile(0.99),
            bytes: self.book.ledger.totals().bytes,
            lost: self.lost().values().sum(),
        }
    }

    fn lost(&self) -> BTreeMap<String, u64> {
        let kernel = self.kernel.losses();
        let sdk = self.sdk.as_ref().map(SdkServer::counts).unwrap_or_default();
        BTreeMap::from(
            [
                ("ring_full", kernel.rows),
                ("threads", kernel.threads),
                ("nesting", kernel.nesting),
                ("events", kernel.events),
                ("sockets", kernel.sockets),
                ("switches", kernel.switches),
                ("processes", kernel.processes),
                ("abandoned", kernel.abandoned),
                ("depth", kernel.depth),
                ("names", kernel.names),
                ("recursion", kernel.recursion),
                ("strangers", sdk.strangers),
                ("region_full", sdk.full),
                ("region_malformed", sdk.malformed),
            ]
            .map(|(name, count)| (name.to_owned(), count)),
        )
    }

    /// Ends the recording: takes what is left, seals it, and writes down what was lost and what
    /// it cost.
    pub fn finish(mut self) -> Result<Progress, RecordError> {
        self.kernel.dismiss_sdk();
        self.kernel.detach_probes();
        let looked = self.look();
        let progress = self.progress();
        let mut lost = self.lost();
        lost.insert("overdrawn".into(), self.book.overdrawn);
        let seen = self.seen();
        let Self {
            kernel,
            sdk,
            book,
            cpu_at_start,
            ..
        } = self;
        drop((sdk, kernel));
        let totals = book.ledger.finish(Summary {
            ended_ns: unix_ns(),
            seen,
            lost,
            cost: Cost {
                cpu_ns: own_cpu_ns() - cpu_at_start,
                max_rss_bytes: machine::max_resident_bytes(),
            },
        })?;
        looked?;
        Ok(Progress {
            bytes: totals.bytes,
            ..progress
        })
    }

    /// Spans that ended, kept or not; under `--sample` those from the kernel are an estimate.
    fn seen(&self) -> u64 {
        let (kernel, sdk) = self.ended();
        (kernel as f64 / self.sample.clamp(f64::MIN_POSITIVE, 1.0)) as u64 + sdk
    }

    /// Metered spans that ended, kept or not.
    fn metered(&self) -> u64 {
        let (kernel, sdk) = self.ended();
        kernel + (sdk as f64 * self.sample) as u64
    }

    /// Metered spans that ended in the kernel's programs, and all that ended in the SDK.
    fn ended(&self) -> (u64, u64) {
        let kernel = self
            .kernel
            .own_meters()
            .iter()
            .filter_map(|map| Meters::map(map).ok())
            .map(|meters| meters.spans())
            .sum();
        let sdk = self.sdk.as_ref().map_or(0, |sdk| sdk.counts().spans);
        (kernel, sdk)
    }
}
