//! `tailscope chase`.

mod args;
mod text;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::Result;
use tailscope_kernel::drop_capabilities;
use tailscope_locality::chase::caches::Caches;
use tailscope_locality::chase::experiment::{self, ExperimentError, Options};
use tailscope_locality::chase::path::PathError;
use tailscope_locality::chase::plan::Plan;
use tailscope_locality::chase::report::Report;
use tailscope_locality::chase::size::Size;
use tailscope_locality::chase::waiting::Others;
use tailscope_locality::chase::{cost, levels, pair};
use tailscope_locality::{Mode, Pages};
use tailscope_observe::{Topology, allowed_here};

use crate::failure::Failure;
use crate::page;
use crate::screen::Screen;
use crate::streams::{print_json, print_laid_out};
use crate::subject::stop_on_signals;
pub use args::Chase;

/// Without --working-set: below, around and above each cache that a core has for itself.
const SIZES: [Size; 7] = [
    Size::L1d(0.5),
    Size::L1d(1.5),
    Size::L2(0.25),
    Size::L2(0.75),
    Size::L2(1.2),
    Size::L2(1.7),
    Size::L2(3.0),
];
const UPDATES: [f64; 3] = [0.0, 0.01, 1.0];
/// Latencies start well below every L1d, and end beyond L2. A larger L3 takes too long to walk.
const LEAST: u64 = 8 << 10;
const BEYOND_L2: u64 = 4;
const MOST: u64 = 32 << 20;

/// Measures, and prints the report.
pub fn run(args: &Chase) -> Result<ExitCode> {
    let topology = Topology::here()?;
    let cpus = chosen(&args.cpus, &topology)?;
    let caches = Caches::of(cpus[0]);
    let plans = plans(args, &caches, cpus.len())?;
    for plan in &plans {
        experiment::check_memory(plan.bytes(args.sessions)).map_err(failed)?;
    }
    let options = options(args, &cpus, &plans)?;
    drop_capabilities([]).map_err(Failure::machine)?;
    let stop = stop_on_signals()?;
    let screen = Screen::new(args.quiet);
    let start = Instant::now();
    let say = |words: &str| screen.progress(start.elapsed(), words);
    let pair_of_cpus = [cpus[0], cpus[1]];
    say("measuring the two CPUs");
    let others = Others::start(&pair_of_cpus);
    let mut report = Report {
        one_core_by_topology: topology.share_core(cpus[0], cpus[1]),
        pair: pair::measure(pair_of_cpus).map_err(Failure::machine)?,
        costs: cost::measure(pair_of_cpus).map_err(Failure::machine)?,
        others: None,
        caches,
        cpus,
        latencies: Vec::new(),
        knees: Vec::new(),
        points: Vec::new(),
        planned: plans.len(),
        sessions: args.sessions,
        seed: args.seed,
    };
    if !args.no_latencies {
        say("measuring latencies by working set");
        let most = caches.l2.map_or(MOST, |l2| (l2 * BEYOND_L2).min(MOST));
        let curve = levels::curve(report.cpus[0], LEAST, most, options.pages, &stop);
        report.add_latencies(curve.map_err(failed)?);
    }
    report.others = others.share();
    measure_plans(&mut report, &plans, &options, &stop, say)?;
    screen.clear();
    publish(&report, args)
}

