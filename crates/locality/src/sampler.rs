//! Samples the memory accesses of a running program, without hardware that does it and without
//! stopping the program.
//!
//! A clock of each thread's CPU time samples its registers and the top of its stack. [`walk`] finds
//! the accesses that follow. The period is random, so that it keeps no step with the program. Of
//! some accesses the word is watched for a moment, to see which threads touch it.

mod entries;
mod threads;
mod watch;

use std::io;
use std::time::{Duration, Instant};

use fastrand::Rng;
use serde::Serialize;
use tailscope_counters::{ThreadSamples, UserSample};

use crate::profile::Profile;
use crate::program::{Function, Program};
use crate::walk::{self, End, Frames, Registers, StackCopy, Unresolved, Walker};
use entries::Counting;
use threads::Threads;
use watch::Watch;

pub use entries::Visits;
pub use watch::WatchCounts;

/// How often rings are emptied.
pub const POLL: Duration = Duration::from_millis(20);
/// Bytes of the stack that a sample has. Callers are found only with a phase, and need more.
const STACK: u32 = 4096;
const STACK_FOR_CALLERS: u32 = 16_384;
/// Samples that are kept. Later ones are counted only.
const MOST_SAMPLES: usize = 1 << 20;

/// What to sample.
#[derive(Debug, Clone)]
pub struct Options {
    /// CPU time between samples of a thread, on average.
    pub period: Duration,
    /// The function that is the phase.
    pub phase: Option<String>,
    /// Whether to use watchpoints.
    pub watch: bool,
    /// Whether to count how often the phase is entered: a thread stops each time.
    pub count: bool,
    /// Seed of the random periods.
    pub seed: u64,
}

/// How many, and what was lost.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Counts {
    /// Samples that the clocks took.
    pub samples: u64,
    /// Of these, samples in the kernel, where no access is seen.
    pub in_kernel: u64,
    /// Samples in user space that have at least one access with a known address.
    pub resolved: u64,
    /// Samples in user space in the phase.
    pub in_phase: u64,
    /// Accesses with a known address.
    pub accesses: u64,
    /// Of these, accesses right before a sample.
    pub before: u64,
    /// Accesses after samples without one, by reason.
    pub unresolved: Vec<(Unresolved, u64)>,
    /// Why walks ended.
    pub ends: Vec<(End, u64)>,
    /// Samples that found a ring full.
    pub lost: u64,
    /// How often the kernel stopped a clock because it came too often.
    pub throttled: u64,
    /// Samples of threads that were ending.
    pub without_registers: u64,
    /// Samples and accesses that found no room in memory.
    pub dropped: u64,
    /// Threads that were not sampled, because there were too many or the kernel refused.
    pub threads_left_out: u64,
}

/// A program that is sampled. All events end when this is dropped.
#[derive(Debug)]
pub struct Sampler {
    options: Options,
    program: Program,
    threads: Threads,
    watch: Watch,
    entries: Counting,
    walker: Walker,
    rng: Rng,
    profile: Profile,
    counts: Counts,
    unresolved: [u64; Unresolved::ALL.len()],
    ends: [u64; End::ALL.len()],
    /// For how long it sampled before the latest rest, and since when it does again, unless it rests.
    sampled_for: Duration,
    since: Option<Instant>,
}

/// What was found.
#[derive(Debug)]
pub struct Found {
    /// The samples.
    pub profile: Profile,
    /// The program, for names.
    pub program: Program,
    /// How many, and what was lost.
    pub counts: Counts,
    /// What the watchpoints did.
    pub watch: WatchCounts,
    /// How often the phase was entered.
    pub visits: Visits,
    /// For how long it sampled.
    pub elapsed: Duration,
}

