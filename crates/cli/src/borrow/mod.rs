//! `tailscope borrow`: lending, and what is done with those who lend.
//!
//! It joins two crates. `tailscope_record` records the server's requests, and each goes to the
//! account of `tailscope_borrow`, which knows in which phase it began.

mod args;
mod simulation;
mod text;
mod watch;

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Error, Result};
use serde_json::{Value, json};
use tailscope_borrow::guard::{GUARD, guard};
use tailscope_borrow::keeper::{KEEPER, keep};
use tailscope_borrow::starter::{self, NOT_STARTED, STARTER};
use tailscope_borrow::state::{self, Entry};
use tailscope_borrow::{BorrowError, Ending, Lane, Lender, Pace, Plan};
use tailscope_record::{End, LaunchError, Prints, find_program};
use tailscope_signals::clock::unix_at_0;

use crate::failure::Failure;
use crate::screen::Screen;
use crate::streams::{print_json, print_laid_out, say};
use crate::subject::{self, Kept, Session, Subject, stop_on_signals, targets};
use args::{Status, Stop, WithRunning};
use watch::Watch;

pub use args::Borrow;

/// The rarer kind of phase is so long until the server's latency is known, in ns.
const FIRST_PHASE_NS: u64 = 100_000_000;

/// The largest share of time in which the batch is held back for comparison.
const MOST_HELD_BACK: f64 = 0.9;

/// Lends, or looks after what is lent.
pub fn run(args: &Borrow) -> Result<ExitCode> {
    match &args.with {
        Some(WithRunning::Status(status)) => show_status(status),
        Some(WithRunning::Stop(stop)) => end_running(stop),
        None if args.restore => restore(),
        None if args.simulate.is_some() => simulation::run(args),
        None => lend(args),
    }
}

/// Runs one of the processes that lending is made of, if these words call for one.
pub fn process_of(words: &[OsString]) -> Option<Result<ExitCode>> {
    let [name, first, command @ ..] = words else {
        return None;
    };
    let first = first.to_str()?;
    let done = |ended: Result<(), BorrowError>| ended.map(|()| ExitCode::SUCCESS).map_err(failure);
    match name.to_str()? {
        GUARD => Some(done(guard(first, command))),
        KEEPER => Some(done(keep(first, command))),
        STARTER => {
            if let Err(e) = starter::start(first, command) {
                say!("tailscope: {e}");
            }
            Some(Ok(ExitCode::from(NOT_STARTED)))
        }
        _ => None,
    }
}

fn failure(error: BorrowError) -> Error {
    match error {
        BorrowError::Usage(_) => Failure::usage(error),
        BorrowError::Machine(_) | BorrowError::System { .. } => Failure::machine(error),
    }
}

fn lend(args: &Borrow) -> Result<ExitCode> {
    let (Some(server), Some(program)) = (args.server, args.command.first()) else {
        return Err(Failure::usage(
            "nothing to lend; name a server with --for PID, and a batch command after --",
        ));
    };
    if find_program(Path::new(program)).is_none() {
        let name = program.to_string_lossy().into_owned();
        return Err(Failure::usage(LaunchError::NotFound(name)));
    }
    if args.held_back > MOST_HELD_BACK {
        return Err(Failure::usage(
            "--held-back is at most 90%: with more, hardly anything would be lent",
        ));
    }
    let processes = targets(&[server], &[], false, "lend")?;
    let mut pids = vec![server];
    pids.extend(processes.iter().map(|p| p.pid).filter(|pid| *pid != server));
    if let Some(cpus) = &args.cpus
        && Lane::online(cpus.0.clone()).cpus.is_empty()
    {
        return Err(Failure::usage(
            "none of the CPUs of --cpus is online; see lscpu",
        ));
    }
    say_restored();
    let stop = stop_on_signals()?;
    let most = 1.0 - args.held_back;
    let pace = Pace {
        on_share: most,
        shortest_ns: FIRST_PHASE_NS,
        lease_ns: None,
    };
    let plan = Plan {
        borrower: std::process::id(),
        server: pids,
        cpus: args.cpus.as_ref().map(|cpus| cpus.0.clone()),
        pace,
        output_to_stderr: args.json,
    };
    // Before the recording, which gives up the rights that the batch command may need.
    let lender = Lender::start(&plan, &args.command).map_err(failure)?;
    let lane = plan
        .cpus
        .map_or_else(|| Lane::of(&plan.server), Lane::online);
    lane.keep_off();
    let mut session = Session::begin(&subject_of(args, server), Kept::default(), Prints::Through)?;
    let unix_at_0 = unix_at_0();
    let mut watch = Watch::new(
        lender,
        args.slo,
        pace,
        Screen::new(args.quiet),
        stop.clone(),
    );
    session.recorder.tap(Some(watch.tap(unix_at_0)));
    watch.begin();
    let end = session.recorder.run(args.duration, &stop, &mut watch);
    let ended = watch.end_batch();
    let (finished, _) = session.finish(&mut watch);
    let report = watch.report();
    if args.json {
        print_json(&report)?;
    } else {
        print_laid_out(&text::report(&report))?;
    }
    if matches!(end, Ok(End::Exited)) {
        say!("tailscope: the server has ended, and so has the batch");
    }
    let ending = ended.map_err(failure)?;
    end.map_err(subject::failure)?;
    finished.map_err(subject::failure)?;
    Ok(exit_code(ending))
}

