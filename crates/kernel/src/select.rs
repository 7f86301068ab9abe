//! Which programs this kernel can run, found out before they are loaded.

use libbpf_rs::btf::Btf;
use libbpf_rs::{Object, ObjectBuilder, OpenObject};

use crate::load_error::LoadError;
use crate::object::program;
use crate::{Config, Measurement, Mechanisms};

pub(crate) static PROBES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/probe.bpf.o"));

/// A program, its tracepoint, and what is measured by it. `None`: nothing works without it.
pub(crate) type Tracepoint = (&'static str, &'static str, Option<Measurement>);

/// The tracepoints of a recording.
const TRACEPOINTS: &[Tracepoint] = &[
    ("on_switch", "sched_switch", None),
    ("on_waking", "sched_waking", None),
    ("on_new_task", "task_newtask", None),
    ("on_exec", "sched_process_exec", None),
    ("on_exit", "sched_process_exit", None),
    (
        "on_softirq_entry",
        "softirq_entry",
        Some(Measurement::Softirq),
    ),
    (
        "on_softirq_exit",
        "softirq_exit",
        Some(Measurement::Softirq),
    ),
    (
        "on_contention_begin",
        "contention_begin",
        Some(Measurement::Lock),
    ),
    (
        "on_contention_end",
        "contention_end",
        Some(Measurement::Lock),
    ),
    ("on_signal", "signal_generate", Some(Measurement::Stopped)),
    (
        "on_memcg_reclaim_begin",
        "mm_vmscan_memcg_reclaim_begin",
        Some(Measurement::Reclaim),
    ),
    (
        "on_memcg_reclaim_end",
        "mm_vmscan_memcg_reclaim_end",
        Some(Measurement::Reclaim),
    ),
    (
        "on_direct_reclaim_begin",
        "mm_vmscan_direct_reclaim_begin",
        Some(Measurement::Reclaim),
    ),
    (
        "on_direct_reclaim_end",
        "mm_vmscan_direct_reclaim_end",
        Some(Measurement::Reclaim),
    ),
    (
        "on_socket_state",
        "inet_sock_set_state",
        Some(Measurement::Connections),
    ),
];

/// What is still measured where a tracepoint is missing.
fn without(measures: Measurement) -> Option<&'static str> {
    match measures {
        Measurement::Lock => Some("system call"),
        Measurement::Stopped => Some("sched_switch"),
        _ => None,
    }
}

pub(crate) fn has_tracepoint(btf: &Btf<'_>, name: &str) -> bool {
    btf.type_by_name::<libbpf_rs::btf::types::Typedef<'_>>(&format!("btf_trace_{name}"))
        .is_some()
}

/// Switches off the programs whose tracepoints this kernel lacks, or that measure what is not wanted.
pub(crate) fn select_tracepoints(
    open: &mut OpenObject,
    btf: &Btf<'_>,
    tracepoints: &[Tracepoint],
    wanted: impl Fn(Measurement) -> bool,
    mechanisms: &mut Mechanisms,
) -> Result<(), LoadError> {
    for &(program, tracepoint, measures) in tracepoints {
        let there = has_tracepoint(btf, tracepoint);
        let wanted = measures.is_none_or(&wanted);
        match measures {
            None if !there => return Err(LoadError::NoTracepoint(tracepoint)),
            Some(what) if wanted && !there => {
                let why = format!("this kernel has no tracepoint {tracepoint}");
                mechanisms.set(what, without(what), why);
            }
            Some(what) if wanted && mechanisms.get(what).is_none() => {
                mechanisms.set(what, Some(tracepoint), "");
            }
            _ => {}
        }
        autoload(open, program, wanted && there);
    }
    Ok(())
}

