//! One run of the observer, from its begin to its report.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread;
use std::time::{Duration, Instant};

use tailscope_signals::clock::{Clock, Cycles};
use tailscope_signals::preempted::Preemption;
use tailscope_signals::view::Word;

use crate::analysis::Analysis;
use crate::budget::Search;
use crate::dte::Tolerance;
use crate::effect::{Phase, effect};
use crate::pace::{Pace, Period};
use crate::placement::{Placement, PlacementError};
use crate::process::{Fate, Owner};
use crate::random::Random;
use crate::raw::{self, Drain, Feed, Written};
use crate::report::{Context, Report, report};
use crate::sampler::{self, Readers, Sample, Sink};
use crate::signal::{Any, Read, Reader, Signal};
use crate::{MOST_COUNTERS, MOST_TAGS};

/// How much of the application's speed observing may take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Budget(pub f64);

/// How to observe.
#[derive(Debug, Clone)]
pub struct Options {
    /// How often to sample; under a budget, what it begins with is found instead.
    pub period: Period,
    /// By which share of it periods vary at random.
    pub jitter: f64,
    /// By how much the two readings of the clock may disagree.
    pub tolerance: Tolerance,
    /// How fast the first counter can grow at most, in counts a cycle, if that is known.
    pub most: Option<f64>,
    /// How long; `None`: until told to stop, or the process ends.
    pub duration: Option<Duration>,
    /// The length of a slice of the time series.
    pub slice: Duration,
    /// Whether the observer switches itself off at times, to measure its effect.
    pub pauses: bool,
    /// Finds the period.
    pub budget: Option<Budget>,
    /// Where raw samples go: a folder that is not there yet.
    pub raw: Option<PathBuf>,
    /// The application's progress, if it is not the first counter.
    pub progress: Option<Signal>,
    /// Of everything that is random.
    pub seed: u64,
}

/// Why a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Its time was over.
    Done,
    /// It was told to.
    Stopped,
    /// An observed process ended.
    Exited(u32),
    /// An observed process began to run another program.
    Execed(u32),
}

impl End {
    fn words(self) -> String {
        match self {
            Self::Done => "done".into(),
            Self::Stopped => "stopped".into(),
            Self::Exited(pid) => format!("process {pid} ended"),
            Self::Execed(pid) => format!("process {pid} began to run another program"),
        }
    }
}

/// How far a run is.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// Since its begin.
    pub elapsed: Duration,
    /// Samples taken.
    pub samples: u64,
}

/// A run that can't be.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Nothing, or too much, to observe.
    #[error(
        "a loop reads 1 to {MOST_COUNTERS} counters and up to {MOST_TAGS} tags, not {counters} and \
         {tags}: observe the others in another run"
    )]
    Number {
        /// Counters.
        counters: usize,
        /// Tags.
        tags: usize,
    },
    /// The observer's CPU.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// The folder of raw samples.
    #[error(transparent)]
    Raw(#[from] tailscope_trace::Error),
    /// The system refused.
    #[error("can't {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What it said.
        source: std::io::Error,
    },
}

/// Whether the application's end is looked for, and how the run goes is told, so often.
const LOOK: Duration = Duration::from_millis(20);
const TELL: Duration = Duration::from_secs(1);

/// By how much the rate of the pairs kept may differ from that of all before it is said.
const UNLIKE: f64 = 0.02;

/// Observes, until its time is over, it is told to stop, or a process ends.
pub fn observe(
    counters: &[Signal],
    tags: &[Signal],
    placement: &Placement,
    options: &Options,
    stop: &AtomicBool,
    tell: impl FnMut(&Progress),
) -> Result<Report, RunError> {
    let run = Run {
        counters,
        tags,
        placement,
        options,
        over: AtomicBool::new(false),
        failed: Arc::new(AtomicBool::new(false)),
        samples: AtomicU64::new(0),
    };
    match (counters.len(), tags.len()) {
        (1, 0) => run.with::<1, 0>(stop, tell),
        (1, 1) => run.with::<1, 1>(stop, tell),
        (1, 2) => run.with::<1, 2>(stop, tell),
        (2, 0) => run.with::<2, 0>(stop, tell),
        (2, 1) => run.with::<2, 1>(stop, tell),
        (2, 2) => run.with::<2, 2>(stop, tell),
        (3, 0) => run.with::<3, 0>(stop, tell),
        (3, 1) => run.with::<3, 1>(stop, tell),
        (3, 2) => run.with::<3, 2>(stop, tell),
        (4, 0) => run.with::<4, 0>(stop, tell),
        (4, 1) => run.with::<4, 1>(stop, tell),
        (4, 2) => run.with::<4, 2>(stop, tell),
        (counters, tags) => Err(RunError::Number { counters, tags }),
    }
}

