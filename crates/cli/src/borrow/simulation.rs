//! `--simulate`: what each policy would do to a recorded server.
//!
//! The Python part reads ledgers. `tailscope-requests` prints the requests of each thread as JSON.

use std::process::{Command, ExitCode, Stdio};

use anyhow::Result;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tailscope_borrow::simulate::{Model, Outcome, Policy, Request, simulate};

use super::args::Borrow;
use crate::external;
use crate::failure::Failure;
use crate::streams::{print_json, print_laid_out};
use crate::units::{count, time};

/// A batch thread that shares the CPU leaves it when the kernel has switched: a few µs.
const SWITCH_NS: u64 = 3_000;
/// On another hardware thread it leaves between two of its checks and naps (Elfen, Fig. 5.8: 3,285 cycles
/// to sleep and 1,438 to wake at 2 GHz).
const NAP_NS: u64 = 1_600;
const WAKE_NS: u64 = 700;

/// What `tailscope-requests` prints.
#[derive(Debug, Deserialize)]
struct Recorded {
    threads: Vec<Thread>,
    p50_ns: Option<u64>,
    p99_ns: Option<u64>,
    p999_ns: Option<u64>,
    notes: Vec<String>,
}

/// The requests of one thread, sorted by their arrival.
#[derive(Debug, Deserialize)]
struct Thread {
    arrival_ns: Vec<u64>,
    work_ns: Vec<u64>,
}

#[derive(Debug, Serialize)]
struct Played {
    core: &'static str,
    policy: String,
    #[serde(flatten)]
    outcome: Outcome,
}

/// Reads the ledger, plays it by each policy, and prints what came of it.
pub fn run(args: &Borrow) -> Result<ExitCode> {
    let recorded = read(args)?;
    let threads: Vec<Vec<Request>> = recorded
        .threads
        .iter()
        .map(|thread| {
            let pairs = thread.arrival_ns.iter().zip(&thread.work_ns);
            let requests = pairs.map(|(arrival_ns, work_ns)| Request {
                arrival_ns: *arrival_ns,
                work_ns: *work_ns,
            });
            requests.collect()
        })
        .collect();
    let played = play(args, &threads);
    if args.json {
        print_json(&json!({
            "kind": "borrow_simulation",
            "model": { "overlap_speed": args.overlap_speed, "budget_ns": args.budget },
            "recorded": {
                "p50_ns": recorded.p50_ns, "p99_ns": recorded.p99_ns, "p999_ns": recorded.p999_ns,
            },
            "notes": recorded.notes,
            "policies": played,
        }))?;
    } else {
        print_laid_out(&text(args, &recorded, &threads, &played))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn play(args: &Borrow, threads: &[Vec<Request>]) -> Vec<Played> {
    let one_cpu = Model {
        overlap_speed: 0.0,
        leave_ns: SWITCH_NS,
        wake_ns: SWITCH_NS,
    };
    let two_threads = Model {
        overlap_speed: args.overlap_speed,
        leave_ns: NAP_NS,
        wake_ns: WAKE_NS,
    };
    let mut cases = vec![
        ("one CPU", one_cpu, "nothing".to_owned(), Policy::Nothing),
        ("one CPU", one_cpu, "borrow idle".to_owned(), Policy::Idle),
    ];
    let budget = time(args.budget);
    for (name, policy) in [
        ("borrow idle".to_owned(), Policy::Idle),
        (format!("fixed {budget}"), Policy::Fixed(args.budget)),
        (format!("refresh {budget}"), Policy::Refresh(args.budget)),
        (format!("dynamic {budget}"), Policy::Dynamic(args.budget)),
    ] {
        cases.push(("SMT", two_threads, name, policy));
    }
    if let Some(slo) = args.slo {
        cases.push(("SMT", two_threads, format!("slo {slo}"), Policy::Slo(slo)));
    }
    let played = cases.into_iter().map(|(core, model, policy, how)| Played {
        core,
        policy,
        outcome: simulate(threads, how, model),
    });
    played.collect()
}

fn read(args: &Borrow) -> Result<Recorded> {
    let program = external::locate("requests").ok_or_else(|| {
        Failure::machine(
            "can't read ledgers: there is no tailscope-requests beside this program or on the PATH; \
             install Tailscope's Python part (`make build` installs it in .venv)",
        )
    })?;
    let ledger = args.simulate.iter();
    let output = Command::new(&program)
        .args(ledger)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|e| Failure::machine(format!("can't run {}: {e}", program.display())))?;
    if !output.status.success() {
        let words = "the ledger could not be read; see above";
        return Err(match output.status.code() {
            Some(2) => Failure::usage(words),
            _ => Failure::machine(words),
        });
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|e| Failure::machine(format!("{} printed no requests: {e}", program.display())))
}

fn text(args: &Borrow, recorded: &Recorded, threads: &[Vec<Request>], played: &[Played]) -> String {
    let requests: usize = threads.iter().map(Vec::len).sum();
    let mut text = format!(
        "this is a model, not a measurement: {} recorded requests of {} threads, played again\n",
        count(requests as u64),
        threads.len()
    );
    for note in &recorded.notes {
        text += &format!("{note}\n");
    }
    text += &format!(
        "SMT: batch on the other hardware thread slows a request to {:.0} % of its speed\n\n",
        args.overlap_speed * 100.0
    );
    let known = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), time);
    let line = |core: &str, policy: &str, cells: [String; 6]| {
        let cells: String = cells.iter().map(|cell| format!("{cell:>11}")).collect();
        format!("{}\n", format!("  {core:<9}{policy:<17}{cells}").trim_end())
    };
    let head = ["p50", "p99", "p99.9", "requests", "batch", "together"].map(str::to_owned);
    text += &line("", "", head);
    let [p50, p99, p999] = [recorded.p50_ns, recorded.p99_ns, recorded.p999_ns].map(known);
    let empty = String::new;
    text += &line("recorded", "", [p50, p99, p999, empty(), empty(), empty()]);
    for Played {
        core,
        policy,
        outcome,
    } in played
    {
        let [p50, p99, p999] = [outcome.p50_ns, outcome.p99_ns, outcome.p999_ns].map(known);
        let share = |share: f64| format!("{:.1} %", share * 100.0);
        let shares = [
            outcome.requests_share,
            outcome.batch_share,
            outcome.utilisation(),
        ];
        let [requests, batch, together] = shares.map(share);
        text += &line(core, policy, [p50, p99, p999, requests, batch, together]);
    }
    text
}