impl Sampler {
    /// Starts to sample all threads of a process.
    ///
    /// # Errors
    /// The process is gone or may not be read, or the kernel refuses the clock.
    pub fn start(pid: u32, mut program: Program, options: Options) -> io::Result<Self> {
        let stack = match options.phase {
            Some(_) => STACK_FOR_CALLERS,
            None => STACK,
        };
        let starts = match &options.phase {
            Some(phase) if options.count => program.starts(phase),
            _ => Vec::new(),
        };
        let pages = pages(&options, stack);
        let period = u64::try_from(options.period.as_nanos()).unwrap_or(u64::MAX);
        let mut sampler = Self {
            threads: Threads::new(pid, period, stack, pages),
            watch: Watch::new(options.watch),
            entries: Counting::new(starts),
            rng: Rng::with_seed(options.seed),
            options,
            program,
            walker: Walker::default(),
            profile: Profile::default(),
            counts: Counts::default(),
            unresolved: Default::default(),
            ends: Default::default(),
            sampled_for: Duration::ZERO,
            since: Some(Instant::now()),
        };
        sampler.threads.adopt(&mut sampler.profile)?;
        Ok(sampler)
    }

    /// Takes what was sampled since the last poll. `false`: the process has ended.
    pub fn poll(&mut self) -> bool {
        let mut hits = Vec::new();
        let first = self.profile.touches.len();
        for place in 0..self.threads.len() {
            let mut found = ThreadSamples::default();
            let thread = self.threads.drain(place, &mut found);
            self.counts.lost += found.drained.lost;
            self.counts.throttled += found.drained.throttled;
            self.counts.without_registers += found.without_registers;
            for sample in &found.samples {
                self.take(thread, sample);
            }
            hits.extend(found.hits.into_iter().map(|hit| (thread, hit)));
        }
        self.watch.end(&hits, &mut self.threads, &mut self.profile);
        let new = &self.profile.touches[first..];
        if let Some(touch) = (!new.is_empty()).then(|| new[self.rng.usize(..new.len())]) {
            let line = self.profile.lines[touch.line as usize];
            let word = line + u64::from(touch.offset & !7);
            self.watch.begin(word, &mut self.threads);
        }
        self.entries.poll(self.threads.tids_sampled());
        self.threads.jitter(&mut self.rng);
        let is_alive = self.threads.adopt(&mut self.profile).is_ok();
        is_alive && !self.threads.is_empty()
    }

    /// Closes all events: the program then runs as if it were not sampled, until the next poll.
    pub fn rest(&mut self) {
        self.poll();
        self.watch.forget();
        self.entries.end_burst();
        self.threads.close();
        self.sampled_for = self.sampled();
        self.since = None;
    }

    /// Samples again after a [rest](Self::rest).
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    pub fn resume(&mut self) -> io::Result<()> {
        self.since = Some(Instant::now());
        self.threads.adopt(&mut self.profile)
    }

