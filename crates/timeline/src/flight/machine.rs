//! What a trace has to know of the machine: names of threads, processes and interrupts.

use std::collections::BTreeMap;
use std::fs;

use crate::about::Thread;

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

/// The kernel's release.
pub(super) fn release() -> String {
    rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned()
}