/// Every plan, as far as no signal ends it: what was measured until then is kept.
fn measure_plans(
    report: &mut Report,
    plans: &[Plan],
    options: &Options,
    stop: &Arc<AtomicBool>,
    say: impl Fn(&str),
) -> Result<()> {
    for (number, plan) in plans.iter().enumerate() {
        say(&format!("working set {} of {}", number + 1, plans.len()));
        match experiment::run(plan, options, stop) {
            Ok(point) => report.points.push(point),
            Err(ExperimentError::Interrupted) if number > 0 => break,
            Err(e) => return Err(failed(e)),
        }
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    Ok(())
}

fn publish(report: &Report, args: &Chase) -> Result<ExitCode> {
    if args.json {
        print_json(&page::Report {
            kind: "chase",
            report,
        })?;
    } else {
        print_laid_out(&text::report(report))?;
    }
    let lacks_figures = |point: &experiment::Point| point.rounds == 0;
    if report.points.iter().any(lacks_figures) {
        return Err(Failure::machine(
            "a working set has no figures: other programs had the CPUs, or the caches did not fill \
             within a second; stop other programs, or use a smaller --working-set",
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// The CPUs: those that were named, or two that are different cores if there are such.
pub fn chosen(cpus: &[u32], topology: &Topology) -> Result<Vec<u32>> {
    let allowed = allowed_here()?;
    if cpus.is_empty() {
        let &[first, .., last] = allowed.as_slice() else {
            return Err(Failure::machine(
                "this needs two CPUs, and this process may use one; widen its cpuset or affinity",
            ));
        };
        let apart = allowed.iter().copied();
        let mut apart = apart.filter(|cpu| !topology.share_core(first, *cpu));
        return Ok(vec![first, apart.next().unwrap_or(last)]);
    }
    let is_repeated = |i: usize| cpus[..i].contains(&cpus[i]);
    if cpus.len() < 2 || cpus.len() > 64 || (0..cpus.len()).any(is_repeated) {
        return Err(Failure::usage(
            "--cpus needs 2 to 64 different CPUs, such as --cpus 0,1",
        ));
    }
    match cpus.iter().find(|cpu| !allowed.contains(cpu)) {
        Some(cpu) => Err(Failure::usage(format!(
            "this process can't run on CPU {cpu}: it is offline, or outside the cpuset or affinity; \
             choose from {allowed:?}",
        ))),
        None => Ok(cpus.to_vec()),
    }
}

/// What to measure: one plan for each working set with each share of writes.
fn plans(args: &Chase, caches: &Caches, cpus: usize) -> Result<Vec<Plan>> {
    if args.calibrate {
        return Ok(Vec::new());
    }
    if !args.phase.is_empty() {
        let plan = Plan::new(&args.phase, &args.shared, args.distribution);
        return Ok(vec![plan.map_err(Failure::usage)?]);
    }
    let or = |given: &[f64], default: &[f64]| match given {
        [] => default.to_vec(),
        given => given.to_vec(),
    };
    let sizes = match args.working_set.as_slice() {
        [] => &SIZES,
        sizes => sizes,
    };
    let phases = args.phases.unwrap_or(cpus);
    let mut plans = Vec::new();
    for size in sizes {
        let bytes = size.bytes(caches).ok_or_else(|| {
            Failure::usage("the sizes of the caches are unknown here; use --working-set 24KiB,…")
        })?;
        let updates = or(&args.updates, &UPDATES);
        let plan = |updates| Plan::even(phases, bytes, updates, args.distribution);
        plans.extend(updates.into_iter().map(plan));
    }
    Ok(plans)
}

fn options(args: &Chase, cpus: &[u32], plans: &[Plan]) -> Result<Options> {
    let phases = plans.first().map_or(usize::MAX, |plan| plan.phases);
    if let Some(start) = args.start.filter(|start| *start >= phases) {
        let last = phases - 1;
        return Err(Failure::usage(format!(
            "there is no phase {start} to start in; the phases are 0 to {last}"
        )));
    }
    let mut modes: Vec<Mode> = Vec::new();
    for mode in args.modes.iter().map(mode) {
        if modes.contains(&mode) {
            return Err(Failure::usage("--modes names a mode twice"));
        }
        modes.push(mode);
    }
    Ok(Options {
        cpus: cpus.to_vec(),
        sessions: args.sessions,
        owners: None,
        start: args.start,
        modes,
        duration: args.duration,
        segment: args.segment,
        tolerance: args.tolerance,
        pages: match args.small_pages {
            true => Pages::Small,
            false => Pages::Huge,
        },
        seed: args.seed,
        timed: false,
    })
}

fn mode(mode: &args::Mode) -> Mode {
    match mode {
        args::Mode::Sync => Mode::Synchronous,
        args::Mode::Yield => Mode::Yield,
        args::Mode::Delegate => Mode::Delegate,
    }
}

pub fn failed(error: ExperimentError) -> anyhow::Error {
    match error {
        ExperimentError::TooLarge { .. } | ExperimentError::Path(PathError::Plan(_)) => {
            Failure::usage(error)
        }
        _ => Failure::machine(error),
    }
}