    /// For how long it has sampled.
    fn sampled(&self) -> Duration {
        self.sampled_for + self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Samples until now, and accesses.
    #[must_use]
    pub fn progress(&self) -> (u64, u64) {
        (self.counts.samples, self.counts.accesses)
    }

    /// Ends the sampling.
    #[must_use]
    pub fn finish(mut self) -> Found {
        let elapsed = self.sampled();
        self.counts.resolved = self.profile.resolved() as u64;
        self.counts.dropped += self.profile.dropped;
        self.counts.threads_left_out = self.threads.left_out();
        self.counts.unresolved = Unresolved::ALL.into_iter().zip(self.unresolved).collect();
        self.counts.ends = End::ALL.into_iter().zip(self.ends).collect();
        Found {
            profile: self.profile,
            program: self.program,
            counts: self.counts,
            watch: self.watch.finish(),
            visits: self.entries.finish(),
            elapsed,
        }
    }

    fn take(&mut self, thread: u16, sample: &UserSample) {
        self.counts.samples += 1;
        if sample.in_kernel {
            self.counts.in_kernel += 1;
            return;
        }
        if self.profile.samples.len() >= MOST_SAMPLES {
            self.counts.dropped += 1;
            return;
        }
        let registers = registers(sample);
        let stack = StackCopy {
            from: registers.general[4],
            bytes: &sample.stack,
        };
        let callers = self.callers(&registers, stack);
        let innermost = self.function(registers.ip);
        let phase = self.phase();
        let in_phase = callers.iter().any(|is_phase| *is_phase);
        self.counts.in_phase += u64::from(in_phase);
        self.profile.begin(thread, innermost, in_phase);
        self.take_before(&registers, innermost, in_phase);
        let mut found = Vec::new();
        let unresolved = &mut self.unresolved;
        let end = self.walker.walk(
            &registers,
            stack,
            &mut self.program,
            |access, frames: Frames<'_>| {
                let outer = callers.iter().skip(frames.left.max(1));
                let is_in = outer.copied().any(|is_phase| is_phase);
                found.push((access, is_in, frames.called.to_vec()));
            },
            |why| unresolved[why as usize] += 1,
        );
        self.ends[end as usize] += 1;
        for (access, is_in, called) in found {
            let function = self.function(access.ip);
            let is_here = |program: &mut Program, ip| {
                phase.is_some_and(|phase| program.functions_at(ip).contains(&phase))
            };
            let in_phase = is_in
                || is_here(&mut self.program, access.ip)
                || called.iter().any(|ip| is_here(&mut self.program, *ip));
            self.profile.touch(&access, function, in_phase);
            self.counts.accesses += 1;
        }
    }

    /// The access right before the sample, if it is certain.
    fn take_before(&mut self, registers: &Registers, function: Function, in_phase: bool) {
        let Some(previous) = self.program.previous(registers.ip) else {
            return;
        };
        let (profile, counts) = (&mut self.profile, &mut self.counts);
        profile.came_from(walk::accesses_memory(&previous));
        self.walker.before(registers, &previous, |access| {
            profile.touch_before(&access, function, in_phase);
            counts.accesses += 1;
            counts.before += 1;
        });
    }

    /// The number of the phase's name, once code of it was seen.
    fn phase(&self) -> Option<Function> {
        let name = self.options.phase.as_ref()?;
        self.program.functions().find(name)
    }

    /// By frame, the innermost first: whether it is of the phase.
    fn callers(&mut self, registers: &Registers, stack: StackCopy<'_>) -> Vec<bool> {
        if self.options.phase.is_none() {
            return Vec::new();
        }
        let addresses = self.program.callers(registers, stack);
        let names: Vec<_> = addresses
            .iter()
            .map(|at| self.program.functions_at(*at))
            .collect();
        let phase = self.phase();
        let is_phase = |functions: &std::rc::Rc<[Function]>| {
            phase.is_some_and(|phase| functions.contains(&phase))
        };
        names.iter().map(is_phase).collect()
    }

    /// The function that has the code at an address, not one that was inlined there.
    fn function(&mut self, ip: u64) -> Function {
        let found = self.program.functions_at(ip);
        found
            .last()
            .copied()
            .unwrap_or_else(|| self.program.unnamed(ip))
    }
}

/// Pages of a thread's ring: four times what the thread can fill between two polls, within bounds.
/// A poll takes longer when names of a large file are read.
fn pages(options: &Options, stack: u32) -> usize {
    let samples = POLL.as_nanos() / options.period.as_nanos().max(1) + 1;
    let bytes = 4 * samples as usize * (stack as usize + 512);
    (bytes / 4096).next_power_of_two().clamp(16, 256)
}

/// By the numbers that the processor has for registers.
fn registers(sample: &UserSample) -> Registers {
    let [
        ax,
        bx,
        cx,
        dx,
        si,
        di,
        bp,
        sp,
        ip,
        flags,
        _cs,
        _ss,
        rest @ ..,
    ] = sample.registers;
    let [r8, r9, r10, r11, r12, r13, r14, r15] = rest;
    Registers {
        general: [
            ax, cx, dx, bx, sp, bp, si, di, r8, r9, r10, r11, r12, r13, r14, r15,
        ],
        ip,
        flags,
    }
}
