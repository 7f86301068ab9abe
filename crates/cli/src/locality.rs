//! `tailscope locality`.

mod args;
mod distance;
mod overhead;
mod predict;
mod text;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use tailscope_kernel::drop_capabilities;
use tailscope_locality::program::Program;
use tailscope_locality::report::{About, Report};
use tailscope_locality::sampler::{Options, POLL, Sampler};
use tailscope_process::owner;

use crate::console::Console;
use crate::failure::Failure;
use crate::overhead::said;
use crate::page;
use crate::screen::Screen;
use crate::streams::{print_json, print_laid_out, say};
use crate::subject::{stop_on_signals, targets};
use crate::units::count;
use args::What;
pub use args::{Locality, Sampling};
use distance::Meter;

/// Does what was asked.
pub fn run(args: &Locality) -> Result<ExitCode> {
    match &args.what {
        Some(What::Predict(predict)) => predict::run(predict),
        None => sampled(&args.sampling),
    }
}

/// Samples, and prints the report.
fn sampled(args: &Sampling) -> Result<ExitCode> {
    let pids: Vec<u32> = args.pid.into_iter().collect();
    let pid = targets(&pids, &[], true, "sample")?[0].pid;
    let mut program = Program::open(pid).map_err(|e| {
        Failure::machine(format!(
            "can't read the memory of process {pid}: {e}; run with sudo, or as its user"
        ))
    })?;
    if let Some(phase) = &args.phase {
        find(&mut program, pid, phase)?;
    }
    let options = Options {
        period: Duration::from_nanos(1_000_000_000 / u64::from(args.rate)),
        phase: args.phase.clone(),
        watch: !args.no_watch,
        count: args.json && !args.no_watch,
        seed: args.seed,
    };
    let about = About {
        pid,
        phase: args.phase.clone(),
        period_ns: options.period.as_nanos() as u64,
        own_cpu_seconds: 0.0,
        with_demands: args.json,
        distance: None,
        seed: args.seed,
    };
    let distance = match options.count && options.phase.is_some() {
        true => Meter::of_two_cpus(),
        false => None,
    };
    let stop = stop_on_signals()?;
    let screen = Screen::new(args.quiet);
    let held = args
        .overhead
        .map(|budget| overhead::begin(args, budget, &screen));
    let mut held = held.transpose()?;
    let began = owner::start_of(pid);
    let sampler = Sampler::start(pid, program, options).map_err(|e| refused(pid, &e))?;
    if began != owner::start_of(pid) {
        return Err(Failure::usage(format!("process {pid} has just ended")));
    }
    drop_capabilities([]).map_err(Failure::machine)?;
    screen.say(&format!("sampling process {pid} (Ctrl-C ends it)"));
    let mut run = Run {
        sampler,
        distance,
        start: Instant::now(),
        shown: Duration::ZERO,
    };
    let ended = match &mut held {
        Some(held) => overhead::sample(&mut run, held, pid, &screen, &stop),
        None => {
            run.sample(args.duration, &screen, &stop);
            Ok(())
        }
    };
    let found = run.sampler.finish();
    screen.clear();
    if let (Some(held), Some(budget)) = (&held, args.overhead) {
        screen.say(&said(&held.spent(), budget));
    }
    ended.map_err(|e| refused(pid, &e))?;
    let own_cpu_seconds = own_cpu_time();
    let report = Report::of(
        found,
        About {
            own_cpu_seconds,
            distance: run.distance.map(|meter| meter.found),
            ..about
        },
    );
    publish(&report, args)
}

/// Whether the phase's function is in a file that the process has mapped.
fn find(program: &mut Program, pid: u32, phase: &str) -> Result<()> {
    let Err(near) = program.look_up(phase) else {
        return Ok(());
    };
    let near = match near.is_empty() {
        true => "`nm -C` lists the functions of a file".to_owned(),
        false => format!("did you mean {}?", near.join(", ")),
    };
    Err(Failure::usage(format!(
        "process {pid} has no function `{phase}` in the files that it has mapped; {near}"
    )))
}

fn refused(pid: u32, error: &std::io::Error) -> anyhow::Error {
    use std::io::ErrorKind::{NotFound, PermissionDenied, Unsupported};
    match error.kind() {
        Unsupported => Failure::machine(
            "can't sample memory accesses here: the sampler decodes x86-64 instructions only",
        ),
        NotFound => Failure::usage(format!("process {pid} has just ended")),
        PermissionDenied => Failure::machine(format!(
            "can't sample process {pid}: {error}; run with sudo, or as its user with `sysctl \
             kernel.perf_event_paranoid=2`"
        )),
        _ => Failure::machine(format!("can't sample process {pid}: {error}")),
    }
}

/// A program that is being sampled.
struct Run {
    sampler: Sampler,
    distance: Option<Meter>,
    start: Instant,
    /// When the progress was shown last, after the start.
    shown: Duration,
}

impl Run {
    /// Samples until the duration is over, a signal comes, or the process ends. False: there is nothing
    /// more to sample.
    fn sample(&mut self, duration: Duration, screen: &Screen, stop: &Arc<AtomicBool>) -> bool {
        let begin = Instant::now();
        while begin.elapsed() < duration {
            if stop.load(Ordering::Relaxed) {
                return false;
            }
            thread::sleep(POLL.min(duration.saturating_sub(begin.elapsed())));
            let goes_on = self.sampler.poll();
            if let Some(distance) = &mut self.distance {
                distance.look();
            }
            self.show(screen);
            if !goes_on {
                screen.notice("the process has ended");
                return false;
            }
        }
        true
    }

    fn show(&mut self, screen: &Screen) {
        let elapsed = self.start.elapsed();
        if elapsed.saturating_sub(self.shown) >= Duration::from_secs(1) {
            self.shown = elapsed;
            let (samples, accesses) = self.sampler.progress();
            let (samples, accesses) = (count(samples), count(accesses));
            let seconds = elapsed.as_secs();
            let line = format!("{seconds:>4} s  {samples} samples  {accesses} accesses");
            screen.progress(elapsed, &line);
        }
    }
}

/// CPU time of this thread, in seconds.
fn own_cpu_time() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn publish(report: &Report, args: &Sampling) -> Result<ExitCode> {
    if args.json {
        print_json(&page::Report {
            kind: "locality",
            report,
        })?;
    } else {
        print_laid_out(&text::report(report, Console::stdout().width))?;
    }
    if report.counts.samples == 0 {
        say!("tailscope: the process used no CPU time, so there is no sample");
        return Ok(ExitCode::from(1));
    }
    if let Some(phase) = report
        .phase
        .as_ref()
        .filter(|_| report.counts.in_phase == 0)
    {
        say!(
            "tailscope: no sample was in `{phase}`: it was not called, or is too short; sample longer"
        );
        return Ok(ExitCode::from(1));
    }
    Ok(ExitCode::SUCCESS)
}
