//! Whose a process is, and since when it runs.

use std::fs;

/// The real user id of a process; `None`: it is gone. The owner of its folder in `/proc` is root where it
/// may not be dumped, whoever runs it.
#[must_use]
pub fn of(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// When a process began, in ticks since the machine did; `None`: it is gone. Numbers of processes are
/// used again, and this tells one from the next.
#[must_use]
pub fn start_of(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Its name may hold blanks and brackets; the start is the 20th field behind it.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(19)?.parse().ok()
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
    fn a_process_began_once() {
        let us = start_of(std::process::id());
        assert!(us.is_some_and(|start| start > 0) && us == start_of(std::process::id()));
        assert_eq!(start_of(u32::MAX), None);
    }
}