/// What all threads of a run share.
struct Run<'r> {
    counters: &'r [Signal],
    tags: &'r [Signal],
    placement: &'r Placement,
    options: &'r Options,
    /// The observer has to end.
    over: AtomicBool,
    /// A read failed: a process is gone.
    failed: Arc<AtomicBool>,
    samples: AtomicU64,
}

/// What samples go into.
struct Sinks<const N: usize, const T: usize> {
    analysis: Analysis<N, T>,
    feed: Option<Feed>,
}

impl<const N: usize, const T: usize> Sinks<N, T> {
    fn interrupt(&mut self) {
        self.analysis.interrupt();
        if let Some(feed) = &mut self.feed {
            feed.interrupt();
        }
    }
}

impl<const N: usize, const T: usize> Sink<N, T> for Sinks<N, T> {
    #[inline(always)]
    fn take(&mut self, sample: &Sample<N, T>) {
        self.analysis.take(sample);
        if let Some(feed) = &mut self.feed {
            feed.take(sample);
        }
    }
}

/// What the observer's thread comes back with.
struct Outcome<const N: usize, const T: usize> {
    analysis: Analysis<N, T>,
    /// Samples that were to be written.
    offered: u64,
    phases: Vec<Phase>,
    period: Option<u64>,
    preemption_noticed: bool,
}

