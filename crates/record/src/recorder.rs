//! The recorder: one thread that looks, twenty times a second or more, at what spans have ended.

mod counts;
mod events;
mod keeping;
mod lifecycle;
mod paused;
mod poll;
mod rotate;

pub use counts::Counted;
pub use paused::Paused;
pub use rotate::{Closing, NextLedger};

use std::collections::{HashMap, HashSet};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tailscope_kernel::{Also, Config, Kernel, SocketSpans, drop_capabilities};
use tailscope_process::MappedSizes;
use tailscope_sdk_server::sockets::Sockets;
use tailscope_sdk_server::{Execs, Server};
use tailscope_signals::clock::{Clock, own_cpu_ns};
use tailscope_trace::{CauseSet, LedgerWriter, Metadata, Names, Sealing, SpanName, Summary};

use crate::counting::Counting;
use crate::hooks::{attach_probes, check_sockets};
use crate::interpreters::Interpreters;
use crate::metadata::{measured, metadata};
use crate::notices::Notices;
use crate::options::{End, Listener, Options, Place, RecordError};
use crate::output::Output;
use crate::pace::Pace;
use crate::pipeline::{RowPipeline, Tap, Weights};
use crate::requests::Requests;
use crate::retention::TailSampler;
use crate::stacks::StackPipeline;
use crate::tls::TlsLibraries;
use crate::{Live, ResolvedProbes, SpanSource, StealClock};
use rotate::Sums;

/// How often it decides anew what to keep.
const STEER_EVERY: Duration = Duration::from_millis(200);
/// How often it tells of its progress.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// A recording.
pub struct Recorder {
    kernel: Kernel,
    sdk: Option<Server<SpanName>>,
    resolved: Vec<ResolvedProbes>,
    mapped: MappedSizes,
    clock: Clock,
    steal: Option<StealClock>,
    pipeline: RowPipeline,
    requests: Requests,
    /// Where requests over TLS are decrypted; `None`: nobody asks for their names.
    tls: Option<TlsLibraries>,
    /// Where threads wait for their turn; `None`: no source of spans reads sockets.
    interpreters: Option<Interpreters>,
    processes: HashSet<u32>,
    /// Those that ended since the last poll.
    ended_processes: Vec<u32>,
    /// When they began, in the kernel's ticks, as far as that was asked: a number is used again.
    starts: HashMap<u32, u64>,
    started: Instant,
    notices: Notices,
    sample: f64,
    measured: CauseSet,
    metadata: Metadata,
    /// The process in which it last looked for the SDK.
    scanned: u32,
    /// Programs that started and are not watched.
    programs: Vec<u32>,
    lost_process_events: u64,
    /// When the latest process events came.
    events_came: Option<Instant>,
    /// Whether a ring of rows is half full.
    rows_wait: bool,
    pace: Pace,
    polled: Instant,
    steered: Instant,
    refreshed: Instant,
    /// What was counted until the present ledger began.
    before: Sums,
    /// What the phases before this one have counted.
    past: Summary,
    /// What a row took on disk in the ledger before.
    row_bytes: Option<f64>,
    cpu_at_start: u64,
}

