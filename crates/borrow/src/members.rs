//! The processes of a batch command, and the threads among them that deviate.
//!
//! A process belongs to the batch if it is in its cgroups, or descends from the keeper, which adopts
//! orphans (`PR_SET_CHILD_SUBREAPER`). Whatever a process does, it stays in at least one of the two.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tailscope_kernel::scheduling::{Policy, make_idle, policy_of};

use crate::groups::Groups;
use crate::lane::{Lane, affinity_of, threads_of};
use crate::message::Usage;

/// The variable by which a batch process is found after borrower and keeper are gone.
pub(crate) const MARK: &str = "TAILSCOPE_BORROW";

/// What `/proc/PID/stat` says of a process.
#[derive(Debug, Clone, Copy, Default)]
struct Stat {
    parent: u32,
    /// Its own CPU time, in ticks, rounded down.
    own: u64,
    /// That of the children that it has waited for.
    waited_for: u64,
}

/// Every process.
fn processes() -> HashMap<u32, Stat> {
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let pid: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            // The name may hold blanks and brackets.
            let (_, fields) = stat.rsplit_once(')')?;
            let fields: Vec<&str> = fields.split_whitespace().collect();
            let parent = fields.get(1)?.parse().ok()?;
            let ticks = |from: usize| {
                let both = fields.get(from..from + 2)?.iter();
                Some(both.filter_map(|ticks| ticks.parse::<u64>().ok()).sum())
            };
            let stat = Stat {
                parent,
                own: ticks(11)?,
                waited_for: ticks(13)?,
            };
            Some((pid, stat))
        })
        .collect()
}

fn descendants(of: u32, all: &HashMap<u32, Stat>) -> BTreeSet<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for (pid, stat) in all {
        children.entry(stat.parent).or_default().push(*pid);
    }
    let mut found = BTreeSet::new();
    let mut next = vec![of];
    while let Some(parent) = next.pop() {
        for child in children.remove(&parent).unwrap_or_default() {
            found.insert(child);
            next.push(child);
        }
    }
    found
}

/// Whether a process descends from another.
pub(crate) fn is_below(pid: u32, ancestor: u32) -> bool {
    descendants(ancestor, &processes()).contains(&pid)
}

/// The processes of the batch of this keeper.
pub(crate) fn of(keeper: u32, groups: &Groups) -> BTreeSet<u32> {
    let mut found = descendants(keeper, &processes());
    found.extend(groups.processes());
    found.remove(&keeper);
    found
}

/// The CPU time of descendants in ns, where no cgroup counts it. That of ended threads and processes is
/// right to a tick each.
pub(crate) fn cpu_ns(keeper: u32) -> u64 {
    let ns_per_tick = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
    let all = processes();
    let waited_for = |pid: &u32| all.get(pid).map_or(0, |stat| stat.waited_for);
    let members = descendants(keeper, &all);
    let ended: u64 = members.iter().chain([&keeper]).map(waited_for).sum();
    let own = members.iter().map(|pid| {
        let ticks = all.get(pid).map_or(0, |stat| stat.own);
        // Ticks are rounded down, and the scheduler's own count lacks threads that have ended.
        run_ns(*pid).max(ticks * ns_per_tick)
    });
    own.sum::<u64>() + ended * ns_per_tick
}

/// The scheduler's count of the CPU time that the threads of a process have had.
fn run_ns(pid: u32) -> u64 {
    let of_thread = |tid: u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).ok()?;
        stat.split(' ').next()?.parse::<u64>().ok()
    };
    threads_of(pid).into_iter().filter_map(of_thread).sum()
}

/// Sends a signal to a process if it still is what it was taken for: numbers are used again.
pub(crate) fn signal(pid: u32, signal: Signal, still: impl Fn(u32) -> bool) {
    let Some(id) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return;
    };
    match pidfd_open(id, PidfdFlags::empty()) {
        Ok(handle) if still(pid) => {
            let _ = pidfd_send_signal(handle, signal);
        }
        _ => {}
    }
}

/// Stops all processes of a batch by signals, or lets them go on.
pub(crate) fn hold(keeper: u32, groups: &Groups, still: bool) {
    let how = if still { Signal::STOP } else { Signal::CONT };
    let mut done = BTreeSet::new();
    // One that has just been forked is not in the first look.
    for _ in 0..10 {
        let new: Vec<u32> = of(keeper, groups)
            .into_iter()
            .filter(|pid| !done.contains(pid))
            .collect();
        if new.is_empty() {
            break;
        }
        for pid in new {
            signal(pid, how, |pid| of(keeper, groups).contains(&pid));
            done.insert(pid);
        }
    }
}

