//! What Tailscope's own recorders add to a hook, timed with the recorders' real programs.
//!
//! Goal: ns of a switch, a request, a fault, a span, as a recorded thread pays them. Attaching a
//! recorder takes a second, so it can't be switched on and off within milliseconds. Chosen: it is
//! attached once, for one of two processes that do the same in turns. The difference is what the
//! programs do for a recorded thread; both processes hit the hooks, whose own cost is known
//! (`rawtracepoint`). Page faults alone are compared with a time before the recorder came: their hook
//! has no kind of its own.

mod process;
mod sdk;
mod tasks;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use fastrand::Rng;
use tailscope_kernel::cost::{Call, First};
use tailscope_kernel::{Config, Edge, Kernel, Probe, SocketSpans, Spot};

use crate::statistics::{Estimate, blocked};
use process::Process;
pub use process::obey;
use tasks::Task;

/// The function that is probed: none of [`super::subjects`] is.
const PROBED: (First, usize) = (First::Emulated, 7);
/// How long each recorder is timed.
const FOR: Duration = Duration::from_millis(650);
/// Fewer turns have no interval.
const FEWEST: usize = 6;

/// ns with the hits that were timed, or why there are none.
pub type Found = Result<(Estimate, u64), String>;
/// What is timed under one recorder: a kind, what is done, and from the figure of that to the kind's.
type Timed = (&'static str, Task);

/// Times them. `command`: what starts a process that calls [`obey`].
pub fn measure(command: &[OsString]) -> Vec<(&'static str, Found)> {
    let mut found = Vec::new();
    let by_socket = Config {
        sockets: Some(SocketSpans::FromReady),
        probes: true,
        ..Config::default()
    };
    let timed: &[Timed] = &[
        ("record.switch", Task::Switches),
        ("record.request", Task::Requests),
        (COLD, Task::ColdRequests),
        ("record.interrupt", Task::Datagrams),
        ("record.fault", Task::Faults),
        ("record.probe", Task::Calls),
    ];
    found.extend(under(command, &by_socket, timed));
    let followed = Config {
        sockets: Some(SocketSpans::Slices),
        names: true,
        ..Config::default()
    };
    let timed: &[Timed] = &[
        ("record.switch.followed", Task::Switches),
        ("record.request.followed", Task::Requests),
        (COLD_FOLLOWED, Task::ColdRequests),
    ];
    found.extend(under(command, &followed, timed));
    found.push(("record.sdk", sdk::measure(command)));
    combine(found)
}

/// Times some tasks under one recorder.
fn under(command: &[OsString], config: &Config, timed: &[Timed]) -> Vec<(&'static str, Found)> {
    let turns = turns(command, config, timed);
    let each = timed.iter().enumerate().map(|(place, (kind, task))| {
        let turns = turns.as_ref().map_err(Clone::clone);
        let found = turns.and_then(|turns| {
            let own = &turns[place];
            let hits = own.len() as u64 * 2 * task.times();
            let estimate = blocked(own).filter(|_| own.len() >= FEWEST);
            let few = || format!("only {} turns fitted into the time", own.len());
            Ok((estimate.ok_or_else(few)?, hits))
        });
        (*kind, found)
    });
    each.collect()
}

/// ns a time, turn by turn, of each task.
fn turns(command: &[OsString], config: &Config, timed: &[Timed]) -> Result<Vec<Vec<f64>>, String> {
    let (mut recorded, mut other) = (Process::start(command)?, Process::start(command)?);
    // Threads and connections are made before the recorder comes.
    for (_, task) in timed {
        recorded.each(*task, task.times())?;
        other.each(*task, task.times())?;
    }
    let bare_fault = bare_fault(&mut other, timed)?;
    let mut kernel = Kernel::load(config).map_err(|e| e.to_string())?;
    if config.probes {
        attach_probes(&mut kernel)?;
    }
    kernel.watch(recorded.pid()).map_err(|e| e.to_string())?;
    let mut turns = vec![Vec::new(); timed.len()];
    let mut random = Rng::with_seed(1);
    let begin = Instant::now();
    while begin.elapsed() < FOR {
        for (place, (_, task)) in timed.iter().enumerate() {
            let outer = random.bool();
            let mut ns = 0.0;
            for on in [outer, !outer, !outer, outer] {
                let process = if on { &mut recorded } else { &mut other };
                let each = process.each(*task, task.times())?;
                ns += if on { each / 2.0 } else { -each / 2.0 };
                drain(&mut kernel);
            }
            if *task == Task::Faults {
                // Less what the hook takes of the other, which hits it too.
                ns = recorded.each(*task, task.times())? - bare_fault;
            }
            turns[place].push(ns);
        }
    }
    Ok(turns)
}

/// ns of a page fault that nobody hooks.
fn bare_fault(process: &mut Process, timed: &[Timed]) -> Result<f64, String> {
    if !timed.iter().any(|(_, task)| *task == Task::Faults) {
        return Ok(0.0);
    }
    let each = (0..20).map(|_| process.each(Task::Faults, Task::Faults.times()));
    let mut ns = each.collect::<Result<Vec<f64>, String>>()?;
    ns.sort_by(f64::total_cmp);
    Ok(ns[ns.len() / 2])
}

/// A full ring would lose rows, which costs less than to write them.
fn drain(kernel: &mut Kernel) {
    let (mut ended, _) = kernel.ended();
    ended.sockets(|_| ());
    ended.slices(|_| ());
    ended.probes(|_| ());
}

fn attach_probes(kernel: &mut Kernel) -> Result<(), String> {
    let call = Call::new(PROBED.0, PROBED.1);
    let offset = call.offset().map_err(|e| e.to_string())?;
    for edge in [Edge::Return, Edge::Begin] {
        let probe = Probe {
            source: 0,
            edge,
            file: PathBuf::from("/proc/self/exe"),
            spot: Spot::Code(vec![offset]),
            id: None,
            name: None,
        };
        kernel.attach_probe(&probe).map_err(|e| e.to_string())?;
    }
    Ok(())
}

/// Figures that are part of another kind's, and no kind of their own.
const COLD: &str = "record.request, cold";
const COLD_FOLLOWED: &str = "record.request.followed, cold";

/// Softirqs in the loop of a request: one for each of its two segments.
const SOFTIRQS: f64 = 2.0;

/// The kinds from what was timed. A request is between the one with warm caches and the one with cold
/// ones, without the softirqs in it, which are counted by themselves.
fn combine(found: Vec<(&'static str, Found)>) -> Vec<(&'static str, Found)> {
    let of = |kind: &str| -> Option<Estimate> {
        let known = found.iter().find(|(name, _)| *name == kind)?;
        known.1.as_ref().ok().map(|(estimate, _)| *estimate)
    };
    let interrupt = of("record.interrupt");
    let mut kinds = Vec::new();
    for (kind, one) in &found {
        let cold = match *kind {
            COLD | COLD_FOLLOWED => continue,
            "record.request" => of(COLD),
            "record.request.followed" => of(COLD_FOLLOWED),
            _ => None,
        };
        let whole = one.clone().map(|(warm, hits)| match (cold, interrupt) {
            (Some(cold), Some(interrupt)) => (request(warm, cold, interrupt), hits),
            _ => (warm, hits),
        });
        kinds.push((*kind, whole));
    }
    kinds
}

fn request(warm: Estimate, cold: Estimate, interrupt: Estimate) -> Estimate {
    let softirqs = interrupt.scaled(-SOFTIRQS);
    let softirqs = Estimate {
        low: softirqs.high,
        high: softirqs.low,
        ..softirqs
    };
    let (warm, cold) = (warm.plus(softirqs), cold.plus(softirqs));
    Estimate {
        value: f64::midpoint(warm.value, cold.value),
        low: warm.low.min(cold.low),
        high: warm.high.max(cold.high),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_lies_between_warm_and_cold_caches_without_its_softirqs() {
        let [warm, cold, interrupt] = [500.0, 900.0, 100.0].map(Estimate::exact);
        let found = vec![
            ("record.request", Ok((warm, 1))),
            (COLD, Ok((cold, 1))),
            ("record.interrupt", Ok((interrupt, 1))),
        ];
        let kinds = combine(found);
        assert_eq!(kinds.len(), 2);
        let (request, _) = kinds[0].1.as_ref().expect("it was timed");
        assert_eq!(
            (request.low, request.value, request.high),
            (300.0, 500.0, 700.0)
        );
    }

    #[test]
    fn without_a_program_to_record_each_kind_says_why_it_is_not_there() {
        let kinds = measure(&["/no/such/program".into()]);
        assert!(kinds.len() > 5);
        for (kind, found) in kinds {
            let why = found.expect_err(kind);
            assert!(why.contains("can't start"), "{why}");
        }
    }
}
