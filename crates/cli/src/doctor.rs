//! `tailscope doctor`: the ladder, in words.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Result;
use serde_json::{Map, Value, json};
use tailscope_kernel::{Config, Kernel, Ladder, Rung, SocketSpans};
use tailscope_record::{COUNTED_BY, StealClock, counters_rung, describe_machine};

use crate::args::Doctor;
use crate::streams::print;
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
        "and from when they were ready: syscall:ready..send",
    ),
    ("usdt", "probes that a program has: usdt:…"),
    ("uprobe", "functions of any program: uprobe:…"),
    (
        "counters",
        "events of the CPU in the SDK's spans: --counters",
    ),
];

/// Prints what this machine can measure. Exit 3 if it can't record at all.
pub fn run(args: &Doctor) -> Result<ExitCode> {
    let config = Config {
        sockets: Some(SocketSpans::FromReady),
        probes: true,
        ..Config::default()
    };
    let kernel = Kernel::load(&config).map_err(load_failure)?;
    let mut ladder = kernel.ladder().clone();
    ladder.set("blocked", Some("sched_switch, system call"), "");
    if StealClock::start().is_some() {
        ladder.set(
            "steal",
            Some("/proc/stat per CPU"),
            "steal_time is in no table of symbols",
        );
    } else {
        ladder.set("steal", None, "/proc/stat has never shown any");
    }
    let counters = counters_rung();
    ladder.set(
        "counters",
        counters.rung.is_some().then_some(COUNTED_BY),
        counters.why,
    );
    print(|out| {
        if args.json {
            writeln!(out, "{:#}", as_json(&ladder))
        } else {
            print_text(&ladder, out)
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

fn as_json(ladder: &Ladder) -> Value {
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
        "ladder": entries,
    })
}

fn print_text(ladder: &Ladder, out: &mut dyn Write) -> io::Result<()> {
    let machine = describe_machine();
    writeln!(
        out,
        "{} {}, {} CPUs, {}\n",
        machine.kernel, machine.arch, machine.cpus, machine.model
    )?;
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
        writeln!(out, "{mark}  {words}")?;
        if let Some(mechanism) = rung.mechanism {
            writeln!(out, "       by {mechanism}")?;
        }
        if !rung.why.is_empty() {
            writeln!(out, "       because {}", rung.why)?;
        }
    }
    writeln!(
        out,
        "\nEverything above marked 'no' is null in a ledger, never 0."
    )
}