impl Recorder {
    /// Loads the programs and begins the ledger. Nobody is recorded yet. `resolved`: the probes of
    /// those sources that have some.
    ///
    /// From here on the calling thread, and those that it starts, have only the capabilities that a
    /// running recorder needs.
    pub fn start(options: &Options, resolved: Vec<ResolvedProbes>) -> Result<Self, RecordError> {
        let sampler = TailSampler::new(options.keep);
        let cpu_at_start = own_cpu_ns();
        let config = options.kernel_config();
        let (sample, sockets) = (config.sample, config.sockets);
        check_sample(options, sockets)?;
        let mut kernel = Kernel::load(&config)?;
        check_sockets(sockets, kernel.mechanisms())?;
        attach_probes(&mut kernel, &resolved)?;
        let wants_sdk = options.spans.contains(&SpanSource::Sdk);
        let sdk_sockets = wants_sdk.then(|| Sockets::open(options.takes_over));
        let sdk_sockets = sdk_sockets.transpose()?;
        let steal = StealClock::start();
        let clock = Clock::calibrate();
        let measured = measured(&kernel, steal.is_some(), sockets);
        let counting = Counting::start(options.counters.clone());
        let metadata = metadata(options, &kernel, &clock, steal.is_some(), &counting);
        let output = output(options.ledger.as_ref(), &metadata, measured)?;
        let stacks = options
            .stacks
            .map(|_| StackPipeline::start(options.code_for));
        // Before the first thread, and after the ledger: its folder may lie in another user's.
        let also = [
            (Also::EndCommand, options.ends_command),
            // An agent may be asked for the SDK later, by a new configuration.
            (
                Also::AttachProbes,
                wants_sdk || options.tell_programs || options.names_tls() || options.pauses,
            ),
        ];
        drop_capabilities(also)?;
        let sdk = sdk_sockets
            .map(|sockets| Server::start(sockets, Execs::Reported, sample, sampler.of_unknown()));
        let sdk = sdk.transpose().map_err(RecordError::Thread)?;
        let tls = options.names_tls().then(TlsLibraries::start);
        let tls = tls.transpose().map_err(RecordError::Thread)?;
        let interpreters =
            (sockets.is_some() || options.stacks.is_some()).then(Interpreters::start);
        let interpreters = interpreters.transpose().map_err(RecordError::Thread)?;
        let mut recorder = Self {
            kernel,
            sdk,
            mapped: MappedSizes::default(),
            clock,
            steal,
            cpu_at_start,
            pipeline: pipeline(options, &config, output, sampler, counting),
            requests: Requests::named_by(options.naming, options.traces),
            tls,
            interpreters,
            processes: HashSet::new(),
            ended_processes: Vec::new(),
            starts: HashMap::new(),
            started: Instant::now(),
            notices: Notices::of(resolved.iter().flat_map(ResolvedProbes::notices)),
            resolved,
            sample: options.sample,
            measured,
            metadata,
            scanned: 0,
            programs: Vec::new(),
            lost_process_events: 0,
            events_came: None,
            rows_wait: false,
            pace: Pace::default(),
            polled: Instant::now(),
            steered: Instant::now(),
            refreshed: Instant::now(),
            before: Sums::default(),
            past: Summary::default(),
            row_bytes: None,
        };
        recorder.pipeline.stacks = stacks;
        recorder.tell_what_to_keep()?;
        recorder.begin_counting();
        Ok(recorder)
    }

    /// The causes that this machine measures in this recording.
    #[must_use]
    pub fn measured(&self) -> CauseSet {
        self.measured
    }