/// Switches off the programs of a recording that can't run here or that are not wanted.
pub(crate) fn select(
    open: &mut OpenObject,
    btf: &Btf<'_>,
    config: &Config,
    mechanisms: &mut Mechanisms,
) -> Result<(), LoadError> {
    mechanisms.set(
        Measurement::Runqueue,
        Some("sched_switch, sched_waking"),
        "",
    );
    mechanisms.set(
        Measurement::Softirq,
        Some("softirq_entry, softirq_exit"),
        "",
    );
    mechanisms.set(Measurement::Lock, Some("system call, contention_begin"), "");
    mechanisms.set(
        Measurement::Stopped,
        Some("sched_switch, signal_generate"),
        "",
    );
    mechanisms.set(
        Measurement::Reclaim,
        Some("mm_vmscan tracepoints, sched_switch"),
        "",
    );
    let wanted = |what| what != Measurement::Connections || config.sockets.is_some();
    select_tracepoints(open, btf, TRACEPOINTS, wanted, mechanisms)?;
    let throttle = btf
        .type_by_name::<libbpf_rs::btf::types::Struct<'_>>("cfs_rq")
        .is_some_and(|cfs_rq| {
            cfs_rq
                .iter()
                .any(|m| m.name.is_some_and(|n| n == "throttled_clock_pelt_time"))
        });
    if throttle {
        mechanisms.set(
            Measurement::Throttled,
            Some("cfs_rq.throttled_clock_pelt_time"),
            "",
        );
    } else {
        mechanisms.set(
            Measurement::Throttled,
            None,
            "this kernel does not account throttled time (CONFIG_CFS_BANDWIDTH)",
        );
    }
    Ok(())
}

pub(crate) fn autoload(open: &mut OpenObject, name: &str, wanted: bool) {
    if let Some(mut program) = open.progs_mut().find(|program| program.name() == name) {
        program.set_autoload(wanted);
    }
}

/// How page faults are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FaultHook {
    Fentry,
    Kprobe,
    Exception,
    Nothing,
}

/// Loads a program that does nothing.
fn load_probe(name: &str) -> Result<Object, libbpf_rs::Error> {
    let mut open = ObjectBuilder::default().open_memory(PROBES)?;
    for mut program in open.progs_mut() {
        let wanted = program.name() == name;
        program.set_autoload(wanted);
    }
    open.load()
}

/// Whether this kernel loads such a program.
pub(crate) fn loads(name: &str) -> bool {
    load_probe(name).is_ok()
}

/// Tries a program that does nothing, all the way to its attachment.
fn works(name: &str) -> Result<(), libbpf_rs::Error> {
    let mut object = load_probe(name)?;
    program(&mut object, name).attach().map(drop)
}

/// Why this kernel attaches no programs to its functions; `None` if it does.
pub(crate) fn fentry_refused() -> Option<String> {
    works("probe_fentry").err().map(reason)
}

fn reason(e: libbpf_rs::Error) -> String {
    match e.kind() {
        libbpf_rs::ErrorKind::PermissionDenied => "not permitted".to_owned(),
        libbpf_rs::ErrorKind::NotFound => "not in this kernel".to_owned(),
        _ => format!("{e:#}"),
    }
}

/// The programs at page faults, by their mechanism.
const FAULT_PROGRAMS: [(FaultHook, [&str; 2]); 3] = [
    (FaultHook::Fentry, ["on_fault_fentry", "on_fault_fexit"]),
    (FaultHook::Kprobe, ["on_fault_kprobe", "on_fault_kretprobe"]),
    (
        FaultHook::Exception,
        ["on_fault_exception", "on_fault_event"],
    ),
];

/// Switches off the programs at page faults.
pub(crate) fn no_fault_hook(open: &mut OpenObject) -> FaultHook {
    switch_fault_programs(open, FaultHook::Nothing);
    FaultHook::Nothing
}

fn switch_fault_programs(open: &mut OpenObject, chosen: FaultHook) {
    for (of, names) in FAULT_PROGRAMS {
        names
            .iter()
            .for_each(|name| autoload(open, name, of == chosen));
    }
}

pub(crate) fn choose_fault_hook(
    open: &mut OpenObject,
    btf: &Btf<'_>,
    fentry: Option<&str>,
    mechanisms: &mut Mechanisms,
) -> FaultHook {
    let (chosen, hook, why) = match fentry {
        None => (FaultHook::Fentry, Some("fentry, fexit"), String::new()),
        Some(fentry) => match works("probe_kprobe") {
            Ok(()) => (
                FaultHook::Kprobe,
                Some("kprobe, kretprobe"),
                format!("fentry refused: {fentry}"),
            ),
            Err(kprobe) => {
                let why = format!(
                    "fentry refused: {fentry}; kprobe refused: {}",
                    reason(kprobe)
                );
                if has_tracepoint(btf, "page_fault_user") {
                    (
                        FaultHook::Exception,
                        Some("page_fault tracepoints to software events"),
                        why,
                    )
                } else {
                    (FaultHook::Nothing, None, why)
                }
            }
        },
    };
    switch_fault_programs(open, chosen);
    mechanisms.set(Measurement::Fault, hook, why);
    chosen
}
