//! The cgroups that a batch command runs in: one with `cpu.idle`, one to hold it back.
//!
//! Both are made at the root of their hierarchy, where every group and thread of the machine
//! competes with them. Below another group, the weight of that group would count, and `cpu.idle`
//! would hold back the batch only against its neighbours there. Nothing else in a hierarchy is
//! changed: a controller that is not enabled stays so, because enabling it regroups other threads.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::BorrowError;
use crate::hierarchies::{Hierarchies, has_smt};

/// All groups of ours begin so.
pub(crate) const PREFIX: &str = "tailscope-borrow-";
/// How long a group may take until its threads stand still. A thread of `SCHED_IDLE` stops when it
/// next gets a CPU, and runs nothing of its program before.
const FREEZE_PATIENCE: Duration = Duration::from_millis(50);

/// How the batch is kept below the server, and how it is held back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mechanism {
    /// The version of the cgroup with `cpu.idle=1`; `None`: the batch is in none.
    pub idle_group: Option<u8>,
    /// Why there is none.
    pub idle_group_why: Option<String>,
    /// Whether this machine has hyperthreads, which this mechanism does not see.
    pub smt: bool,
    /// What holds the batch back: `cgroup.freeze`, `freezer.state` or `SIGSTOP`.
    pub held_back_by: String,
}

/// The groups of one batch command. They are removed by [`Groups::remove`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Groups {
    /// All that were made.
    pub made: Vec<PathBuf>,
    idle_version: Option<u8>,
    idle_why: Option<String>,
    hold: Hold,
}

/// What makes the batch stand still.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Hold {
    V2(PathBuf),
    V1(PathBuf),
    Signals,
}

impl Groups {
    /// Makes what this user may make here, under this name.
    pub(crate) fn make(on: &Hierarchies, name: &str) -> Self {
        let mut groups = Self {
            made: Vec::new(),
            idle_version: None,
            idle_why: None,
            hold: Hold::Signals,
        };
        let unified = on.unified.as_ref().map(|root| groups.create(root, name));
        if let Some(Ok(group)) = &unified {
            if group.join("cgroup.freeze").exists() {
                groups.hold = Hold::V2(group.clone());
            }
            if fs::write(group.join("cpu.idle"), "1").is_ok() {
                groups.idle_version = Some(2);
            }
        }
        if groups.idle_version.is_none() {
            groups.make_idle_in_v1(on, name, unified.as_ref());
        }
        if groups.hold == Hold::Signals
            && let Some(Ok(group)) = on.freezer.as_ref().map(|root| groups.create(root, name))
        {
            groups.hold = Hold::V1(group);
        }
        groups
    }

    fn make_idle_in_v1(
        &mut self,
        on: &Hierarchies,
        name: &str,
        unified: Option<&io::Result<PathBuf>>,
    ) {
        let why = match (&on.cpu, unified) {
            (Some(root), _) => match self.create(root, name) {
                Ok(group) => match fs::write(group.join("cpu.idle"), "1") {
                    Ok(()) => {
                        self.idle_version = Some(1);
                        return;
                    }
                    Err(e) => format!("can't write {}: {e}", group.join("cpu.idle").display()),
                },
                Err(e) => format!("can't make a group in {}: {e}", root.display()),
            },
            (None, None) => "no cgroup hierarchy with the CPU controller is mounted".to_owned(),
            (None, Some(Err(e))) => format!("can't make a cgroup: {e}"),
            (None, Some(Ok(_))) => {
                "the CPU controller is not enabled at the root of cgroup v2 (cgroup.subtree_control), \
                 or the kernel is older than 5.15"
                    .to_owned()
            }
        };
        self.idle_why = Some(why);
    }

    fn create(&mut self, root: &Path, name: &str) -> io::Result<PathBuf> {
        let path = root.join(name);
        fs::create_dir(&path)?;
        self.made.push(path.clone());
        Ok(path)
    }

    /// What they are, in the report's words.
    pub(crate) fn mechanism(&self) -> Mechanism {
        let held_back_by = match self.hold {
            Hold::V2(_) => "cgroup.freeze",
            Hold::V1(_) => "freezer.state",
            Hold::Signals => "SIGSTOP",
        };
        Mechanism {
            idle_group: self.idle_version,
            idle_group_why: self.idle_why.clone(),
            smt: has_smt(),
            held_back_by: held_back_by.to_owned(),
        }
    }

    /// Whether the batch is held back by signals, one to each process.
    pub(crate) fn holds_by_signals(&self) -> bool {
        self.hold == Hold::Signals
    }

    /// Puts a process into all of them; 0: the caller.
    pub(crate) fn join(&self, pid: u32) -> io::Result<()> {
        self.made
            .iter()
            .try_for_each(|group| fs::write(group.join("cgroup.procs"), pid.to_string()))
    }

