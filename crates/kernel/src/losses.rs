//! What could not be metered or written: every place that can lose counts what it lost.

use libbpf_rs::query::{ProgInfoIter, ProgInfoQueryOptions};
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
    /// News of processes that found the ring full.
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
    /// Episodes whose culprit's name found no room in the table.
    pub culprits: u64,
    /// Runs of a program that the kernel skipped, because one was running on that CPU already.
    pub recursion: u64,
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

pub(crate) fn read(object: &Object, programs: &[u32]) -> Losses {
    let counted = counted(object);
    let recursion = ProgInfoIter::with_query_opts(ProgInfoQueryOptions::default())
        .filter(|info| programs.contains(&info.id))
        .map(|info| info.recursion_misses)
        .sum();
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
        culprits: counted.culprits,
        recursion,
    }
}
