//! The keeper's parent, which does nothing but clear up if the keeper is killed.

use std::ffi::OsString;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustix::process::{Pid, Signal, set_child_subreaper};

use crate::error::{BorrowError, doing};
use crate::keeper::KEEPER;
use crate::state;

/// What the borrower starts the guard with.
pub const GUARD: &str = "borrow-guard";

/// Runs as the guard: has a keeper run with the same stdin, and clears up if it is killed. The
/// borrower sees the end of the socket only when that is done.
///
/// # Errors
/// If the keeper can't be started.
pub fn guard(plan: &str, command: &[OsString]) -> Result<(), BorrowError> {
    let ignored = Arc::new(AtomicBool::new(false));
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        signal_hook::flag::register(signal.as_raw(), Arc::clone(&ignored))
            .map_err(doing("handle signals"))?;
    }
    set_child_subreaper(Pid::from_raw(std::process::id() as i32))
        .map_err(|e| doing("adopt orphans (PR_SET_CHILD_SUBREAPER)")(e.into()))?;
    let keeper = Command::new("/proc/self/exe")
        .args([KEEPER, plan])
        .args(command)
        .spawn();
    let mut keeper = keeper.map_err(doing("start the process that keeps the batch"))?;
    let pid = keeper.id();
    let _ = keeper.wait();
    let left = state::entries()
        .into_iter()
        .find(|entry| entry.keeper.pid == pid && !entry.is_kept());
    if let Some(left) = left {
        left.clear();
    }
    Ok(())
}
