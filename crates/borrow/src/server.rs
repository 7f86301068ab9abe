//! Servers whose CPUs can't be lent.

use tailscope_kernel::scheduling::{Policy, policy_of};

use crate::error::BorrowError;
use crate::plan::Plan;
use crate::{members, state};

/// Refuses servers that can't be lent from.
pub(crate) fn check(plan: &Plan, me: u32) -> Result<(), BorrowError> {
    let server = plan.server.first().copied().unwrap_or_default();
    if members::is_below(me, server) {
        return Err(BorrowError::Usage(format!(
            "process {server} is an ancestor of this command, so the batch would be a part of it; \
             name the server itself with --for"
        )));
    }
    let other = state::entries()
        .into_iter()
        .find(|entry| entry.server == server && entry.is_kept());
    if let Some(other) = other {
        return Err(BorrowError::Usage(format!(
            "process {} already lends the CPUs of process {server}; end it with tailscope borrow stop {}, \
             or run both batch commands in one",
            other.borrower.pid, other.borrower.pid
        )));
    }
    match policy_of(server) {
        Ok(Policy::Idle) => Err(BorrowError::Machine(format!(
            "process {server} has the policy SCHED_IDLE itself, and there is none below it; give it \
             another: chrt --other -a -p 0 {server}"
        ))),
        _ => Ok(()),
    }
}
