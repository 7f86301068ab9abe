//! What Tailscope's own recorders add to a hook, timed with the recorders' real programs.
//!
//! Goal: ns of a switch, a request, a fault, a span, as a recorded thread pays them. Attaching a
//! recorder takes a second, so it can't be switched on and off within milliseconds. Chosen: it is
//! attached once, for one of two processes that do the same in turns. The difference is what the
//! programs do for a recorded thread; both processes hit the hooks, whose own cost is known
//! (`rawtracepoint`). Two processes that do the same differ by some per cent, as their memory lies
//! elsewhere: so half of the time the other one is recorded, and the mean of both halves counts. Page
//! faults alone are compared with a time before the recorder came: their hook has no kind of its own.

mod events;
mod process;
mod sdk;
mod tasks;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fastrand::Rng;
use tailscope_kernel::cost::{Call, First};
use tailscope_kernel::{Config, Edge, Kernel, Probe, SocketSpans, Spot};

use super::Found;
use crate::statistics::{Estimate, blocked};
use process::Process;
pub use process::obey;
use tasks::Task;

/// The function that is probed: none of [`super::subjects`] is.
const PROBED: (First, usize) = (First::Emulated, 7);
/// How long each recorder is timed.
const FOR: Duration = Duration::from_millis(550);
/// Fewer turns have no interval.
const FEWEST: usize = 6;

/// What a task is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Against {
    /// The process that is not recorded: what is done for a recorded one remains.
    Other,
    /// The time before the recorder came: the hooks' own cost is in the figure.
    Before,
    /// That time, and the process that is not recorded does it: the hooks' own cost alone.
    HooksOnly,
}

/// What is timed under one recorder.
struct Timed {
    kind: &'static str,
    task: Task,
    against: Against,
}

const fn timed(kind: &'static str, task: Task, against: Against) -> Timed {
    Timed {
        kind,
        task,
        against,
    }
}

const BY_SOCKET: &[Timed] = &[
    timed("record.switch", Task::Switches, Against::Other),
    timed("record.switch, cold", Task::ColdSwitches, Against::Other),
    timed("record.request", Task::Requests, Against::Other),
    timed("record.request, cold", Task::ColdRequests, Against::Other),
    timed("record.interrupt", Task::Datagrams, Against::Other),
    timed(
        "record.interrupt, cold",
        Task::ColdDatagrams,
        Against::Other,
    ),
    timed("record.fault", Task::Faults, Against::Before),
    timed("record.probe", Task::Calls, Against::Other),
    timed(HOOKS, Task::Requests, Against::HooksOnly),
    timed(COLD_HOOKS, Task::ColdRequests, Against::HooksOnly),
];
const FOLLOWED: &[Timed] = &[
    timed("record.switch.followed", Task::Switches, Against::Other),
    timed(
        "record.switch.followed, cold",
        Task::ColdSwitches,
        Against::Other,
    ),
    timed("record.request.followed", Task::Requests, Against::Other),
    timed(
        "record.request.followed, cold",
        Task::ColdRequests,
        Against::Other,
    ),
];
/// The hooks of a request, and how many are hit in the loop: two sends, two receives, two sockets that
/// become ready, and the begins and ends of two softirqs.
const HOOKS: &str = "record.hook";
const COLD_HOOKS: &str = "record.hook, cold";
const HOOKS_HIT: f64 = 10.0;
/// Softirqs in the loop of a request: one for each of its two segments.
const SOFTIRQS: f64 = 2.0;
/// Phases before the recorder comes.
const BARE: usize = 40;

/// Times them. `command`: what starts a process that calls [`obey`].
pub fn measure(command: &[OsString]) -> Vec<(&'static str, Found)> {
    let by_socket = Config {
        sockets: Some(SocketSpans::FromReady),
        probes: true,
        ..Config::default()
    };
    let followed = Config {
        sockets: Some(SocketSpans::Slices),
        names: true,
        ..Config::default()
    };
    let mut leaving = Vec::new();
    let mut found = under(command, by_socket, BY_SOCKET, &mut leaving);
    found.extend(under(command, followed, FOLLOWED, &mut leaving));
    let mut kinds = combine(&found);
    kinds.push(("record.sdk", sdk::measure(command)));
    kinds.push(("timeline.event", events::measure(command)));
    for recorder in leaving {
        // Its figures were received above. A thread that failed has detached its programs already.
        let _ = recorder.join();
    }
    kinds
}

