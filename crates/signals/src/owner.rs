//! Whose a process is.

use std::fs;

/// The real user id of a process; `None`: it is gone. The owner of its folder in `/proc` is root where it
/// may not be dumped, whoever runs it.
#[must_use]
pub fn of(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().next()?.parse().ok()
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
}