fn subject_of(args: &Borrow, server: u32) -> Subject {
    Subject {
        pids: vec![server],
        spans: args.spans.clone(),
        name: None,
        no_names: false,
        tls_names: false,
        sample: 1.0,
        keep: None,
        tail: None,
        no_children: false,
        command: Vec::new(),
    }
}

/// The batch command's own code, if it ended by itself.
fn exit_code(ending: Option<Ending>) -> ExitCode {
    let Some(ending) = ending.filter(|ending| ending.by_itself) else {
        return ExitCode::SUCCESS;
    };
    let code = ending.code.or(ending.signal.map(|signal| 128 + signal));
    let code = code.and_then(|code| u8::try_from(code).ok());
    code.map_or(ExitCode::FAILURE, ExitCode::from)
}

/// Ends what was left behind, and says so.
fn say_restored() -> bool {
    let (ended, failed) = state::restore();
    for entry in &ended {
        say!(
            "tailscope: ended what a killed tailscope (process {}) had left of '{}'",
            entry.borrower.pid,
            entry.command.join(" ")
        );
    }
    for entry in &failed {
        say!(
            "tailscope: can't end all of '{}', which a killed tailscope (process {}) left; run tailscope \
             borrow --restore as root",
            entry.command.join(" "),
            entry.borrower.pid
        );
    }
    failed.is_empty()
}

fn restore() -> Result<ExitCode> {
    if say_restored() {
        Ok(ExitCode::SUCCESS)
    } else {
        Err(Failure::machine("something is left behind still"))
    }
}

/// The entry with its latest figures, if there are some.
fn figures(entry: &Entry) -> Option<Value> {
    serde_json::from_slice(&fs::read(entry.status_path()).ok()?).ok()
}

fn show_status(args: &Status) -> Result<ExitCode> {
    let entries = state::entries();
    if args.json {
        let all: Vec<_> = entries
            .iter()
            .map(|entry| {
                json!({
                    "borrower": entry.borrower.pid,
                    "server": entry.server,
                    "command": entry.command,
                    "left_behind": !entry.is_kept(),
                    "figures": figures(entry),
                })
            })
            .collect();
        print_json(&all)?;
        return Ok(ExitCode::SUCCESS);
    }
    if entries.is_empty() {
        print_laid_out("this user lends nothing\n")?;
    }
    for entry in &entries {
        let figures = figures(entry);
        print_laid_out(&text::status(entry, figures.as_ref()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn end_running(args: &Stop) -> Result<ExitCode> {
    let meant = |entry: &Entry| {
        args.pid
            .is_none_or(|pid| entry.borrower.pid == pid || entry.server == pid)
    };
    let entries: Vec<Entry> = state::entries().into_iter().filter(meant).collect();
    if let (Some(pid), true) = (args.pid, entries.is_empty()) {
        return Err(Failure::usage(format!(
            "no tailscope borrow has the process id {pid}, or lends the CPUs of that server; see tailscope \
             borrow status"
        )));
    }
    for entry in entries.iter().filter(|entry| entry.is_kept()) {
        state::stop(entry).map_err(failure)?;
        say!("stopped '{}'", entry.command.join(" "));
    }
    restore()
}