impl Run<'_> {
    fn with<const N: usize, const T: usize>(
        &self,
        stop: &AtomicBool,
        tell: impl FnMut(&Progress),
    ) -> Result<Report, RunError> {
        let mut clock = Clock::calibrate();
        let begin = Instant::now();
        let names: Vec<String> = self
            .counters
            .iter()
            .chain(self.tags)
            .map(|signal| signal.name.clone())
            .collect();
        let pipe = self.options.raw.as_ref();
        let pipe = pipe.map(|folder| raw::pipe(folder, &names)).transpose()?;
        let (feed, drain) = pipe.unzip();
        let (outcome, written, end) = thread::scope(|scope| {
            let writer = drain.map(|drain: Drain| scope.spawn(|| drain.run()));
            let observer = thread::Builder::new()
                .name("observer".into())
                .spawn_scoped(scope, || self.chosen::<N, T>(feed, clock.hz()))
                .map_err(|source| RunError::System {
                    what: "start the observer's thread",
                    source,
                })?;
            let end = self.watch(stop, begin, || observer.is_finished(), tell);
            self.over.store(true, Relaxed);
            let outcome = observer.join().expect("the observer never panics");
            let written = writer.map(|writer| writer.join().expect("the writer never panics"));
            Ok::<_, RunError>((outcome?, written, end))
        })?;
        clock.refine();
        let progress = self.progress();
        let context = Context {
            counters: self.counters,
            tags: self.tags,
            placement: self.placement,
            clock_hz: clock.hz(),
            seconds: begin.elapsed().as_secs_f64(),
            end: end.words(),
            period: outcome.period,
            preemption_noticed: outcome.preemption_noticed,
            tolerance: self.options.tolerance.share(),
            most: self.options.most,
            progress: progress.name.clone(),
            effect: effect(&outcome.phases),
            budget: self.options.budget.map(|budget| budget.0),
            notices: self.notices(&outcome),
            raw: written.map(|written| Written {
                lost: outcome.offered - written.samples,
                ..written
            }),
        };
        Ok(report(&outcome.analysis, context))
    }

    fn progress(&self) -> &Signal {
        self.options.progress.as_ref().unwrap_or(&self.counters[0])
    }

    /// From the thread that waits: looks whether all processes are what they were.
    fn watch(
        &self,
        stop: &AtomicBool,
        begin: Instant,
        finished: impl Fn() -> bool,
        mut tell: impl FnMut(&Progress),
    ) -> End {
        let mut owners: Vec<&Owner> = Vec::new();
        let signals = self.counters.iter().chain(self.tags);
        for owner in signals.filter_map(|signal| signal.owner.as_deref()) {
            if !owners.iter().any(|known| known.pid == owner.pid) {
                owners.push(owner);
            }
        }
        let mut told = begin;
        loop {
            let share = LOOK / owners.len().max(1) as u32;
            if owners.is_empty() {
                thread::sleep(share);
            }
            for owner in &owners {
                match owner.fate(share) {
                    Fate::Lives => {}
                    Fate::Exited => return End::Exited(owner.pid),
                    Fate::Execed => return End::Execed(owner.pid),
                }
            }
            let elapsed = begin.elapsed();
            if stop.load(Relaxed) {
                return End::Stopped;
            }
            if finished() || self.options.duration.is_some_and(|most| elapsed >= most) {
                return End::Done;
            }
            if told.elapsed() >= TELL {
                told = Instant::now();
                tell(&Progress {
                    elapsed,
                    samples: self.samples.load(Relaxed),
                });
            }
        }
    }

    /// Takes the loop that is compiled for these signals.
    fn chosen<const N: usize, const T: usize>(
        &self,
        feed: Option<Feed>,
        hz: u64,
    ) -> Result<Outcome<N, T>, RunError> {
        let load = |signal: &Signal| match &signal.reader {
            Reader::Load(word) => Some(word.clone()),
            Reader::Copy(_) => None,
        };
        let counters: Option<Vec<Word>> = self.counters.iter().map(load).collect();
        let tags: Option<Vec<Word>> = self.tags.iter().map(load).collect();
        if let (Some(counters), Some(tags)) = (counters, tags) {
            return self.run::<Word, N, T>(counters, tags, feed, hz);
        }
        let any = |signal: &Signal| Any::new(signal.reader.clone(), Arc::clone(&self.failed));
        self.run::<Any, N, T>(
            self.counters.iter().map(any).collect(),
            self.tags.iter().map(any).collect(),
            feed,
            hz,
        )
    }

    /// The observer's thread.
    fn run<R: Read + std::fmt::Debug, const N: usize, const T: usize>(
        &self,
        counters: Vec<R>,
        tags: Vec<R>,
        feed: Option<Feed>,
        hz: u64,
    ) -> Result<Outcome<N, T>, RunError> {
        self.placement.take()?;
        let watch = Preemption::watch();
        let readers: Readers<R, N, T> = Readers {
            counters: counters.try_into().expect("as many as N"),
            tags: tags.try_into().expect("as many as T"),
        };
        let masks = std::array::from_fn(|i| self.counters[i].mask());
        let slice = (self.options.slice.as_secs_f64() * hz as f64) as u64;
        let new = || Analysis::new(self.options.tolerance, masks, self.options.most, slice);
        let progress = Any::new(self.progress().reader.clone(), Arc::clone(&self.failed));
        let mask = self.progress().mask();
        let mut plan = Plan::new(self.options, hz);
        let mut pace = Pace::new(plan.period, self.options.jitter, self.options.seed);
        let mut sinks = Sinks {
            analysis: new(),
            feed,
        };
        let mut phases = Vec::with_capacity(4096);
        let mut rested = true;
        while !self.over.load(Relaxed) && !self.failed.load(Relaxed) {
            let phase = plan.next();
            let before = (Cycles::now().0, progress.read());
            if phase.on {
                if rested {
                    sinks.interrupt();
                }
                rested = false;
                let until = before.0.wrapping_add(phase.cycles);
                sampler::run(
                    &readers,
                    &mut pace,
                    until,
                    &self.over,
                    watch.as_ref(),
                    &mut sinks,
                );
                self.samples.store(sinks.analysis.counts.samples, Relaxed);
            } else {
                rested = true;
                thread::sleep(Duration::from_secs_f64(phase.cycles as f64 / hz as f64));
            }
            let after = (Cycles::now().0, progress.read());
            let seen = Phase {
                on: phase.on,
                progress: after.1.wrapping_sub(before.1) & mask,
                cycles: after.0.wrapping_sub(before.0),
            };
            match plan.learn(seen) {
                Learnt::Nothing => phases.push(seen),
                Learnt::Period(period) => pace.set(period),
                Learnt::Found(period) => {
                    pace.set(period);
                    // What was seen at other periods is not what is reported.
                    phases.clear();
                    sinks.analysis = new();
                }
            }
        }
        Ok(Outcome {
            analysis: sinks.analysis,
            offered: sinks.feed.map_or(0, Feed::end),
            phases,
            period: (pace.every() > 0).then(|| pace.every()),
            preemption_noticed: watch.is_some(),
        })
    }

    fn notices<const N: usize, const T: usize>(&self, outcome: &Outcome<N, T>) -> Vec<String> {
        let mut notices = Vec::new();
        let cpu = self.placement.cpu;
        if self.placement.shared {
            notices.push(format!(
                "the application may run on the observer's CPU {cpu} too: keep it off with taskset"
            ));
        }
        let counts = outcome.analysis.counts;
        let pairs = counts.kept + counts.disagreed + counts.preempted;
        if pairs > 0 && counts.kept * 10 < pairs * 9 {
            notices.push(
                "more than a tenth of the pairs was dropped: a longer --period lets the readings \
                 agree better"
                    .into(),
            );
        }
        for (rates, signal) in outcome.analysis.rates.iter().zip(self.counters) {
            let kept = rates.grown as f64 / counts.kept_cycles.max(1) as f64;
            let all = rates.all_grown as f64 / counts.cycles.max(1) as f64;
            if rates.all_grown == 0 {
                notices.push(format!("{} never changed", signal.name));
            } else if (kept / all - 1.0).abs() > UNLIKE {
                notices.push(format!(
                    "the pairs kept say {:.1} % of the rate of {} that all pairs say: those \
                     dropped were not like them; take a longer --period",
                    kept / all * 100.0,
                    signal.name
                ));
            }
        }
        notices
    }
}