/// Whether a process has the mark of this batch in its environment.
pub(crate) fn has_mark(pid: u32, mark: &str) -> bool {
    let wanted = format!("{MARK}={mark}");
    fs::read(format!("/proc/{pid}/environ")).is_ok_and(|text| {
        text.split(|byte| *byte == 0)
            .any(|v| v == wanted.as_bytes())
    })
}

/// All processes with the mark of this batch.
pub(crate) fn marked(mark: &str) -> Vec<u32> {
    let all = processes().into_keys();
    all.filter(|pid| has_mark(*pid, mark)).collect()
}

/// Looks through the batch's threads for those that set their own policy or affinity, or left.
#[derive(Debug)]
pub(crate) struct Watch {
    keeper: u32,
    due: Instant,
    looks: u32,
}

/// How often the batch is looked through.
const EVERY: Duration = Duration::from_millis(200);
/// One look in this number goes through all processes; the others read the cgroups.
const THOROUGH: u32 = 5;
/// A look takes at most this fraction (1/N) of the keeper's time.
const EFFORT: u32 = 20;

impl Watch {
    pub(crate) fn new(keeper: u32) -> Self {
        Self {
            keeper,
            due: Instant::now(),
            looks: 0,
        }
    }

    /// When the next look is due.
    pub(crate) fn due(&self) -> Instant {
        self.due
    }

    /// Looks, if it is due, and puts back what deviates. The batch's processes.
    pub(crate) fn look(&mut self, groups: &Groups, lane: &Lane, usage: &mut Usage) {
        let begin = Instant::now();
        if begin < self.due {
            return;
        }
        self.looks = self.looks.wrapping_add(1);
        let thorough = groups.made.is_empty() || self.looks % THOROUGH == 1;
        let members = if thorough {
            of(self.keeper, groups)
        } else {
            groups.processes().into_iter().collect()
        };
        usage.processes = members.len() as u64;
        usage.threads = 0;
        for pid in members {
            if !groups.made.is_empty() && !groups.has(pid) {
                match groups.join(pid) {
                    Ok(()) => usage.groups_put_back += 1,
                    Err(_) => usage.not_put_back += u64::from(!threads_of(pid).is_empty()),
                }
            }
            for tid in threads_of(pid) {
                usage.threads += 1;
                put_back(tid, lane, usage);
            }
        }
        self.due = begin + EVERY.max(begin.elapsed() * EFFORT);
    }
}

/// Puts a thread back into `SCHED_IDLE` and onto the lent CPUs.
fn put_back(tid: u32, lane: &Lane, usage: &mut Usage) {
    if policy_of(tid).is_ok_and(|policy| policy != Policy::Idle) {
        match make_idle(tid) {
            Ok(()) => usage.policies_put_back += 1,
            Err(e) if e.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => {}
            Err(_) => usage.not_put_back += 1,
        }
    }
    if affinity_of(tid).is_ok_and(|set| set != lane.set()) {
        match lane.pin(tid) {
            Ok(()) => usage.affinities_put_back += 1,
            Err(Errno::SRCH) => {}
            Err(_) => usage.not_put_back += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descendants_are_found_at_any_depth() {
        let below = |parent| Stat {
            parent,
            ..Stat::default()
        };
        let tree = HashMap::from([
            (2, below(1)),
            (3, below(2)),
            (4, below(3)),
            (5, below(1)),
            // Numbers that lead in a circle, as a scan of a changing table can show them.
            (8, below(9)),
            (9, below(8)),
        ]);
        assert_eq!(descendants(2, &tree), BTreeSet::from([3, 4]));
        assert_eq!(descendants(8, &tree), BTreeSet::from([8, 9]));
        assert!(descendants(7, &tree).is_empty());
    }

    #[test]
    fn a_process_is_known_by_its_mark() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .env(MARK, "test-7")
            .spawn()
            .expect("sleep is there");
        // Its environment is the old one until it runs its program.
        let found = (0..1000).any(|_| {
            std::thread::sleep(Duration::from_millis(5));
            marked("test-7") == [child.id()]
        });
        assert!(!has_mark(child.id(), "test-70"));
        signal(child.id(), Signal::KILL, |_| false);
        assert!(child.try_wait().expect("ours").is_none());
        signal(child.id(), Signal::KILL, |pid| has_mark(pid, "test-7"));
        child.wait().expect("ours");
        assert!(found);
    }
}
