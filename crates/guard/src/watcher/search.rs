//! The search for the replicas' processes and their JVMs.

use std::collections::HashSet;
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use tailscope_kernel::jvm_probes::Listening;
use tailscope_process::maps::{CodeFile, code_files};
use tailscope_process::owner::start_of;
use tailscope_signals::clock::Monotonic;
use tailscope_signals::hazard::Kind;

use super::{Seat, Work};
use crate::board::{Coverage, Hold};
use crate::hsperf::Collectors;
use crate::listening::Machine;

/// The first `EAGER` polls each search; after them, one poll in `THEN_EVERY` does.
const EAGER: u32 = 40;
const THEN_EVERY: u32 = 20;

impl Work {
    /// Finds the processes of each replica, watches new ones, and looks whether stopped ones are
    /// still so.
    pub(super) fn search(&mut self) {
        let machine = Machine::default();
        for mut seat in std::mem::take(&mut self.seats) {
            let before = std::mem::take(&mut seat.pids);
            let lives = |pid: &&u32| !matches!(state_of(**pid), None | Some(b'Z' | b'X'));
            let mut pids: Vec<u32> = before.iter().filter(lives).copied().collect();
            seat.tries = if pids.is_empty() { seat.tries + 1 } else { 0 };
            if is_due(seat.tries) {
                pids = seat.target.processes(&pids, &machine);
            }
            // It may end and start again between two searches.
            let are_new = pids.iter().all(|pid| !before.contains(pid)) && !pids.is_empty();
            if are_new && seat.has_lived {
                // First, so that no request gets between.
                self.board.hold(seat.slot as usize, Hold::Warms, true);
            }
            if are_new {
                self.begin_life(&seat, &pids);
            }
            seat.has_lived |= are_new;
            let coverage = self.watch(&mut seat, &before, &pids);
            let coverage = self.with_counters(&pids, coverage);
            if seat.remote.is_none() {
                self.verify_stop(seat.slot, &pids);
            }
            seat.coverage = coverage;
            let known = coverage.max(self.remote_coverage(&seat));
            self.board.set(seat.slot as usize, pids.clone(), known);
            if self.drains {
                let looks = pids.first().and_then(|pid| self.looks.get(pid));
                let looks = looks.map_or(0, |(looks, _)| *looks);
                seat.drain.of(&pids, is_due(looks));
                if looks == EAGER
                    && let (Some(why), Some(pid)) = (seat.drain.impossible(), pids.first())
                {
                    (self.say)(&format!("process {pid} is not drained: {why}"));
                }
            }
            seat.pids = pids;
            self.seats.push(seat);
        }
        let all: HashSet<u32> = self
            .seats
            .iter()
            .flat_map(|seat| seat.pids.clone())
            .collect();
        self.looks.retain(|pid, _| all.contains(pid));
        self.collectors.retain(|pid, _| all.contains(pid));
    }

    /// Finds HotSpot's counters, where no probe says when a JVM collects.
    fn with_counters(&mut self, pids: &[u32], coverage: Coverage) -> Coverage {
        if matches!(coverage, Coverage::None | Coverage::Jvm) {
            return coverage;
        }
        for pid in pids {
            let (looks, _) = *self.looks.entry(*pid).or_default();
            if self.hazards.is_none() {
                self.looks.insert(*pid, (looks + 1, false));
            }
            if is_due(looks)
                && !self.collectors.contains_key(pid)
                && let Some(collectors) = Collectors::of(*pid)
            {
                self.collectors.insert(*pid, collectors);
            }
        }
        match coverage {
            _ if !pids.iter().any(|pid| self.collectors.contains_key(pid)) => coverage,
            Coverage::Kernel => Coverage::KernelHsperf,
            _ => Coverage::PolledHsperf,
        }
    }

    /// It runs in other processes than before.
    fn begin_life(&self, seat: &Seat, pids: &[u32]) {
        let begun = pids.iter().filter_map(|pid| Some((start_of(*pid)?, *pid)));
        let (start, pid) = begun.min().unwrap_or_default();
        // Ticks since the machine's start; few processes begin in one tick.
        let life = (start as u32).wrapping_mul(0x9e37_79b1) ^ pid;
        self.board.set_life(seat.slot as usize, life.max(1));
        let word = self.board.word(seat.slot as usize);
        if self.hazards.is_none() && seat.has_lived {
            word.set_incarnation(word.incarnation() + 1);
        }
    }

