//! What could not be metered or written: every place that can lose counts what it lost.

use std::ffi::OsStr;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd};

use libbpf_rs::libbpf_sys::{bpf_obj_get_info_by_fd, bpf_prog_info};
use libbpf_rs::{MapCore, MapFlags, Object};

use crate::shared::{self, Plain};

/// Losses since the programs were loaded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Losses {
    /// Rows for which the ring had no room.
    pub rows: u64,
    /// Threads without a meter: no free slot, or no memory.
    pub threads: u64,
    /// Interrupts that nested too deep to follow.
    pub nesting: u64,
    /// Process events that found the ring full.
    pub events: u64,
    /// Sockets without state: no memory.
    pub sockets: u64,
    /// Switches to a watched thread that were not seen. Its wait was worked out from its run time.
    pub switches: u64,
    /// Children that could not be followed.
    pub processes: u64,
    /// Spans from probes whose end never came: left by a longjmp, an exception, an error.
    pub abandoned: u64,
    /// Begins that found too many spans from probes open on their thread.
    pub depth: u64,
    /// Spans whose name should come from an argument and could not.
    pub names: u64,
    /// Episodes whose blamed thread's name found no room in the table.
    pub blamed: u64,
    /// Entries of slices for which the ring had no room.
    pub slices: u64,
    /// Stacks: the ring had no room, or too many threads blocked, or too often.
    pub stacks: u64,
    /// Runs of a program that the kernel skipped, because one was running on that CPU already.
    pub recursion: u64,
}

/// Requests of sockets that are no rows, or whose rows say too little, since the programs were
/// loaded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Uncovered {
    /// They came together with another, and count as one with it; an estimate.
    pub pipelined: u64,
    /// Receives on connections of HTTP/2, on which requests overlap.
    pub multiplexed: u64,
    /// The connection ended before an answer.
    pub unanswered: u64,
    /// The answer went on after its row was written.
    pub continued: u64,
    /// Rows of connections with TLS, whose handshakes count as requests.
    pub encrypted: u64,
}

pub(crate) fn uncovered(object: &Object) -> Uncovered {
    let counted = object
        .maps()
        .find(|map| map.name() == ".bss.uncovered")
        .and_then(|map| map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).ok()?)
        .and_then(|bytes| shared::uncovered::from_bytes(&bytes))
        .unwrap_or_default();
    Uncovered {
        pipelined: counted.pipelined,
        multiplexed: counted.multiplexed,
        encrypted: counted.encrypted,
        unanswered: counted.unanswered,
        continued: counted.continued,
    }
}

/// What the programs count themselves.
pub(crate) fn counted(object: &Object) -> shared::lost {
    object
        .maps()
        .find(|map| map.name() == ".bss.lost")
        .and_then(|map| {
            map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY)
                .ok()
                .flatten()
        })
        .and_then(|bytes| shared::lost::from_bytes(&bytes))
        .unwrap_or_default()
}

/// Whether another program runs where this one is skipped: see `socket_state.h`.
fn is_replaced(program: &OsStr) -> bool {
    program
        .to_str()
        .is_some_and(|name| name.contains("socket_state"))
}

/// What the kernel says of the programs whose runs count. Each is asked for by our own descriptor: to go
/// through the kernel's list of programs takes CAP_SYS_ADMIN, which a service does without.
fn infos(object: &Object) -> impl Iterator<Item = bpf_prog_info> {
    object
        .progs()
        .filter(|program| program.autoload() && !is_replaced(program.name()))
        .filter_map(|program| {
            let mut info = bpf_prog_info::default();
            let mut length = size_of::<bpf_prog_info>() as u32;
            // SAFETY: the kernel writes no more than `length` bytes there, and reads no pointers, as the
            // lengths of all lists in it are 0.
            let failed = unsafe {
                bpf_obj_get_info_by_fd(
                    program.as_fd().as_raw_fd(),
                    (&raw mut info).cast(),
                    &mut length,
                )
            };
            (failed == 0).then_some(info)
        })
}

/// Runs of the programs that the kernel skipped, because one was running on that CPU already.
pub(crate) fn skipped(object: &Object) -> u64 {
    infos(object).map(|info| info.recursion_misses).sum()
}

pub(crate) fn read(object: &Object) -> Losses {
    let counted = counted(object);
    Losses {
        rows: counted.rows,
        threads: counted.threads,
        nesting: counted.nesting,
        events: counted.events,
        sockets: counted.sockets,
        switches: counted.switches,
        processes: counted.processes,
        abandoned: counted.abandoned,
        depth: counted.depth,
        names: counted.names,
        blamed: counted.blamed,
        slices: counted.slices,
        stacks: counted.stacks,
        recursion: skipped(object),
    }
}

#[cfg(test)]
mod tests {
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

    use super::*;
    use crate::Running;

    #[test]
    fn what_was_skipped_is_known_without_root_s_powers() {
        let running = match Running::load() {
            Ok(running) => running,
            Err(e) => {
                println!("skipped: {e}");
                return;
            }
        };
        // Of this thread alone, which ends with the test.
        let mut held = capabilities(None).expect("read");
        held.effective.remove(CapabilitySet::SYS_ADMIN);
        set_capabilities(None, held).expect("one may give up what one has");
        assert_eq!(infos(running.object()).count(), 1);
    }
}
