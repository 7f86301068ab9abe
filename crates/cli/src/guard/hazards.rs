//! `tailscope guard hazards`: the hazards of processes, as they happen.

use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::json;
use tailscope_guard::{Board, Change, Coverage, Key, Kind, Publisher, Subject, Target, Watcher};
use tailscope_kernel::PidNamespace;
use tailscope_kernel::hazard::SLOTS;
use tailscope_signals::clock::Monotonic;

use super::args::Hazards;
use crate::failure::Failure;
use crate::streams::{print, print_json_line, say};
use crate::subject::stop_on_signals;
use crate::units::time;

/// Between two looks at whether it is to end.
const LOOK: Duration = Duration::from_millis(50);

/// Shows them until the time is over or all processes have ended.
pub fn run(args: &Hazards) -> Result<ExitCode> {
    if let (Some(address), Some(key)) = (args.serve, &args.key) {
        return serve(args, address, key);
    }
    check(args)?;
    let stop = stop_on_signals()?;
    let subject = Subject {
        targets: args.pids.iter().copied().map(Target::Process).collect(),
        ..Subject::default()
    };
    let (sender, changes) = channel();
    let say_it = Box::new(|text: &str| say!("tailscope: {text}"));
    let (watcher, board) = Watcher::start(subject, say_it, move |_, change| {
        // The reader ends first only when the command does.
        let _ = sender.send(change);
    })
    .map_err(|e| Failure::machine(format!("can't watch processes: {e}")))?;
    let start = Monotonic::now();
    introduce(args, &watcher, &board)?;
    let until = args.duration.map(|duration| Instant::now() + duration);
    let mut gone = vec![false; args.pids.len()];
    while !stop.load(Relaxed) && until.is_none_or(|until| Instant::now() < until) {
        let left = until.map_or(LOOK, |until| {
            until.saturating_duration_since(Instant::now())
        });
        match changes.recv_timeout(left.min(LOOK)) {
            Ok(change) => {
                show(args, start, change)?;
                if change.kind == Kind::Gone {
                    gone[change.slot as usize] = !change.ends;
                }
                if gone.iter().all(|gone| *gone) {
                    break;
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    if !args.json {
        say!("{}", summary(args, &board));
    }
    Ok(ExitCode::SUCCESS)
}

/// Reports them to guards until the time is over.
fn serve(args: &Hazards, address: SocketAddr, key: &Path) -> Result<ExitCode> {
    let key = Key::read(key).map_err(Failure::usage)?;
    PidNamespace::here().map_err(Failure::machine)?;
    let stop = stop_on_signals()?;
    let say_it = || Box::new(|text: &str| say!("tailscope: {text}"));
    let (watcher, board) = Watcher::start(Subject::default(), say_it(), |_, _| {})
        .map_err(|e| Failure::machine(format!("can't watch processes: {e}")))?;
    if let Some(why) = watcher.refused() {
        say!("tailscope: {why}");
        say!("tailscope: so only what /proc and hsperfdata say is reported, some ms late");
    }
    let publisher = Publisher::bind(address, key, (watcher, board), say_it())
        .map_err(|e| Failure::machine(format!("can't report hazards at {address}: {e}")))?;
    say!("hazards are reported at {}", publisher.address());
    tailscope_agent::notify("READY=1");
    let until = args.duration.map(|duration| Instant::now() + duration);
    publisher.run(|| stop.load(Relaxed) || until.is_some_and(|until| Instant::now() >= until));
    Ok(ExitCode::SUCCESS)
}

fn check(args: &Hazards) -> Result<()> {
    PidNamespace::here().map_err(Failure::machine)?;
    if args.pids.len() > SLOTS as usize {
        return Err(Failure::usage(format!(
            "{} processes are too many; name at most {SLOTS}",
            args.pids.len()
        )));
    }
    for pid in &args.pids {
        if !Path::new(&format!("/proc/{pid}")).exists() {
            return Err(Failure::usage(format!(
                "there is no process {pid}; it may have ended"
            )));
        }
    }
    Ok(())
}

/// Says first what can't be known.
fn introduce(args: &Hazards, watcher: &Watcher, board: &Board) -> Result<()> {
    if let Some(why) = watcher.refused() {
        say!("tailscope: {why}");
        say!("tailscope: so only what /proc and hsperfdata say is shown, some ms late");
    }
    for (i, pid) in args.pids.iter().enumerate() {
        let coverage = board.coverage(i);
        if args.json {
            print_json_line(&json!({
                "kind": "watch", "pid": pid, "coverage": coverage,
            }))?;
        } else {
            say!("watching process {pid}: {}", words(coverage));
        }
    }
    Ok(())
}

pub fn words(coverage: Coverage) -> &'static str {
    match coverage {
        Coverage::None => "nothing is known of it",
        Coverage::Polled => "stopped, gone",
        Coverage::PolledHsperf => "collection (by hsperfdata), stopped, gone",
        Coverage::KernelHsperf => "collection (by hsperfdata), stopped, throttled, runqueue, gone",
        Coverage::Kernel => "stopped, throttled, runqueue, gone",
        Coverage::Jvm => "collection, safepoint, stopped, throttled, runqueue, gone",
    }
}

fn show(args: &Hazards, start: Monotonic, change: Change) -> Result<()> {
    let lasted = change.at.0.saturating_sub(change.since.0);
    if args.json {
        let mut line = json!({
            "kind": "hazard",
            "at_ns": change.at.0,
            "pid": change.pid,
            "hazard": change.kind.name(),
            "scope": change.kind.scope().name(),
            "edge": if change.ends { "end" } else { "begin" },
        });
        if change.ends {
            line["lasted_ns"] = lasted.into();
        }
        return print_json_line(&line);
    }
    let at = change.at.0.saturating_sub(start.0) as f64 / 1e9;
    let edge = if change.ends {
        format!("ends after {}", time(lasted))
    } else {
        "begins".to_owned()
    };
    print(&format!(
        "{at:>12.6} s  {:>7}  {:<10}  {edge}\n",
        change.pid,
        change.kind.name()
    ))
}

fn summary(args: &Hazards, board: &Board) -> String {
    let mut parts = Vec::new();
    for kind in Kind::ALL {
        let counted = (0..args.pids.len()).map(|i| board.counted(i, kind));
        let (count, total) = counted.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        match (count, total) {
            (0, _) => {}
            (_, 0) => parts.push(format!("{count} {}", kind.name())),
            _ => parts.push(format!("{count} {} ({})", kind.name(), time(total))),
        }
    }
    if parts.is_empty() {
        return "no hazard".into();
    }
    parts.join(", ")
}
