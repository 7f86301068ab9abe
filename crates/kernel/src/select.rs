//! The ladder: which programs this kernel can run, found out before they are loaded.

use libbpf_rs::btf::Btf;
use libbpf_rs::{ObjectBuilder, OpenObject};

use crate::load::{LoadError, program};
use crate::{Config, Ladder};

pub(crate) static PROBES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/probe.bpf.o"));

/// The tracepoints that carry programs, by the program's name. `None`: nothing works without it.
const TRACEPOINTS: &[(&str, &str, Option<&str>)] = &[
    ("on_switch", "sched_switch", None),
    ("on_waking", "sched_waking", None),
    ("on_new_task", "task_newtask", None),
    ("on_exec", "sched_process_exec", None),
    ("on_exit", "sched_process_exit", None),
    ("on_softirq_entry", "softirq_entry", Some("softirq")),
    ("on_softirq_exit", "softirq_exit", Some("softirq")),
    ("on_contention_begin", "contention_begin", Some("lock")),
    ("on_contention_end", "contention_end", Some("lock")),
    ("on_signal", "signal_generate", Some("stopped")),
    (
        "on_memcg_reclaim_begin",
        "mm_vmscan_memcg_reclaim_begin",
        Some("reclaim"),
    ),
    (
        "on_memcg_reclaim_end",
        "mm_vmscan_memcg_reclaim_end",
        Some("reclaim"),
    ),
    (
        "on_direct_reclaim_begin",
        "mm_vmscan_direct_reclaim_begin",
        Some("reclaim"),
    ),
    (
        "on_direct_reclaim_end",
        "mm_vmscan_direct_reclaim_end",
        Some("reclaim"),
    ),
    (
        "on_socket_state",
        "inet_sock_set_state",
        Some("connections"),
    ),
];

/// What is still measured where a tracepoint is missing.
fn without(measures: &str) -> Option<&'static str> {
    match measures {
        "lock" => Some("system call"),
        "stopped" => Some("sched_switch"),
        _ => None,
    }
}

pub(crate) fn has_tracepoint(btf: &Btf<'_>, name: &str) -> bool {
    btf.type_by_name::<libbpf_rs::btf::types::Typedef<'_>>(&format!("btf_trace_{name}"))
        .is_some()
}

/// Switches off the programs whose tracepoints are not there or not asked for.
pub(crate) fn select(
    open: &mut OpenObject,
    btf: &Btf<'_>,
    config: &Config,
    ladder: &mut Ladder,
) -> Result<(), LoadError> {
    ladder.set("runqueue", Some("sched_switch, sched_waking"), "");
    ladder.set("softirq", Some("softirq_entry, softirq_exit"), "");
    ladder.set("lock", Some("system call, contention_begin"), "");
    ladder.set("stopped", Some("sched_switch, signal_generate"), "");
    ladder.set("reclaim", Some("mm_vmscan tracepoints, sched_switch"), "");
    for &(program, tracepoint, measures) in TRACEPOINTS {
        let wanted = match measures {
            Some("connections") => config.sockets.is_some(),
            _ => true,
        };
        let there = has_tracepoint(btf, tracepoint);
        if wanted && !there {
            let why = format!("this kernel has no tracepoint {tracepoint}");
            match measures {
                None => return Err(LoadError::NoTracepoint(tracepoint)),
                Some(what) => ladder.set(what, without(what), why),
            }
        }
        autoload(open, program, wanted && there);
    }
    let throttle = btf
        .type_by_name::<libbpf_rs::btf::types::Struct<'_>>("cfs_rq")
        .is_some_and(|cfs_rq| {
            cfs_rq
                .iter()
                .any(|m| m.name.is_some_and(|n| n == "throttled_clock_pelt_time"))
        });
    if throttle {
        ladder.set("throttled", Some("cfs_rq.throttled_clock_pelt_time"), "");
    } else {
        ladder.set(
            "throttled",
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
pub(crate) enum FaultRung {
    Fentry,
    Kprobe,
    Exception,
    Nothing,
}

/// Tries a program that does nothing, all the way to its attachment.
fn works(name: &str) -> Result<(), libbpf_rs::Error> {
    let mut open = ObjectBuilder::default().open_memory(PROBES)?;
    for mut program in open.progs_mut() {
        let wanted = program.name() == name;
        program.set_autoload(wanted);
    }
    let mut object = open.load()?;
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

pub(crate) fn choose_fault_rung(
    open: &mut OpenObject,
    btf: &Btf<'_>,
    fentry: Option<&str>,
    ladder: &mut Ladder,
) -> FaultRung {
    let (rung, mechanism, why) = match fentry {
        None => (FaultRung::Fentry, Some("fentry, fexit"), String::new()),
        Some(fentry) => match works("probe_kprobe") {
            Ok(()) => (
                FaultRung::Kprobe,
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
                        FaultRung::Exception,
                        Some("page_fault tracepoints to software events"),
                        why,
                    )
                } else {
                    (FaultRung::Nothing, None, why)
                }
            }
        },
    };
    for (of, names) in [
        (FaultRung::Fentry, ["on_fault_fentry", "on_fault_fexit"]),
        (FaultRung::Kprobe, ["on_fault_kprobe", "on_fault_kretprobe"]),
        (
            FaultRung::Exception,
            ["on_fault_exception", "on_fault_event"],
        ),
    ] {
        names
            .iter()
            .for_each(|name| autoload(open, name, of == rung));
    }
    ladder.set("fault", mechanism, why);
    rung
}
