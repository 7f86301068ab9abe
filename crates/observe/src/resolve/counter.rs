//! `counter:PID:EVENT` and `counter:PID/TID:EVENT`: what a thread executes in user space, as the
//! hardware counts it.
//!
//! A CPU's counters are read in a few cycles by who runs there, but not from another CPU: that takes a
//! system call, and while the thread runs an interruption of its CPU. So this is for periods from tens
//! of microseconds on.

use std::sync::Arc;

use tailscope_counters::{Event, EventError, Pmus, ThreadCounter};

use super::{ResolveError, Wanted};
use crate::signal::{Names, Reader, Role, Signal};

pub(super) fn resolve(wanted: &Wanted, tid: u32, event: &str) -> Result<Signal, ResolveError> {
    let pid = wanted.owner.pid;
    let pmus = Pmus::here();
    let event = Event::parse(event, &pmus).map_err(|e| match e {
        // Whatever it is called: here is nothing that counts.
        _ if pmus.0.is_empty() => wanted.machine("this machine has no hardware counters"),
        EventError::NoPmu { .. } => wanted.machine(e.to_string()),
        EventError::Unknown { .. } | EventError::Term { .. } => wanted.none(e.to_string()),
    })?;
    if !std::fs::exists(format!("/proc/{pid}/task/{tid}")).unwrap_or(true) {
        return Err(wanted.none(format!("process {pid} has no thread {tid}")));
    }
    let counter = ThreadCounter::open(&event, tid)
        .and_then(|counter| counter.read().map(|_| counter))
        .map_err(|e| wanted.machine(e.to_string()))?;
    Ok(Signal {
        name: wanted.signal.clone(),
        kind: Some(Role::Counter),
        owner: Some(Arc::clone(&wanted.owner)),
        names: Names::None,
        how: "a system call for each value, which interrupts the thread's CPU".into(),
        reader: Reader::Count(Arc::new(counter)),
    })
}
