//! What is written down of the machine.

use std::fs;

use tailscope_trace::Machine;

/// This machine.
#[must_use]
pub fn describe() -> Machine {
    let system = rustix::system::uname();
    let text = |s: &std::ffi::CStr| s.to_string_lossy().into_owned();
    Machine {
        host: text(system.nodename()),
        kernel: text(system.release()),
        arch: text(system.machine()),
        cpus: std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
        model: fs::read_to_string("/proc/cpuinfo")
            .ok()
            .and_then(|info| {
                let line = info.lines().find(|line| line.starts_with("model name"))?;
                Some(line.split_once(':')?.1.trim().to_owned())
            })
            .unwrap_or_default(),
    }
}

/// The most memory that this process had resident, in bytes.
#[must_use]
pub fn max_resident_bytes() -> u64 {
    fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| {
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix("VmHWM:"))?;
            line.split_whitespace().next()?.parse::<u64>().ok()
        })
        .unwrap_or(0)
        * 1024
}
