//! `tailscope doctor`: the ladder, in words.

use std::process::ExitCode;

use anyhow::Result;
use serde_json::{Map, Value, json};
use tailscope_kernel::{Config, Kernel, Ladder, LoadError, PidNamespace, Rung, SocketSpans};
use tailscope_record::{COUNTED_BY, StealClock, counters_rung, describe_machine};

use crate::args::Doctor;
use crate::streams::{print_json, print_laid_out};
use crate::subject::load_failure;

/// What each entry of the ladder stands for, in the order in which it is shown.
const MEASUREMENTS: &[(&str, &str)] = &[
    ("runqueue", "waiting for a CPU: runqueue, preempted"),
    ("throttled", "held back by a CPU quota"),
    ("lock", "blocked on locks"),
    (
        "blocked",
        "blocked on disks, sockets, sleep: io, network, sleep",
    ),
    ("stopped", "stopped by a signal, a tracer or the freezer"),
    ("reclaim", "reclaiming memory for its cgroup or the machine"),
    ("irq", "interrupts"),
    ("softirq", "softirqs: network, timer, other"),
    ("fault", "page faults"),
    ("steal", "time stolen by the hypervisor"),
    (
        "sockets",
        "requests of unmodified servers: syscall:recv..send",
    ),
    (
        "ready",
        "the same, from when they are ready: syscall:ready..send",
    ),
    (
        "connections",
        "whether a client or the server opened a connection",
    ),
    ("usdt", "USDT probes of any program: usdt:…"),
    ("uprobe", "functions of any program: uprobe:…"),
    ("counters", "hardware events in SDK spans: --counters"),
];

/// Prints what this machine can measure. Exit 3 if it can't record at all.
pub fn run(args: &Doctor) -> Result<ExitCode> {
    let config = Config {
        sockets: Some(SocketSpans::FromReady),
        probes: true,
        ..Config::default()
    };
    let kernel = Kernel::load(&config).map_err(load_failure)?;
    let namespace = PidNamespace::here().map_err(|e| load_failure(LoadError::from(e)))?;
    let mut ladder = kernel.ladder().clone();
    ladder.set("blocked", Some("sched_switch, system call"), "");
    if StealClock::start().is_some() {
        ladder.set(
            "steal",
            Some("/proc/stat per CPU"),
            "the kernel does not export steal_time",
        );
    } else {
        ladder.set("steal", None, "/proc/stat has shown none since boot");
    }
    let counters = counters_rung();
    ladder.set(
        "counters",
        counters.rung.is_some().then_some(COUNTED_BY),
        counters.why,
    );
    if args.json {
        print_json(&as_json(&ladder, namespace))?;
    } else {
        print_laid_out(&text(&ladder, namespace))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn as_json(ladder: &Ladder, namespace: PidNamespace) -> Value {
    let entries: Map<String, Value> = ladder
        .iter()
        .map(|(what, rung)| {
            (
                what.into(),
                json!({ "rung": rung.mechanism, "why": rung.why }),
            )
        })
        .collect();
    let machine = describe_machine();
    json!({
        "machine": {
            "host": machine.host, "kernel": machine.kernel, "arch": machine.arch,
            "cpus": machine.cpus, "model": machine.model,
        },
        "pid_namespace": match namespace {
            PidNamespace::Initial => "initial",
            PidNamespace::Nested { .. } => "nested",
        },
        "ladder": entries,
    })
}

fn text(ladder: &Ladder, namespace: PidNamespace) -> String {
    let machine = describe_machine();
    let numbers = match namespace {
        PidNamespace::Initial => {
            "in the initial PID namespace: every process of this machine can be recorded"
        }
        PidNamespace::Nested { .. } => {
            "in a nested PID namespace, such as a container's: Tailscope can record its processes, by \
             their\nprocess ids in the namespace; to record all of the machine, run with --pid=host"
        }
    };
    let mut text = format!(
        "{} {}, {} CPUs, {}\n{numbers}\n\n",
        machine.kernel, machine.arch, machine.cpus, machine.model
    );
    for (what, words) in MEASUREMENTS {
        let absent = Rung {
            mechanism: None,
            why: "not tried".into(),
        };
        let rung = ladder.get(what).unwrap_or(&absent);
        let mark = if rung.mechanism.is_some() {
            "yes"
        } else {
            "no "
        };
        text += &format!("{mark}  {words}\n");
        if let Some(mechanism) = rung.mechanism {
            text += &format!("       by {mechanism}\n");
        }
        if !rung.why.is_empty() {
            text += &format!("       because {}\n", rung.why);
        }
    }
    text + "\nA measurement that is marked 'no' is null in a ledger, never 0.\n"
}