/// A piece of time to come.
struct Next {
    on: bool,
    cycles: u64,
}

enum Learnt {
    Nothing,
    Period(Period),
    Found(Period),
}

/// When the observer is on, and at which period.
struct Plan {
    period: Period,
    pauses: bool,
    search: Option<Search>,
    search_until: u64,
    was_on: bool,
    hz: f64,
    random: Random,
}

impl Plan {
    /// Seconds of a search whose run has no given end.
    const SEARCH: f64 = 10.0;

    fn new(options: &Options, hz: u64) -> Self {
        let hz = hz as f64;
        let whole = options
            .duration
            .map_or(2.0 * Self::SEARCH, |d| d.as_secs_f64());
        let search = options.budget.map(|budget| Search::new(budget.0));
        Self {
            period: match &search {
                Some(search) => Period::Cycles(search.period()),
                None => options.period,
            },
            pauses: options.pauses,
            search,
            search_until: Cycles::now().0 + (whole / 2.0 * hz) as u64,
            was_on: false,
            hz,
            random: Random::new(options.seed ^ Cycles::now().0),
        }
    }

    /// Lengths and order are random, so that nothing periodic in the application meets them. With a
    /// budget half of the phases are without the observer, else about one in five, and shorter.
    fn next(&mut self) -> Next {
        let often = if self.search.is_some() { 1.0 } else { 0.25 };
        let on = !self.pauses || !self.was_on || self.random.share() >= often;
        self.was_on = on;
        let ms = if on { 4.0 } else { 2.0 } * (1.0 + self.random.share());
        // A phase has to hold some samples.
        let fewest = match self.period {
            Period::Cycles(cycles) if on => cycles.saturating_mul(20),
            _ => 0,
        };
        Next {
            on,
            cycles: ((ms / 1e3 * self.hz) as u64).max(fewest),
        }
    }

    fn learn(&mut self, phase: Phase) -> Learnt {
        let Some(search) = &mut self.search else {
            return Learnt::Nothing;
        };
        if Cycles::now().0 >= self.search_until {
            if self.search_until == u64::MAX {
                return Learnt::Nothing;
            }
            self.search_until = u64::MAX;
            self.period = Period::Cycles(search.period());
            return Learnt::Found(self.period);
        }
        if self.search_until == u64::MAX {
            return Learnt::Nothing;
        }
        match search.take(phase) {
            Some(cycles) => {
                self.period = Period::Cycles(cycles);
                Learnt::Period(self.period)
            }
            None => Learnt::Nothing,
        }
    }
}
