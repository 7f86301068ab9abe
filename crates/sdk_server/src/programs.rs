//! Which programs were searched for the SDK a moment ago.
//!
//! What has the SDK is a file, and attaching to a file reaches every process that maps it. So where one
//! program is run again and again, one search stands for the processes that start within
//! [`AGAIN`]. They are searched as all others, once a second, if they still run then. A search that came
//! too late, because its process had ended, stands for those of [`AFTER_FAILURE`] alone.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tailscope_process::owner::FileId;

/// After a search, processes of the same program and user need none for so long.
const AGAIN: Duration = Duration::from_millis(100);
const AFTER_FAILURE: Duration = Duration::from_millis(10);
/// The most programs that are remembered. With more, no process is due at once.
const MOST: usize = 4096;

/// A program and the user whose process runs it: a search also opens the user's socket.
type Program = (FileId, u32);

/// When programs are to be searched again.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    due_at: HashMap<Program, Instant>,
    /// The programs of processes whose search was asked for.
    asked: HashMap<u32, Program>,
}

impl Programs {
    /// Whether a process of this program is to be searched now; then it counts as searched.
    pub(crate) fn is_due(&mut self, pid: u32, program: Program, now: Instant) -> bool {
        if self.due_at.get(&program).is_some_and(|due| now < *due) {
            return false;
        }
        if self.due_at.len() >= MOST {
            self.due_at.retain(|_, due| now < *due);
        }
        let has_room = self.due_at.len() < MOST && self.asked.len() < MOST;
        if has_room {
            self.due_at.insert(program, now + AGAIN);
            self.asked.insert(pid, program);
        }
        has_room
    }

    /// A process was searched, and ran this program then; `None`: it was gone. The kernel and `stat` may
    /// have different devices for it (btrfs), so the file's number alone is compared.
    pub(crate) fn searched(&mut self, pid: u32, program: Option<FileId>, now: Instant) {
        if let Some(asked) = self.asked.remove(&pid)
            && program.map(|(_, inode)| inode) != Some(asked.0.1)
            && let Some(due) = self.due_at.get_mut(&asked)
        {
            *due = (*due).min(now + AFTER_FAILURE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_searched_once_in_a_while_however_often_it_is_run() {
        let (mut programs, now) = (Programs::default(), Instant::now());
        let program = ((1, 7), 1);
        assert!(programs.is_due(1, program, now));
        programs.searched(1, Some(program.0), now);
        assert!(!programs.is_due(2, program, now + AGAIN / 2));
        assert!(programs.is_due(2, program, now + AGAIN));
    }

    #[test]
    fn a_search_that_came_too_late_is_made_again_soon() {
        let (mut programs, now) = (Programs::default(), Instant::now());
        for (pid, ran) in [(1, None), (2, Some((7, 7)))] {
            let program = ((1, u64::from(pid)), 1);
            assert!(programs.is_due(pid, program, now));
            programs.searched(pid, ran, now);
            assert!(!programs.is_due(9, program, now + AFTER_FAILURE / 2));
            assert!(programs.is_due(9, program, now + AFTER_FAILURE));
        }
    }

    #[test]
    fn each_users_processes_are_searched() {
        let (mut programs, now) = (Programs::default(), Instant::now());
        assert!(programs.is_due(1, ((1, 1), 1), now));
        assert!(programs.is_due(2, ((1, 1), 2), now));
        assert!(!programs.is_due(3, ((1, 1), 2), now));
    }

    #[test]
    fn ever_new_programs_are_not_remembered_without_end() {
        let (mut programs, now) = (Programs::default(), Instant::now());
        let run = |programs: &mut Programs, from: u64, now| {
            let due = (from..from + 10_000).filter(|inode| {
                let due = programs.is_due(*inode as u32, ((1, *inode), 1), now);
                programs.searched(*inode as u32, Some((1, *inode)), now);
                due
            });
            due.count()
        };
        assert_eq!(run(&mut programs, 0, now), MOST);
        assert_eq!(run(&mut programs, 10_000, now), 0);
        assert_eq!(run(&mut programs, 20_000, now + AGAIN), MOST);
        assert!(programs.asked.is_empty());
    }
}