/// Times some tasks under one recorder. Detaching it takes half a second, which goes on in `leaving`: the
/// processes that the next one records are others.
fn under(
    command: &[OsString],
    config: Config,
    timed: &'static [Timed],
    leaving: &mut Vec<JoinHandle<()>>,
) -> Vec<(&'static str, Found)> {
    let (say, hear) = mpsc::channel();
    let command = command.to_vec();
    leaving.push(thread::spawn(move || {
        let mut kernel = None;
        let turns = all_turns(&command, &config, timed, &mut kernel);
        let _ = say.send(turns); // who asked is there until it has come
        drop(kernel);
    }));
    let all = hear
        .recv()
        .unwrap_or_else(|_| Err("the recorder failed".to_owned()));
    let each = timed.iter().enumerate().map(|(place, one)| {
        let found = match &all {
            Ok(turns) => of_turns(&turns[place], one),
            Err(why) => Err(why.clone()),
        };
        (one.kind, found)
    });
    each.collect()
}

/// ns a time of one task: in each turn, and in each phase before the recorder came.
#[derive(Default)]
struct Turns {
    with: Vec<f64>,
    before: Vec<f64>,
}

fn of_turns(turns: &Turns, of: &Timed) -> Found {
    let count = turns.with.len();
    let hits = count as u64 * of.task.times();
    let estimate = |figures: &[f64]| {
        let enough = blocked(figures).filter(|_| figures.len() >= FEWEST);
        enough.ok_or_else(|| format!("only {} turns fitted into the time", figures.len()))
    };
    let with = estimate(&turns.with)?;
    Ok(match of.against {
        Against::Other => (with, hits),
        _ => (with.plus(negative(estimate(&turns.before)?)), hits),
    })
}

fn all_turns(
    command: &[OsString],
    config: &Config,
    timed: &[Timed],
    loaded: &mut Option<Kernel>,
) -> Result<Vec<Turns>, String> {
    let mut pair = [Process::start(command)?, Process::start(command)?];
    let mut before = Vec::new();
    for process in &mut pair {
        before.push(bare(process, timed)?);
    }
    let kernel = loaded.insert(Kernel::load(config).map_err(|e| e.to_string())?);
    if config.probes {
        attach_probes(kernel)?;
    }
    let mut halves = Vec::new();
    for _ in 0..2 {
        let [recorded, other] = &mut pair;
        kernel.watch(recorded.pid()).map_err(|e| e.to_string())?;
        halves.push(half(kernel, recorded, other, timed)?);
        kernel.unwatch(recorded.pid());
        // A socket keeps what the programs noted at it.
        recorded.each(Task::Reconnect, 1)?;
        pair.reverse();
    }
    let of = |place: usize, all: &[Vec<Vec<f64>>]| mean(&all[0][place], &all[1][place]);
    let turns = (0..timed.len()).map(|place| Turns {
        with: of(place, &halves),
        before: of(place, &before),
    });
    Ok(turns.collect())
}

/// The means of two measurements' figures, in their order.
fn mean(one: &[f64], other: &[f64]) -> Vec<f64> {
    let pairs = one.iter().zip(other);
    pairs.map(|(a, b)| f64::midpoint(*a, *b)).collect()
}

/// What each task takes before the recorder comes. Threads and connections are made then.
fn bare(process: &mut Process, timed: &[Timed]) -> Result<Vec<Vec<f64>>, String> {
    let each = |one: &Timed| {
        let (task, times) = (one.task, one.task.times());
        process.each(task, times)?;
        let phases = match one.against {
            Against::Other => 1,
            _ => BARE / 2,
        };
        (0..phases).map(|_| process.each(task, times)).collect()
    };
    timed.iter().map(each).collect()
}

