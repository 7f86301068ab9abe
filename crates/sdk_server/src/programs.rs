//! Which programs were searched for the SDK a moment ago.
//!
//! What has the SDK is a file, and attaching to a file reaches every process that maps it. So where one
//! program is run again and again, one search stands for the processes that start within
//! [`AGAIN`]. They are searched as all others, once a second, if they still run then.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use tailscope_process::owner::{FileId, program_of};

/// After a search, processes of the same program and user need none for so long.
pub(crate) const AGAIN: Duration = Duration::from_millis(100);
/// The most programs that are remembered. With more, no process is due at once.
const MOST: usize = 4096;

/// A program and the user whose process runs it: a search also opens the user's socket.
type Program = (FileId, u32);

/// When programs were searched last.
#[derive(Debug, Default)]
pub(crate) struct Programs(HashMap<Program, Instant>);

impl Programs {
    /// Whether a process is to be searched now; then it counts as searched. False also where it is gone.
    pub(crate) fn is_due(&mut self, pid: u32, now: Instant) -> bool {
        of(pid).is_some_and(|program| self.program_is_due(program, now))
    }

    fn program_is_due(&mut self, program: Program, now: Instant) -> bool {
        let is_recent = |at: &Instant| now.saturating_duration_since(*at) < AGAIN;
        if self.0.get(&program).is_some_and(is_recent) {
            return false;
        }
        if self.0.len() >= MOST {
            self.0.retain(|_, at| is_recent(at));
        }
        let has_room = self.0.len() < MOST;
        if has_room {
            self.0.insert(program, now);
        }
        has_room
    }
}

/// Two calls that read nothing. The user is the effective one, which is the owner of the process's folder.
fn of(pid: u32) -> Option<Program> {
    let user = fs::metadata(format!("/proc/{pid}")).ok()?.uid();
    Some((program_of(pid)?, user))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_searched_once_in_a_while_however_often_it_is_run() {
        let (mut programs, now) = (Programs::default(), Instant::now());
        let us = std::process::id();
        assert!(programs.is_due(us, now));
        assert!(!programs.is_due(us, now + AGAIN / 2));
        assert!(programs.is_due(us, now + AGAIN));
        assert!(!programs.is_due(u32::MAX, now), "there is no such process");
    }

    #[test]
    fn each_users_processes_are_searched() {
        let (mut programs, now) = (Programs::default(), Instant::now());
        assert!(programs.program_is_due(((1, 1), 1), now));
        assert!(programs.program_is_due(((1, 1), 2), now));
        assert!(!programs.program_is_due(((1, 1), 2), now));
    }

    #[test]
    fn ever_new_programs_are_not_remembered_without_end() {
        let (mut programs, now) = (Programs::default(), Instant::now());
        let run = |programs: &mut Programs, from: u64, now| {
            let due = (from..from + 10_000)
                .filter(|inode| programs.program_is_due(((1, *inode), 1), now));
            due.count()
        };
        assert_eq!(run(&mut programs, 0, now), MOST);
        assert_eq!(run(&mut programs, 10_000, now), 0);
        assert_eq!(run(&mut programs, 20_000, now + AGAIN), MOST);
    }
}
