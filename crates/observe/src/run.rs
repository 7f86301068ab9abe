//! One run of the observer, from its begin to its report.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread;
use std::time::{Duration, Instant};

use tailscope_signals::clock::{Clock, Cycles};
use tailscope_signals::preempted::Preemption;
use tailscope_signals::view::Word;

use crate::analysis::Analysis;
use crate::effect::{Phase, effect};
use crate::options::{End, Options, Progress, RunError};
use crate::pace::Pace;
use crate::placement::Placement;
use crate::plan::{Learnt, Plan};
use crate::process::{Fate, Owner};
use crate::raw::{self, Drain, Feed, Written};
use crate::report::{Context, Report, report};
use crate::sampler::{self, Readers, Sample, Sink};
use crate::signal::{Any, Read, Reader, Signal};
/// Whether the application's end is looked for, and how the run goes is told, so often.
const POLL_EVERY: Duration = Duration::from_millis(20);
const TELL: Duration = Duration::from_secs(1);

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
    /// A read failed: its process is gone, or others took the CPU's counters.
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
            let writer = drain.map(|drain: Drain| {
                scope.spawn(|| {
                    // Where it may not be moved it works all the same, and takes turns with the observer.
                    let _ = self.placement.leave();
                    drain.run()
                })
            });
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
            sleeps: self.options.budget.is_none() && self.options.period.sleeps(),
            tolerance: self.options.tolerance,
            most: self.options.most,
            progress: progress.name.clone(),
            effect: effect(&outcome.phases),
            budget: self.options.budget.map(|budget| budget.0),
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
            // A process that ends can't be read a little before its end is told.
            let unreadable = self.failed.load(Relaxed);
            let share = POLL_EVERY / owners.len().max(1) as u32;
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
            if unreadable {
                return End::Unreadable;
            }
            let over = finished() && !self.failed.load(Relaxed);
            if over || self.options.duration.is_some_and(|most| elapsed >= most) {
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
            Reader::Copy(_) | Reader::Count(_) => None,
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
        let mut pace = Pace::new(plan.period(), self.options.jitter, self.options.seed);
        pace.nap_at(hz);
        let mut sinks = Sinks {
            analysis: new(),
            feed,
        };
        let mut phases = Vec::with_capacity(4096);
        let mut rested = true;
        while !self.over.load(Relaxed) && !self.failed.load(Relaxed) {
            let phase = plan.next();
            let counted = sinks.analysis.counts;
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
                    self.options.tolerance,
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
            let counts = sinks.analysis.counts;
            let seen = Phase {
                on: phase.on,
                progress: after.1.wrapping_sub(before.1) & mask,
                cycles: after.0.wrapping_sub(before.0),
                samples: counts.samples - counted.samples,
                changes: counts.changes - counted.changes,
            };
            phases.push(seen);
            match plan.learn(seen) {
                Learnt::Nothing => {}
                Learnt::Period(period) => pace.set(period),
                Learnt::Found(period) => {
                    pace.set(period);
                    // What was seen while nothing was known is not what is reported.
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
}
