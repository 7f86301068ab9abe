//! The process that a signal belongs to, and whether it still is that process.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// What became of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It runs what it ran.
    Lives,
    /// It has ended.
    Exited,
    /// It runs another program now: its memory is not what it was.
    Execed,
}

/// A process that owns a signal.
#[derive(Debug)]
pub struct Owner {
    /// Its id.
    pub pid: u32,
    /// Its name, as the kernel keeps it.
    pub name: String,
    handle: OwnedFd,
    program: Program,
}

/// What tells one program of a process from the next: its file, and what the kernel gave it at the
/// start, with addresses drawn at random.
#[derive(Debug, PartialEq, Eq)]
struct Program {
    file: Option<(u64, u64)>,
    start: Vec<u8>,
}

impl Program {
    fn of(pid: u32) -> Self {
        Self {
            file: fs::metadata(format!("/proc/{pid}/exe"))
                .ok()
                .map(|file| (file.dev(), file.ino())),
            start: fs::read(format!("/proc/{pid}/auxv")).unwrap_or_default(),
        }
    }
}

impl Owner {
    /// Takes hold of a process.
    ///
    /// # Errors
    /// The kernel's: `ESRCH` where there is none, `EINVAL` where the id is that of a thread.
    pub fn of(pid: u32) -> io::Result<Self> {
        let id = i32::try_from(pid)
            .ok()
            .and_then(Pid::from_raw)
            .ok_or_else(|| io::Error::from(rustix::io::Errno::SRCH))?;
        let handle = pidfd_open(id, PidfdFlags::empty())?;
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        Ok(Self {
            pid,
            name: name.trim().to_owned(),
            handle,
            program: Program::of(pid),
        })
    }

    /// Waits until it ends, for so long at most, and says what became of it.
    #[must_use]
    pub fn fate(&self, patience: Duration) -> Fate {
        let mut polled = [PollFd::new(&self.handle, PollFlags::IN)];
        let patience = Timespec::try_from(patience).ok();
        if poll(&mut polled, patience.as_ref()).is_ok_and(|n| n > 0) {
            return Fate::Exited;
        }
        let now = Program::of(self.pid);
        // What can't be read for a moment is no news.
        if !now.start.is_empty() && now != self.program {
            return Fate::Execed;
        }
        Fate::Lives
    }

    /// The CPUs on which any of its threads may run, and the one where the busiest ran last.
    #[must_use]
    pub fn cpus(&self) -> (Vec<u32>, Option<u32>) {
        let mut allowed: Vec<u32> = Vec::new();
        let mut busiest: Option<(u64, u32)> = None;
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid));
        for task in tasks.into_iter().flatten().flatten() {
            let text = |file| fs::read_to_string(task.path().join(file)).unwrap_or_default();
            let status = text("status");
            let list = status
                .lines()
                .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
            allowed.extend(list.map(parse_cpu_list).unwrap_or_default());
            if let Some(seen) = time_and_cpu(&text("stat")) {
                busiest = busiest.max(Some(seen));
            }
        }
        allowed.sort_unstable();
        allowed.dedup();
        (allowed, busiest.map(|(_, cpu)| cpu))
    }
}

/// Ticks of CPU time, and the last CPU, of a line of /proc/PID/stat.
fn time_and_cpu(stat: &str) -> Option<(u64, u32)> {
    // A name may hold anything, brackets too.
    let fields: Vec<&str> = stat[stat.rfind(')')? + 1..].split_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    Some((number(14)? + number(15)?, u32::try_from(number(39)?).ok()?))
}

/// A list of CPUs as the kernel writes it: `0-3,8`.
#[must_use]
pub fn parse_cpu_list(text: &str) -> Vec<u32> {
    const MOST: u32 = 1 << 16;
    text.trim()
        .split(',')
        .filter_map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
            (last < MOST).then_some(first..=last)
        })
        .flatten()
        .collect()
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::process::Stdio;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lists_of_cpus_are_read() {
        assert_eq!(parse_cpu_list("0-3,8\n"), [0, 1, 2, 3, 8]);
        assert!(parse_cpu_list("").is_empty());
        assert_eq!(parse_cpu_list("5,x,7-4"), [5]);
        assert!(parse_cpu_list("0-4294967295").is_empty());
    }

    proptest! {
        #[test]
        fn foreign_text_never_panics(text: String) {
            let _ = (parse_cpu_list(&text), time_and_cpu(&text));
        }
    }

    #[test]
    fn a_process_that_ends_is_noticed_at_once() {
        let mut child = std::process::Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("cat");
        // Only when it answers is the program in place that `spawn` began to load.
        let (mut said, mut heard) = (child.stdin.take(), child.stdout.take());
        said.as_mut().expect("piped").write_all(b"!").expect("cat");
        let mut answer = [0];
        let read = heard.as_mut().expect("piped").read_exact(&mut answer);
        read.expect("its answer");
        let owner = Owner::of(child.id()).expect("it lives");
        assert_eq!(owner.fate(Duration::ZERO), Fate::Lives);
        child.kill().expect("our child");
        assert_eq!(owner.fate(Duration::from_secs(20)), Fate::Exited);
        child.wait().expect("our child");
    }

    #[test]
    fn our_own_cpus_are_known() {
        let (allowed, last) = Owner::of(std::process::id()).expect("we live").cpus();
        assert!(!allowed.is_empty() && last.is_some());
    }

    #[test]
    fn nobody_owns_what_is_not_there() {
        assert!(Owner::of(u32::MAX).is_err() && Owner::of(0).is_err());
    }
}