    /// Whether a process is in all of them.
    pub(crate) fn has(&self, pid: u32) -> bool {
        let Ok(groups) = fs::read_to_string(format!("/proc/{pid}/cgroup")) else {
            return false;
        };
        let name = |group: &PathBuf| group.file_name().map(|name| name.to_owned());
        let inside = groups
            .lines()
            .filter(|line| {
                self.made
                    .iter()
                    .filter_map(name)
                    .any(|name| line.split('/').any(|part| *part == *name.to_string_lossy()))
            })
            .count();
        inside >= self.made.len()
    }

    /// The processes in them, and in groups that the batch made below.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let mut found = Vec::new();
        let mut folders = self.made.clone();
        while let Some(folder) = folders.pop() {
            let processes = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
            found.extend(processes.lines().filter_map(|pid| pid.parse::<u32>().ok()));
            folders.extend(children(&folder));
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Makes all threads stand still or go on. How long that took; a hold by signals is the caller's.
    pub(crate) fn hold(&self, still: bool) -> io::Result<Duration> {
        let begin = Instant::now();
        match &self.hold {
            Hold::V2(group) => {
                fs::write(group.join("cgroup.freeze"), if still { "1" } else { "0" })?;
                let events = group.join("cgroup.events");
                let frozen = || fs::read_to_string(&events).is_ok_and(|e| e.contains("frozen 1"));
                wait_for(|| !still || frozen(), begin);
            }
            Hold::V1(group) => {
                let state = group.join("freezer.state");
                fs::write(&state, if still { "FROZEN" } else { "THAWED" })?;
                let frozen = || fs::read_to_string(&state).is_ok_and(|s| s.trim() == "FROZEN");
                wait_for(|| !still || frozen(), begin);
            }
            Hold::Signals => {}
        }
        Ok(begin.elapsed())
    }

    /// The CPU time that all processes have had in them, also those that have ended; `None`: they don't
    /// count it.
    pub(crate) fn cpu_ns(&self) -> Option<u64> {
        self.made.iter().find_map(|group| {
            let stat = fs::read_to_string(group.join("cpu.stat")).ok()?;
            let usage = stat.lines().find_map(|l| l.strip_prefix("usage_usec "))?;
            usage.parse::<u64>().ok().map(|us| us * 1_000)
        })
    }

    /// Ends all processes in them at once, where the kernel does that (5.14).
    pub(crate) fn kill(&self) {
        for group in &self.made {
            let _ = fs::write(group.join("cgroup.kill"), "1");
        }
        // What is frozen in version 1 ends when it is thawed.
        let _ = self.hold(false);
    }

    /// Gives processes that were killed CPU time to end in: on a busy CPU, those of an idle group would
    /// take seconds. They run nothing of their program any more.
    pub(crate) fn hurry(&self) {
        for group in &self.made {
            let file = group.join("cpu.idle");
            if file.exists() {
                let _ = fs::write(file, "0");
            }
        }
    }

    /// Removes them; `false`: a process is in one still.
    pub(crate) fn remove(&self) -> bool {
        self.made.iter().all(|group| remove_tree(group))
    }

    /// Whether these are such as we make: nothing else is removed, whatever a file says.
    pub(crate) fn are_ours(&self) -> bool {
        self.made.iter().all(|group| {
            let name = group.file_name().unwrap_or_default().to_string_lossy();
            group.is_absolute() && name.starts_with(PREFIX) && group.join("cgroup.procs").exists()
                || !group.exists()
        })
    }
}

fn children(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let entry = entry.ok()?;
            entry.file_type().ok()?.is_dir().then(|| entry.path())
        })
        .collect()
}

fn remove_tree(folder: &Path) -> bool {
    for child in children(folder) {
        remove_tree(&child);
    }
    fs::remove_dir(folder).is_ok() || !folder.exists()
}

fn wait_for(done: impl Fn() -> bool, begin: Instant) {
    while !done() && begin.elapsed() < FREEZE_PATIENCE {
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// Refuses a batch that nothing would keep below the server.
pub(crate) fn check(
    groups: &Groups,
    on: &Hierarchies,
    ours: u32,
    server: u32,
) -> Result<(), BorrowError> {
    if groups.idle_version.is_some() || on.policy_suffices(ours, server) {
        return Ok(());
    }
    Err(BorrowError::Machine(format!(
        "can't keep the batch below the server: {}, and this process is in another cgroup than process \
         {server}, where the weights of the groups count and not SCHED_IDLE; give this user write access \
         to the root of the cgroup hierarchy, or start tailscope in the server's cgroup",
        groups
            .idle_why
            .as_deref()
            .unwrap_or("there is no idle cgroup")
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_ours_is_never_removed() {
        let of = |path: &str| Groups {
            made: vec![path.into()],
            idle_version: None,
            idle_why: None,
            hold: Hold::Signals,
        };
        assert!(!of("/etc").are_ours());
        assert!(!of("/").are_ours());
        assert!(of("/sys/fs/cgroup/tailscope-borrow-gone").are_ours());
    }
}
