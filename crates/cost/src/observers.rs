//! Who else observes this machine, and which CPU is least used.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

/// What the descriptors of observers are called in `/proc/PID/fd`.
const DESCRIPTORS: &[&str] = &["anon_inode:[perf_event]", "anon_inode:bpf_link"];
/// How long the CPUs are watched to see which one is idle.
const WATCHED: Duration = Duration::from_millis(100);
/// The most observers that are named.
const NAMED: usize = 5;

/// A sentence on the other processes that hold perf events or attached programs, if there are some.
/// Left out: this process and those in `except`.
#[must_use]
pub fn others(except: &[u32]) -> Option<String> {
    let own = std::process::id();
    let mut names: Vec<String> = processes()
        .filter(|pid| *pid != own && !except.contains(pid))
        .filter(|pid| observes(*pid))
        .map(|pid| format!("{} ({pid})", name_of(pid)))
        .collect();
    if names.is_empty() {
        return None;
    }
    let more = names.len().saturating_sub(NAMED);
    names.truncate(NAMED);
    if more > 0 {
        names.push(format!("{more} more"));
    }
    Some(format!(
        "other observers are active: {}; what they cost is in the figures without the hook too",
        names.join(", ")
    ))
}

/// Whether a process holds perf events or attached programs.
#[must_use]
pub fn observes(pid: u32) -> bool {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd"));
    descriptors.into_iter().flatten().flatten().any(|entry| {
        fs::read_link(entry.path())
            .is_ok_and(|link| DESCRIPTORS.iter().any(|known| link.as_os_str() == *known))
    })
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn name_of(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm"));
    name.map_or_else(|_| "gone".into(), |name| name.trim().to_owned())
}

/// The CPU that was idle for longest in a short while, of those that we may use.
#[must_use]
pub fn idlest_cpu() -> usize {
    let allowed = rustix::thread::sched_getaffinity(None).ok();
    let may = |cpu: usize| allowed.as_ref().is_none_or(|allowed| allowed.is_set(cpu));
    let before = idle_ticks();
    sleep(WATCHED);
    idle_ticks()
        .into_iter()
        .filter(|(cpu, _)| may(*cpu))
        .map(|(cpu, ticks)| {
            let earlier = before.iter().find(|(known, _)| *known == cpu);
            // The kernel may count a tick of idle time back.
            let idle = ticks.saturating_sub(earlier.map_or(ticks, |(_, ticks)| *ticks));
            (idle, cpu)
        })
        .max()
        .map_or(0, |(_, cpu)| cpu)
}

/// A sentence on CPUs of several kinds, if this machine has some: costs are of one kind, and a thread
/// that moves to another meets other costs.
#[must_use]
pub fn unlike_cpus() -> Option<String> {
    let entries = fs::read_dir("/sys/devices/system/cpu")
        .into_iter()
        .flatten()
        .flatten();
    let capacity = |entry: fs::DirEntry| {
        let read = |name: &str| fs::read_to_string(entry.path().join(name)).ok();
        read("cpu_capacity").or_else(|| read("cpufreq/cpuinfo_max_freq"))
    };
    unlike(entries.filter_map(capacity).collect())
}

fn unlike(mut found: Vec<String>) -> Option<String> {
    found.sort();
    found.dedup();
    (found.len() > 1).then(|| {
        "this machine has CPUs of several kinds, and the costs are of the one that was calibrated: a \
         program that moves between them meets other costs"
            .into()
    })
}

/// Idle ticks of each CPU since boot.
fn idle_ticks() -> Vec<(usize, u64)> {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = |line: &str| {
        // The first line is the sum of all: it has no number after `cpu`.
        let mut words = line.strip_prefix("cpu")?.split(' ');
        Some((words.next()?.parse().ok()?, words.nth(3)?.parse().ok()?))
    };
    stat.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use tailscope_counters::{SampledEvent, Sampling, Whose};

    use super::*;

    #[test]
    fn a_process_with_a_perf_event_observes() {
        let pid = std::process::id();
        let Ok(event) = SampledEvent::open(Sampling::switches(), Whose::Thread(0)) else {
            println!("skipped: perf events are refused");
            return;
        };
        assert!(observes(pid));
        let link = fs::read_link(format!("/proc/{pid}/fd/{}", event_fd(&event)));
        assert_eq!(link.expect("it is open").to_str(), Some(DESCRIPTORS[0]));
    }

    fn event_fd(event: &SampledEvent) -> i32 {
        std::os::fd::AsFd::as_fd(event).as_raw_fd()
    }

    #[test]
    fn cpus_of_several_kinds_are_named() {
        let of = |words: &[&str]| unlike(words.iter().map(|word| (*word).to_owned()).collect());
        assert_eq!(of(&["1024", "1024"]), None);
        assert!(of(&["1024", "446", "446"]).is_some_and(|why| why.contains("moves")));
    }

    #[test]
    fn there_is_an_idlest_cpu() {
        let idlest = idlest_cpu();
        assert!(idle_ticks().iter().any(|(cpu, _)| *cpu == idlest));
    }
}