    /// Records until `duration` is over, `stop` is set, or no process is left.
    pub fn run(
        &mut self,
        duration: Option<Duration>,
        stop: &AtomicBool,
        listener: &mut impl Listener,
    ) -> Result<End, RecordError> {
        self.started = Instant::now();
        let mut told = Instant::now();
        loop {
            self.round(None)?;
            listener.show(&self.pipeline.live);
            if told.elapsed() >= TELL_EVERY || self.notices.any() {
                told = Instant::now();
                let notices = self.take_notices();
                listener.tell(&self.progress(), &notices);
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
    fn check_for_replaced_files(&mut self) {
        for file in self
            .resolved
            .iter_mut()
            .flat_map(|probes| &mut probes.files)
        {
            if !file.replaced && file.is_replaced_now() {
                file.replaced = true;
                self.notices.say(format!(
                    "{} was replaced; processes that start from the new file are not probed; \
                     restart the recording to probe them",
                    file.shown.display()
                ));
            }
        }
    }

    /// Waits for the next look, takes what came since the last, and does what is due. While no
    /// process is watched it looks only when there are process events, or `wake` is readable, or once a second.
    ///
    /// # Errors
    /// Those of the ledger mean that rows were lost, and are counted; everything else went on, and
    /// so may the caller.
    pub fn round(&mut self, wake: Option<BorrowedFd<'_>>) -> Result<(), RecordError> {
        self.wait(wake)?;
        if self.answer_only(wake)? {
            return Ok(());
        }
        let before = self.pipeline.rows;
        self.clock.refine();
        let polled = self.poll();
        let now = Instant::now();
        self.pace
            .follow(self.pipeline.rows - before, now - self.polled);
        self.polled = now;
        if self.steered.elapsed() >= STEER_EVERY {
            self.steered = Instant::now();
            self.steer()?;
        }
        if self.refreshed.elapsed() >= TELL_EVERY {
            self.refreshed = Instant::now();
            self.search_for_libraries();
            self.check_for_replaced_files();
            self.report_refusals();
            self.sdk.iter_mut().for_each(Server::drop_closed);
            self.show_code();
            self.finish_answers(false)?;
        }
        self.switch_counters();
        polled
    }

    /// Enters the rows of answers that are complete because nothing has come after them, or of `all`.
    fn finish_answers(&mut self, all: bool) -> Result<(), RecordError> {
        let mut rows = Vec::new();
        self.kernel
            .finish_answers(all, |row| rows.push(row.clone()))?;
        let (_, names) = self.kernel.ended();
        let mut batch = self
            .pipeline
            .open(&mut self.clock, self.steal.as_ref(), &names);
        rows.iter().for_each(|row| batch.enter_socket(row));
        Ok(())
    }

    /// What the person should know, since the last time.
    pub fn take_notices(&mut self) -> Vec<String> {
        self.notices.take(Instant::now())
    }

    /// Programs that started since the last time and are not watched, if it was asked to tell.
    pub fn take_programs(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.programs)
    }

    /// The processes that are watched.
    #[must_use]
    pub fn processes(&self) -> &HashSet<u32> {
        &self.processes
    }

    /// Whether rows of this process may still come: it is watched, or has ended since the last poll.
    #[must_use]
    pub fn may_have_rows(&self, pid: u32) -> bool {
        self.processes.contains(&pid) || self.ended_processes.contains(&pid)
    }

    /// The statistics so far.
    #[must_use]
    pub fn live(&self) -> &Live {
        &self.pipeline.live
    }

    /// Has somebody else get every row too.
    pub fn tap(&mut self, tap: Option<Tap>) {
        self.pipeline.tap = tap;
    }
}

/// Whether a part of the spans can be metered, if that is asked for.
fn check_sample(options: &Options, sockets: Option<SocketSpans>) -> Result<(), RecordError> {
    if sockets == Some(SocketSpans::Slices) && options.sample < 1.0 {
        return Err(RecordError::Source {
            source_name: SpanSource::Request.to_string(),
            why: "--sample does not apply to it; use --keep or --tail".to_owned(),
        });
    }
    Ok(())
}

/// Begins the ledger, if there is a place for one.
fn output(
    place: Option<&Place>,
    metadata: &Metadata,
    measured: CauseSet,
) -> Result<Output, RecordError> {
    let Some(place) = place else {
        return Ok(Output::Nowhere(Names::default()));
    };
    let ledger = LedgerWriter::create(
        &place.folder,
        metadata.clone(),
        measured,
        Sealing::default(),
        place.existing,
    )?;
    Ok(Output::Ledger(Box::new(ledger)))
}

/// The pipeline of rows that go there. It knows what spans are called by their sources, and how many
/// each metered one stands for.
fn pipeline(
    options: &Options,
    config: &Config,
    output: Output,
    sampler: TailSampler,
    counting: Counting,
) -> RowPipeline {
    let name = match config.sockets {
        Some(SocketSpans::FromReceive) => SpanSource::RecvSend.span_name(),
        Some(SocketSpans::Slices) => SpanSource::Request.span_name(),
        _ => SpanSource::ReadySend.span_name(),
    };
    let probe_names: Vec<String> = SpanSource::probes(&options.spans)
        .map(|source| source.span_name())
        .collect();
    let weights = Weights {
        socket: 1.0 / config.socket_sample(),
        sdk: 1.0 / options.sample,
        probe: 1.0 / options.sample,
    };
    RowPipeline::new(output, &name, &probe_names, weights, sampler, counting)
}