/// Half of the turns: what each task takes where this process is recorded and the other one is not.
fn half(
    kernel: &mut Kernel,
    recorded: &mut Process,
    other: &mut Process,
    timed: &[Timed],
) -> Result<Vec<Vec<f64>>, String> {
    let mut turns = vec![Vec::new(); timed.len()];
    for one in timed {
        // The first time pays for what is made at first use.
        recorded.each(one.task, one.task.times())?;
        other.each(one.task, one.task.times())?;
    }
    drain(kernel);
    let mut random = Rng::with_seed(1);
    let begin = Instant::now();
    while begin.elapsed() < FOR / 2 {
        for (one, turns) in timed.iter().zip(&mut turns) {
            let (task, times) = (one.task, one.task.times());
            let outer = random.bool();
            let ns = match one.against {
                Against::Before => recorded.each(task, times)?,
                Against::HooksOnly => other.each(task, times)?,
                Against::Other => {
                    let mut ns = 0.0;
                    for on in [outer, !outer, !outer, outer] {
                        let process = if on { &mut *recorded } else { &mut *other };
                        let each = process.each(task, times)? / 2.0;
                        ns += if on { each } else { -each };
                        drain(kernel);
                    }
                    ns
                }
            };
            drain(kernel);
            turns.push(ns);
        }
    }
    Ok(turns)
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

/// The kinds from what was timed: each lies between warm and cold caches. Of a request the softirqs in
/// it are taken, since they are counted by themselves.
fn combine(found: &[(&'static str, Found)]) -> Vec<(&'static str, Found)> {
    let of = |kind: &str| {
        found
            .iter()
            .find(|(name, _)| *name == kind)
            .map(|(_, f)| f.clone())
    };
    let figure = |kind: &str| of(kind).and_then(Result::ok).map(|(estimate, _)| estimate);
    let kinds = found.iter().filter(|(kind, _)| !kind.ends_with(", cold"));
    let each = kinds.map(|(kind, warm)| {
        let Some(cold) = of(&format!("{kind}, cold")) else {
            return (*kind, warm.clone());
        };
        let softirqs = |of: &str| match kind.starts_with("record.request") {
            true => figure(of).map(|softirq| negative(softirq.scaled(SOFTIRQS))),
            false => Some(Estimate::exact(0.0)),
        };
        let parts = softirqs("record.interrupt").zip(softirqs("record.interrupt, cold"));
        let both = warm.clone().and_then(|(warm, hits)| {
            let (cold, more) = cold?;
            let (of_warm, of_cold) = parts.ok_or("the softirqs in it could not be timed")?;
            let share = if *kind == HOOKS { 1.0 / HOOKS_HIT } else { 1.0 };
            let (warm, cold) = (warm.plus(of_warm), cold.plus(of_cold));
            Ok((between(warm, cold).scaled(share), hits + more))
        });
        (*kind, both)
    });
    each.collect()
}

fn negative(of: Estimate) -> Estimate {
    Estimate {
        value: -of.value,
        low: -of.high,
        high: -of.low,
    }
}

/// Between warm and cold caches: a program is nearer to the latter, since it has work of its own from one
/// hit to the next.
fn between(warm: Estimate, cold: Estimate) -> Estimate {
    Estimate {
        value: (warm.value + 3.0 * cold.value) / 4.0,
        low: warm.low.min(cold.low),
        high: warm.high.max(cold.high),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_lies_between_warm_and_cold_caches_without_its_softirqs() {
        let figures = [
            ("record.request", 500.0),
            ("record.request, cold", 900.0),
            ("record.interrupt", 100.0),
            ("record.interrupt, cold", 150.0),
        ];
        let found = figures.map(|(kind, ns)| (kind, Ok((Estimate::exact(ns), 1))));
        let kinds = combine(&found);
        assert_eq!(kinds.len(), 2);
        let (request, hits) = kinds[0].1.as_ref().expect("it was timed");
        assert_eq!(
            (request.low, request.value, request.high),
            (300.0, 525.0, 600.0)
        );
        assert_eq!(*hits, 2);
        let (interrupt, _) = kinds[1].1.as_ref().expect("it was timed");
        assert_eq!((interrupt.low, interrupt.high), (100.0, 150.0));
    }

    #[test]
    fn what_has_no_cold_half_is_not_taken_for_whole() {
        let warm = Ok((Estimate::exact(500.0), 1));
        let found = [
            ("record.switch", warm),
            ("record.switch, cold", Err("busy".to_owned())),
        ];
        assert_eq!(combine(&found), [("record.switch", Err("busy".to_owned()))]);
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
