//! The program that is to be observed, as `/proc` shows it. Reading it costs the program nothing.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use tailscope_signals::clock::cpu_ns_of;

/// A process and what it has used.
#[derive(Debug, Clone)]
pub struct Target {
    /// The processes, by their numbers: the one that was named, and its descendants.
    pub pids: Vec<u32>,
}

/// Totals of one thread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Thread {
    cpu_ns: u64,
    waits: u64,
    switches: u64,
}

/// Totals at one moment.
#[derive(Debug, Clone, Default)]
pub struct Reading {
    threads: HashMap<u32, Thread>,
    /// Page faults of each process.
    faults: HashMap<u32, u64>,
}

/// What was used between two readings.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Used {
    /// CPU time of all threads (ns).
    pub cpu_ns: u64,
    /// Times that a thread left its CPU.
    pub switches: u64,
    /// Threads that ran.
    pub running: usize,
    /// Times that a thread waited.
    pub waits: u64,
    /// Threads that have ended: what they used is not in here.
    pub ended: usize,
    /// Page faults.
    pub faults: u64,
}

impl Target {
    /// Totals now. Threads that are gone are left out.
    #[must_use]
    pub fn read(&self) -> Reading {
        let (mut threads, mut faults) = (HashMap::new(), HashMap::new());
        for pid in &self.pids {
            faults.extend(faults_of(*pid).map(|count| (*pid, count)));
            let tasks = fs::read_dir(format!("/proc/{pid}/task"));
            for task in tasks.into_iter().flatten().flatten() {
                let number = task.file_name().to_str().and_then(|name| name.parse().ok());
                if let Some((tid, thread)) = number.zip(Thread::read(&task.path())) {
                    threads.insert(tid, thread);
                }
            }
        }
        Reading { threads, faults }
    }

    /// Whether one of them is still there.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.pids.iter().any(|pid| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            // After the name, which may hold anything, comes the state.
            let state = stat.rsplit_once(") ").map(|(_, rest)| rest.chars().next());
            !matches!(state, None | Some(None | Some('Z' | 'X')))
        })
    }

    /// CPU time (ns) of all since they began, with that of their threads and children that have ended.
    /// A child's time is counted once: while it lives as its own, then as its parent's.
    #[must_use]
    pub fn cpu_ns(&self) -> u64 {
        let of = |pid: &u32| cpu_ns_of(*pid).unwrap_or(0) + children_ns(*pid).unwrap_or(0);
        self.pids.iter().map(of).sum()
    }

    /// Read and write calls of all, and their bytes, since they began. `None`: the kernel shows
    /// those of none of them.
    ///
    /// One that is gone is left out: with its end, its parent's totals took its own over
    /// (`wait_task_zombie`, kernel/exit.c).
    #[must_use]
    pub fn io(&self) -> Option<(u64, u64)> {
        let all = self.pids.iter().filter_map(|pid| io_of(*pid));
        all.reduce(|sums, one| (sums.0 + one.0, sums.1 + one.1))
    }
}

/// The number in a line of a file in `/proc` that begins with this name.
fn number_in(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim_start_matches(':').trim().parse().ok()
}

/// CPU time of a process's children that have ended and that it has waited for, in ns. `None`: it is gone.
fn children_ns(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // After the name: the state is the third field, the children's times are the 16th and the 17th.
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    let ticks = field(16)? + field(17)?;
    Some(ticks * (1_000_000_000 / rustix::param::clock_ticks_per_second()))
}

/// Page faults of a process's threads since it began, minor and major. `None`: it is gone.
fn faults_of(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // After the name: the state is the third field, minor faults the tenth, major ones the twelfth.
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    Some(field(10)? + field(12)?)
}

/// Read and write calls of one process, and their bytes. `None`: it is gone, or not ours to read.
fn io_of(pid: u32) -> Option<(u64, u64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    let value = |name: &str| number_in(&text, name);
    Some((
        value("syscr")? + value("syscw")?,
        value("rchar")? + value("wchar")?,
    ))
}

impl Thread {
    fn read(task: &Path) -> Option<Self> {
        let schedstat = fs::read_to_string(task.join("schedstat")).ok()?;
        let status = fs::read_to_string(task.join("status")).ok()?;
        let switches = |name: &str| number_in(&status, name);
        let waits = switches("voluntary_ctxt_switches")?;
        Some(Self {
            cpu_ns: schedstat.split(' ').next()?.parse().ok()?,
            waits,
            switches: waits + switches("nonvoluntary_ctxt_switches")?,
        })
    }
}

impl Reading {
    /// What was used since an earlier reading. A thread that is new counts from its start.
    #[must_use]
    pub fn since(&self, before: &Self) -> Used {
        let mut used = Used::default();
        for (tid, now) in &self.threads {
            let then = before.threads.get(tid).copied().unwrap_or_default();
            let cpu_ns = now.cpu_ns.saturating_sub(then.cpu_ns);
            used.cpu_ns += cpu_ns;
            used.switches += now.switches.saturating_sub(then.switches);
            used.waits += now.waits.saturating_sub(then.waits);
            used.running += usize::from(cpu_ns > 0);
        }
        let gone = |tid: &&u32| !self.threads.contains_key(tid);
        used.ended = before.threads.keys().filter(gone).count();
        for (pid, now) in &self.faults {
            let then = before.faults.get(pid).copied().unwrap_or_default();
            used.faults += now.saturating_sub(then);
        }
        used
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_process_uses_cpu_time() {
        let own = Target {
            pids: vec![std::process::id()],
        };
        let before = own.read();
        let mut used = Used::default();
        while used.cpu_ns == 0 || used.switches == 0 {
            std::thread::yield_now();
            std::thread::sleep(std::time::Duration::from_micros(10));
            drop(vec![1u8; 40 << 20]); // fresh pages
            used = own.read().since(&before);
        }
        assert!(used.faults > 0);
        assert!(own.is_alive() && used.running > 0);
        assert!(!Target { pids: vec![0] }.is_alive());
    }

    #[test]
    fn the_time_of_threads_and_children_that_have_ended_counts() {
        let own = Target {
            pids: vec![std::process::id()],
        };
        let busy = || (0..2_000_000u64).fold(0, |sum, x| std::hint::black_box(sum ^ x));
        let before = own.cpu_ns();
        while own.cpu_ns() < before + 20_000_000 {
            std::thread::spawn(busy).join().expect("it ends");
        }
        let child = std::process::Command::new("sh")
            .args(["-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"])
            .status();
        assert!(child.expect("sh").success());
        let (children, whole) = (children_ns(std::process::id()), own.cpu_ns());
        assert!(
            children.is_some_and(|ns| ns > 0 && ns < whole),
            "{children:?}"
        );
        assert_eq!(Target { pids: vec![0] }.cpu_ns(), 0);
    }

    #[test]
    fn what_a_child_read_is_in_its_parents_totals_when_it_is_gone() {
        let own = std::process::id();
        let mut child = std::process::Command::new("head")
            .args(["-c", "1000000", "/dev/zero"])
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("head");
        let tree = Target {
            pids: vec![own, child.id()],
        };
        let before = Target { pids: vec![own] }.io().expect("our own totals");
        child.wait().expect("its end");
        let after = tree.io().expect("our own totals");
        assert!(after.0 > before.0 && after.1 >= before.1 + 1_000_000);
        let with_one_that_is_gone = Target { pids: vec![0, own] };
        assert!(with_one_that_is_gone.io().is_some());
        assert_eq!(Target { pids: vec![0] }.io(), None);
    }
}
