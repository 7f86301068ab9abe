//! Which hooks a set of programs is attached to, without loading it: for `tailscope cost`.
//!
//! The programs are read, and switched on and off, by the same code that does so before they are
//! loaded. So this list can't differ from what is attached.

use libbpf_rs::OpenObject;
use libbpf_rs::btf::Btf;

use crate::attach::interrupts;
use crate::select::{FaultHook, has_tracepoint};
use crate::{fault_events, stacks};

/// Where a program runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HookPlace {
    /// At a tracepoint, without perf.
    Tracepoint(String),
    /// At the entry or the return of one of the kernel's functions.
    Function(String),
    /// At each page fault, as a software event.
    PageFault,
    /// At each tick of a clock with this period (ns) on every CPU.
    Clock(u64),
}

/// A program and one place that it is attached to. Probes in programs are not among them: their
/// caller names those.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    /// The program.
    pub program: String,
    /// The place.
    pub place: HookPlace,
}

/// The hooks of these programs, which were selected and not loaded. `vector_entry`: as for
/// [`attach`](crate::attach::attach). `stacks`: the period of the clock, if there is one.
pub(crate) fn hooks(
    open: &OpenObject,
    btf: &Btf<'_>,
    vector_entry: Option<&str>,
    faults: FaultHook,
    stacks: Option<u64>,
) -> Vec<Hook> {
    let mut found: Vec<Hook> = open
        .progs()
        .filter(|program| program.autoload())
        .filter_map(|program| {
            let place = place(&program.section().to_string_lossy())?;
            let program = program.name().to_string_lossy().into_owned();
            Some(Hook { program, place })
        })
        .collect();
    let traced = |program: &str, tracepoint: &str| {
        has_tracepoint(btf, tracepoint).then(|| Hook {
            program: program.to_owned(),
            place: HookPlace::Tracepoint(tracepoint.to_owned()),
        })
    };
    for (program, tracepoint) in vector_entry.into_iter().flat_map(interrupts) {
        found.extend(traced(program, &tracepoint));
    }
    if faults == FaultHook::Exception {
        let exceptions = fault_events::EXCEPTIONS.iter();
        found.extend(exceptions.filter_map(|name| traced(fault_events::ON_EXCEPTION, name)));
        found.push(Hook {
            program: fault_events::ON_EVENT.to_owned(),
            place: HookPlace::PageFault,
        });
    }
    found.extend(stacks.map(|period_ns| Hook {
        program: stacks::PROGRAM.to_owned(),
        place: HookPlace::Clock(period_ns),
    }));
    found
}

/// Where a program is attached whose section says so. Others are attached by the loader, or are
/// iterators that nothing hits.
fn place(section: &str) -> Option<HookPlace> {
    let (kind, name) = section.split_once('/')?;
    match kind {
        "tp_btf" => Some(HookPlace::Tracepoint(name.to_owned())),
        "fentry" | "fexit" | "kprobe" | "kretprobe" => Some(HookPlace::Function(name.to_owned())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_say_where_programs_are_attached() {
        let tracepoint = HookPlace::Tracepoint("sched_switch".into());
        assert_eq!(place("tp_btf/sched_switch"), Some(tracepoint));
        let function = HookPlace::Function("inet_recvmsg".into());
        assert_eq!(place("fexit/inet_recvmsg"), Some(function));
        for section in ["raw_tp", "usdt", "iter/task", "uprobe"] {
            assert_eq!(place(section), None, "{section}");
        }
    }
}
