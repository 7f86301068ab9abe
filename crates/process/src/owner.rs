//! Whose a process is, since when it runs, and which program.

use rustix::fs::{AtFlags, CWD, StatxFlags, makedev, statx};

use crate::proc;

/// The real user id of a process; `None`: it is gone. The owner of its folder in `/proc` is root where it
/// may not be dumped, whoever runs it.
#[must_use]
pub fn of(pid: u32) -> Option<u32> {
    let status = proc::read(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// When a process began, in ticks since the machine did; `None`: it is gone. Numbers of processes are
/// used again, and this tells one from the next.
#[must_use]
pub fn start_of(pid: u32) -> Option<u64> {
    let stat = proc::read(format!("/proc/{pid}/stat")).ok()?;
    // Its name may hold blanks and brackets; the start is the 20th field behind it.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(19)?.parse().ok()
}

/// When a process began, in seconds since 1970, rounded; `None`: it is gone.
#[must_use]
pub fn start_unix(pid: u32) -> Option<i64> {
    let stat = proc::read("/proc/stat").ok()?;
    let booted = stat.lines().find_map(|line| line.strip_prefix("btime "))?;
    let ticks = start_of(pid)? / rustix::param::clock_ticks_per_second();
    booted
        .trim()
        .parse::<i64>()
        .ok()?
        .checked_add_unsigned(ticks)
}

/// The number that a process has for itself, in a container another one than here; `None`: it is gone.
#[must_use]
pub fn innermost_pid(pid: u32) -> Option<u32> {
    let status = proc::read(format!("/proc/{pid}/status")).ok()?;
    let ids = status.lines().find_map(|l| l.strip_prefix("NSpid:"))?;
    ids.split_whitespace().last()?.parse().ok()
}

/// Device and inode, as `stat` has them.
pub type FileId = (u64, u64);

/// The file of the program that a process runs; `None`: it is gone. As the kernel has it: the server of a
/// file system, which may be anybody's, is not asked and can't make the caller wait.
#[must_use]
pub fn program_of(pid: u32) -> Option<FileId> {
    let exe = format!("/proc/{pid}/exe");
    let about = statx(CWD, exe, AtFlags::STATX_DONT_SYNC, StatxFlags::INO).ok()?;
    let device = makedev(about.stx_dev_major, about.stx_dev_minor);
    Some((device, about.stx_ino))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_user_is_known() {
        let us = rustix::process::getuid().as_raw();
        assert_eq!(of(std::process::id()), Some(us));
        assert_eq!(of(u32::MAX), None);
    }

    #[test]
    fn our_own_program_is_the_file_that_stat_shows() {
        use std::os::unix::fs::MetadataExt;
        let about = std::env::current_exe().and_then(std::fs::metadata);
        let about = about.expect("we are one");
        let id = (about.dev(), about.ino());
        assert_eq!(program_of(std::process::id()), Some(id));
        assert_eq!(program_of(u32::MAX), None);
    }

    #[test]
    fn a_process_began_in_the_past_and_knows_its_number() {
        let us = std::process::id();
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("later");
        let began = start_unix(us).expect("we run");
        assert!(began > 0 && began <= now.as_secs() as i64 + 2);
        assert_eq!(innermost_pid(us), Some(us));
        assert_eq!(
            (start_unix(u32::MAX), innermost_pid(u32::MAX)),
            (None, None)
        );
    }

    #[test]
    fn a_process_began_once() {
        let us = start_of(std::process::id());
        assert!(us.is_some_and(|start| start > 0) && us == start_of(std::process::id()));
        assert_eq!(start_of(u32::MAX), None);
    }
}
