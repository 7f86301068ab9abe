//! `tailscope doctor`: what this machine can measure, and by which mechanism.

use std::process::ExitCode;

use anyhow::Result;
use serde_json::{Map, Value, json};
use tailscope_borrow::available;
use tailscope_kernel::{
    Config, Kernel, LoadError, Measurement, Mechanism, Mechanisms, PidNamespace, SocketSpans,
};
use tailscope_record::{COUNTED_BY, StealClock, counters_rung, describe_machine};

use crate::args::Doctor;
use crate::streams::{print_json, print_laid_out};
use crate::subject::load_failure;

/// What each measurement is for, in the order in which it is shown.
const MEASUREMENTS: &[(Measurement, &str)] = &[
    (
        Measurement::Runqueue,
        "waiting for a CPU: runqueue, preempted",
    ),
    (Measurement::Throttled, "held back by a CPU quota"),
    (Measurement::Lock, "blocked on locks"),
    (
        Measurement::Blocked,
        "blocked on disks, sockets, sleep: io, network, sleep",
    ),
    (
        Measurement::Stopped,
        "stopped by a signal, a tracer or the freezer",
    ),
    (
        Measurement::Reclaim,
        "reclaiming memory for its cgroup or the machine",
    ),
    (Measurement::Irq, "interrupts"),
    (Measurement::Softirq, "softirqs: network, timer, other"),
    (Measurement::Fault, "page faults"),
    (Measurement::Steal, "time stolen by the hypervisor"),
    (
        Measurement::Sockets,
        "requests of unmodified servers: request, syscall:recv..send",
    ),
    (
        Measurement::Ready,
        "the same, from when they are ready: request, syscall:ready..send",
    ),
    (
        Measurement::Connections,
        "whether a client or the server opened a connection",
    ),
    (Measurement::Usdt, "USDT probes of any program: usdt:…"),
    (Measurement::Uprobe, "functions of any program: uprobe:…"),
    (
        Measurement::Counters,
        "hardware events in SDK spans: --counters",
    ),
];

/// Prints what this machine can measure. Exit 3 if it can't record at all.
pub fn run(args: &Doctor) -> Result<ExitCode> {
    let config = Config {
        sockets: Some(SocketSpans::FromReady),
        probes: true,
        ..Config::default()
    };
    let followed = Config {
        sockets: Some(SocketSpans::Slices),
        names: true,
        headers: true,
        traces: true,
        ..Config::default()
    };
    Kernel::load(&followed).map_err(load_failure)?;
    let kernel = Kernel::load(&config).map_err(load_failure)?;
    let namespace = PidNamespace::here().map_err(|e| load_failure(LoadError::from(e)))?;
    let mut mechanisms = kernel.mechanisms().clone();
    mechanisms.set(Measurement::Blocked, Some("sched_switch, system call"), "");
    if StealClock::start().is_some() {
        mechanisms.set(
            Measurement::Steal,
            Some("/proc/stat per CPU"),
            "the kernel does not export steal_time",
        );
    } else {
        mechanisms.set(
            Measurement::Steal,
            None,
            "/proc/stat has shown none since boot",
        );
    }
    let counters = counters_rung();
    mechanisms.set(
        Measurement::Counters,
        counters.rung.is_some().then_some(COUNTED_BY),
        counters.why,
    );
    if args.json {
        print_json(&as_json(&mechanisms, namespace))?;
    } else {
        print_laid_out(&text(&mechanisms, namespace))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn as_json(mechanisms: &Mechanisms, namespace: PidNamespace) -> Value {
    let entries: Map<String, Value> = mechanisms
        .iter()
        .map(|(of, mechanism)| {
            (
                of.name().into(),
                json!({ "rung": mechanism.hook, "why": mechanism.why }),
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
        "borrow": available(),
    })
}

fn text(mechanisms: &Mechanisms, namespace: PidNamespace) -> String {
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
        let absent = Mechanism {
            hook: None,
            why: "not tried".into(),
        };
        let mechanism = mechanisms.get(*what).unwrap_or(&absent);
        let mark = if mechanism.hook.is_some() {
            "yes"
        } else {
            "no "
        };
        text += &format!("{mark}  {words}\n");
        if let Some(hook) = mechanism.hook {
            text += &format!("       by {hook}\n");
        }
        if !mechanism.why.is_empty() {
            text += &format!("       because {}\n", mechanism.why);
        }
    }
    text += "\nA measurement that is marked 'no' is null in a ledger, never 0.\n";
    text += "\nwhat keeps a batch command below a server: tailscope borrow\n";
    for mechanism in available() {
        let mark = if mechanism.used { "yes" } else { "no " };
        text += &format!("{mark}  {}\n", mechanism.name);
        if !mechanism.why.is_empty() {
            text += &format!("       {}\n", mechanism.why);
        }
    }
    text
}