    fn watch(&mut self, seat: &mut Seat, before: &[u32], pids: &[u32]) -> Coverage {
        let slot = seat.slot;
        if !pids.is_empty() && self.hazards.is_some() && seat.remote.is_some() {
            // First, as the programs write the word from here on.
            self.release(seat);
        }
        let Some(hazards) = &self.hazards else {
            if pids.iter().any(|pid| !before.contains(pid)) {
                // A new process begins without hazards.
                let word = self.board.word(slot as usize);
                word.end(Kind::Gone);
                if word.processes() == 0 {
                    word.add_process();
                }
            }
            return if pids.is_empty() {
                Coverage::None
            } else {
                Coverage::Polled
            };
        };
        for gone in before.iter().filter(|pid| !pids.contains(pid)) {
            hazards.unwatch(slot, *gone);
        }
        // Where its processes serve another replica too, all are watched for that one.
        let watched = pids.iter().find_map(|pid| hazards.slot_of(*pid));
        let watched = watched.unwrap_or(slot);
        for pid in pids {
            if hazards.slot_of(*pid).is_none() {
                hazards.watch(watched, *pid, is_held(*pid));
            }
        }
        if !pids.is_empty() {
            self.board.set_word(slot as usize, watched);
        }
        // Each is looked at, whatever the first of them is.
        let mut is_java = false;
        for pid in pids {
            is_java |= self.is_java(*pid);
        }
        match (pids.is_empty(), is_java) {
            (true, _) => Coverage::None,
            (false, true) => Coverage::Jvm,
            (false, false) => Coverage::Kernel,
        }
    }

    /// Whether a process is a JVM with probes, to which we listen. To list what it has mapped takes a
    /// ms, and it may map the library some time after its begin: so at first it is looked at each
    /// time, and then now and then.
    fn is_java(&mut self, pid: u32) -> bool {
        let (looks, known) = self.looks.get(&pid).copied().unwrap_or_default();
        let looks = looks + 1;
        let is_java = if is_due(looks) && !known || looks.is_multiple_of(THEN_EVERY) {
            self.listen(pid)
        } else {
            known
        };
        self.looks.insert(pid, (looks, is_java));
        is_java
    }

    /// Listens to the JVM of a process. True: it has one, with probes.
    fn listen(&mut self, pid: u32) -> bool {
        let Some(hazards) = &mut self.hazards else {
            return false;
        };
        let Some(library) = library_of(pid) else {
            return false;
        };
        let Ok(about) = library.metadata() else {
            return false;
        };
        let key = (about.dev(), about.ino());
        if !self.libraries.insert(key) {
            return self.listens.contains(&key);
        }
        let Ok(file) = library.open() else {
            return false;
        };
        // Through the descriptor: the name may lead elsewhere by now.
        let held = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        match hazards.listen(&held) {
            Listening::To(_) => {
                self.listens.insert(key);
            }
            Listening::NoProbes => (self.say)(&format!(
                "the JVM of process {pid} has no probes, so its collections are not seen; use a \
                 JVM built with --enable-dtrace, such as Debian's"
            )),
            Listening::Refused(why) => (self.say)(&format!(
                "can't attach to the probes in the JVM of process {pid}: {why}"
            )),
        }
        self.listens.contains(&key)
    }

    /// A stop has no expiry, so `/proc` says whether it still holds: its end may have been missed.
    fn verify_stop(&self, slot: u32, pids: &[u32]) {
        let word = self.board.word(slot as usize);
        let now = Monotonic::now();
        let is_old = now.0.saturating_sub(word.since(Kind::Stopped).0) > 1_000_000_000;
        if word.read(now).has(Kind::Stopped) && is_old && !pids.iter().any(|pid| is_held(*pid)) {
            word.end(Kind::Stopped);
        }
    }
}

/// Whether a process that was looked at so often is looked at once more.
fn is_due(looks: u32) -> bool {
    looks <= EAGER || looks.is_multiple_of(THEN_EVERY)
}

/// Whether a process is stopped, traced or frozen.
fn is_held(pid: u32) -> bool {
    matches!(state_of(pid), Some(b'T' | b't')) || is_frozen(pid)
}

fn is_frozen(pid: u32) -> bool {
    let Ok(groups) = fs::read_to_string(format!("/proc/{pid}/cgroup")) else {
        return false;
    };
    let Some(path) = groups.lines().find_map(|line| line.strip_prefix("0::/")) else {
        return false;
    };
    fs::read_to_string(format!("/sys/fs/cgroup/{path}/cgroup.events"))
        .is_ok_and(|events| events.lines().any(|line| line == "frozen 1"))
}

/// The state of a process as a letter (proc(5)); `None`: it is gone.
pub(super) fn state_of(pid: u32) -> Option<u8> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    fields.trim_start().bytes().next()
}

/// The file of a process's `libjvm.so`.
fn library_of(pid: u32) -> Option<CodeFile> {
    let files = code_files(pid).ok()?;
    files.into_iter().find(CodeFile::is_jvm)
}
