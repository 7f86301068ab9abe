//! What a trace has to know of the machine: names of threads, processes and interrupts.

use std::collections::BTreeMap;
use std::fs;

use rustix::time::ClockId;

use crate::about::Thread;

/// Which word behind a process's name in `/proc/PID/stat` says when it began: the field 22 of proc(5).
const STARTTIME: usize = 19;

fn comm(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim_end_matches('\n').to_owned())
}

/// The names of these threads (with their processes), as far as they live.
pub(super) fn names(
    threads: &BTreeMap<u32, u32>,
) -> (BTreeMap<u32, Thread>, BTreeMap<u32, String>) {
    let mut named = BTreeMap::new();
    let mut processes = BTreeMap::new();
    for (&tid, &process) in threads {
        if tid == 0 {
            continue; // each CPU's idle task
        }
        if let Some(name) = comm(&format!("/proc/{tid}/comm")) {
            named.insert(tid, Thread { name, process });
        }
        if let Some(name) = comm(&format!("/proc/{process}/comm")) {
            processes.insert(process, name);
        }
    }
    (named, processes)
}

/// When these processes began, in ns of `CLOCK_MONOTONIC`, to a hundredth of a second: the kernel tells it
/// in ticks of its clock, and on the clock that goes on while the machine sleeps.
pub(super) fn started(processes: &[u32]) -> BTreeMap<u32, u64> {
    let now = |clock| {
        let time = rustix::time::clock_gettime(clock);
        time.tv_sec * 1_000_000_000 + time.tv_nsec
    };
    let slept = now(ClockId::Boottime) - now(ClockId::Monotonic);
    let tick = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1) as i64;
    let of = |&process: &u32| {
        let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        // A name may hold any byte, brackets too: the last one ends it.
        let ticks = text.rsplit_once(')')?.1.split_whitespace().nth(STARTTIME)?;
        let began = ticks.parse::<i64>().ok()? * tick - slept;
        Some((process, u64::try_from(began).unwrap_or_default()))
    };
    processes.iter().filter_map(of).collect()
}

/// The devices behind interrupts.
pub(super) fn interrupts() -> BTreeMap<u32, String> {
    let text = fs::read_to_string("/proc/interrupts").unwrap_or_default();
    text.lines()
        .filter_map(|line| {
            let (number, rest) = line.split_once(':')?;
            let number = number.trim().parse().ok()?;
            let device = rest.split_whitespace().last()?;
            Some((number, device.to_owned()))
        })
        .collect()
}

/// The machine's name.
pub(super) fn host() -> String {
    let system = rustix::system::uname();
    system.nodename().to_string_lossy().into_owned()
}

/// The kernel's release.
pub(super) fn release() -> String {
    rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned()
}

#[cfg(test)]
mod tests {
    use tailscope_signals::clock::Monotonic;

    use super::*;

    #[test]
    fn a_process_began_when_it_was_started() {
        let before = Monotonic::now().0;
        let mut child = std::process::Command::new("sleep").arg("60").spawn();
        let child = child.as_mut().expect("a child");
        let after = Monotonic::now().0;
        let began = started(&[child.id(), u32::MAX]);
        child.kill().expect("killed");
        child.wait().expect("ended");
        let tick = 20_000_000;
        let began = began[&child.id()];
        assert!(
            (before - tick..after + tick).contains(&began),
            "{before} {began} {after}"
        );
    }
}
