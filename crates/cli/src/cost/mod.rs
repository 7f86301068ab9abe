//! `tailscope cost`.

mod args;
mod own;
mod progress;
mod text;

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;
use tailscope_cost::advise::{Advice, advise, own_cache};
use tailscope_cost::command::{self, Machine, Plan, Rate, runnable, split};
use tailscope_cost::count::{Place, count};
use tailscope_cost::phases::Measured;
use tailscope_cost::predict::{Prediction, predict};
use tailscope_cost::target::Target;
use tailscope_cost::verify::{self, VerifyError};
use tailscope_cost::{
    Absent, Calibration, CalibrationError, Estimate, Options, calibrate, observers,
};
use tailscope_kernel::{PidNamespace, Spot};
use tailscope_record::{Process, ResolvedProbes, SpanSource};

use crate::args::Record;
use crate::failure::Failure;
use crate::page;
use crate::screen::Screen;
use crate::streams::{print_json, print_laid_out};
use crate::subject::{load_failure, stop_on_signals, targets};
pub use args::Cost;
use args::What;
use own::Ready;
pub use progress::Progress;
pub use text::{percent, with_interval};

/// Where root keeps a calibration.
const SYSTEM_FILE: &str = "/var/lib/tailscope/cost.json";

/// Does what was asked.
pub fn run(args: Cost) -> Result<ExitCode> {
    match args.what {
        What::Calibrate(args) => calibrate_here(&args)?,
        What::Show(args) => {
            let known = known(args.file.as_deref())?;
            publish(args.json, &calibration(&known), || {
                text::calibration(&known)
            })?;
        }
        What::Predict(args) => predict_with(&args)?,
        What::Verify(args) => verify_with(&args)?,
        What::Advise(args) => advise_within(&args)?,
        What::Recorded => tailscope_cost::obey()?,
    }
    Ok(ExitCode::SUCCESS)
}

/// With its kind, by which `tailscope report` draws it.
fn calibration(of: &Calibration) -> page::Report<'_, Calibration> {
    page::Report {
        kind: "cost-calibration",
        report: of,
    }
}

fn publish(json: bool, value: &impl Serialize, text: impl FnOnce() -> String) -> Result<()> {
    if json {
        print_json(value)
    } else {
        print_laid_out(&text())
    }
}

/// The file of this user.
fn file(named: Option<&Path>) -> Result<PathBuf> {
    let named = named.map(Path::to_owned);
    let variable = || env::var_os("TAILSCOPE_COST").filter(|path| !path.is_empty());
    if let Some(named) = named.or_else(|| variable().map(PathBuf::from)) {
        return Ok(named);
    }
    if tailscope_output::is_root() {
        return Ok(SYSTEM_FILE.into());
    }
    let of =
        |name: &str, below: &str| env::var_os(name).map(|home| PathBuf::from(home).join(below));
    of("XDG_STATE_HOME", "tailscope/cost.json")
        .or_else(|| of("HOME", ".local/state/tailscope/cost.json"))
        .ok_or_else(|| {
            Failure::usage("there is no state folder for this user; name a file with --file")
        })
}

fn known(named: Option<&Path>) -> Result<Calibration> {
    Calibration::read(&file(named)?).map_err(Failure::machine)
}

fn calibrate_here(args: &args::Calibrate) -> Result<()> {
    PidNamespace::here().map_err(Failure::machine)?;
    let path = file(args.file.as_deref())?;
    let before = match Calibration::read(&path) {
        Ok(before) if !args.forget => Some(before),
        // Another machine's is replaced.
        Ok(_) | Err(CalibrationError::None(_) | CalibrationError::OtherMachine { .. }) => None,
        Err(e @ CalibrationError::Unreadable { .. }) if !args.forget => {
            return Err(Failure::machine(format!("{e} with --forget")));
        }
        Err(_) => None,
    };
    let options = Options {
        duration: args.duration,
        cpu: args.cpu,
        seed: args.seed,
        recorded: ["/proc/self/exe", "cost", "recorded"]
            .map(Into::into)
            .into(),
    };
    let screen = Screen::new(args.quiet);
    let found = calibrate(&options, |share| {
        let elapsed = Duration::from_secs_f64(options.duration.as_secs_f64() * share.min(1.0));
        screen.progress(
            elapsed,
            &format!("calibrating: {:.0} %", share.min(1.0) * 100.0),
        );
    });
    screen.clear();
    let mut found = found.map_err(|error| match error {
        Absent::Load(error) => load_failure(error),
        Absent::Cpu { .. } => Failure::usage(error),
        Absent::Void(_) => Failure::machine(error),
    })?;
    if let Some(before) = &before {
        found.follow(before);
    }
    found.write(&path).map_err(Failure::machine)?;
    screen.say(&format!("kept in {}", path.display()));
    publish(args.json, &calibration(&found), || {
        text::calibration(&found)
    })
}

/// What a hit costs on this machine, which is calibrated now if it was not yet: in a process of its own, as
/// that moves from CPU to CPU and names its thread.
pub fn known_or_calibrated(screen: &Screen) -> Result<Calibration> {
    let path = file(None)?;
    match Calibration::read(&path) {
        Err(CalibrationError::None(_) | CalibrationError::OtherMachine { .. }) => {}
        known => return known.map_err(Failure::machine),
    }
    screen.say("calibrating this machine once, which takes ten seconds");
    let done = Command::new("/proc/self/exe")
        .args(["cost", "calibrate", "--quiet", "--file"])
        .arg(&path)
        .stdout(Stdio::null())
        .status();
    match done {
        Ok(status) if status.success() => Calibration::read(&path).map_err(Failure::machine),
        Ok(status) => Err(Failure::machine(format!(
            "tailscope cost calibrate failed: {status}"
        ))),
        Err(e) => Err(Failure::machine(format!(
            "can't start tailscope cost calibrate: {e}"
        ))),
    }
}

/// Hits are counted by numbers of processes that a nested namespace does not know.
fn check_namespace() -> Result<()> {
    match PidNamespace::here().map_err(Failure::machine)? {
        PidNamespace::Initial => Ok(()),
        _ => Err(Failure::machine(
            "can't count hits in a nested PID namespace, such as a container's; run with --pid=host",
        )),
    }
}

/// The process and what it made.
fn target(pid: u32) -> Result<(Target, Vec<Process>)> {
    check_namespace()?;
    let processes = targets(&[pid], &[], false, "predict")?;
    let pids = processes.iter().map(|process| process.pid).collect();
    Ok((Target { pids }, processes))
}

/// A command line that is to be predicted for a process.
struct Asked {
    words: Vec<String>,
    /// Whether it is one of ours.
    own: bool,
}

impl Asked {
    fn read(line: &str) -> Result<Self> {
        let words = split(line).map_err(Failure::usage)?;
        Ok(match own::own(&words) {
            Some(words) => Self { words, own: true },
            None => Self { words, own: false },
        })
    }

    /// Its hooks in these processes.
    fn plan(&self, processes: &[Process], costs: &Calibration) -> Result<Plan> {
        if self.own {
            return own::plan(&self.words, processes);
        }
        let machine = Machine {
            has_cycles: costs.cost("sample.cycles").is_some(),
        };
        command::read(&self.words, machine).map_err(Failure::usage)
    }
}

/// Where a probe is: as `--span` finds it.
fn places(
    probe: &str,
    processes: &[Process],
    held: &std::cell::RefCell<Vec<ResolvedProbes>>,
) -> Result<Vec<Place>, String> {
    // A span needs two ends; here one place is both.
    let text = match probe
        .strip_prefix("usdt:")
        .and_then(|rest| rest.rsplit_once(':'))
    {
        Some((front, name)) => format!("usdt:{front}:{name}..{name}"),
        None => probe.to_owned(),
    };
    let source: SpanSource = text
        .parse()
        .map_err(|e: tailscope_record::SourceError| e.to_string())?;
    let SpanSource::Probes(source) = source else {
        return Err(format!("'{probe}' is no probe"));
    };
    let found = ResolvedProbes::find(0, &source, processes, None).map_err(|e| e.to_string())?;
    let mut places: Vec<Place> = Vec::new();
    for probe in found.probes() {
        let spots: Vec<(u64, u64)> = match &probe.spot {
            Spot::Usdt { places, .. } => places.clone(),
            Spot::Code(offsets) => offsets.iter().map(|offset| (*offset, 0)).collect(),
        };
        places.extend(spots.into_iter().map(|(offset, semaphore)| Place {
            file: probe.file.clone(),
            offset,
            semaphore,
        }));
    }
    places.dedup();
    places.sort_by_key(|place| place.offset);
    places.dedup();
    // The files stay open as long as their paths are used.
    held.borrow_mut().push(found);
    Ok(places)
}

fn predicted(pid: u32, asked: &Asked, costs: &Calibration) -> Result<Prediction> {
    let (target, processes) = target(pid)?;
    let plan = asked.plan(&processes, costs)?;
    of_plan(&plan, &target, &processes, costs)
}

/// What a recording of these processes would cost while it is attached.
pub fn of_recording(
    args: &Record,
    processes: &[Process],
    costs: &Calibration,
) -> Result<Prediction> {
    check_namespace()?;
    let plan = own::plan_of_record(args, processes)?;
    let pids = processes.iter().map(|process| process.pid).collect();
    of_plan(&plan, &Target { pids }, processes, costs)
}

fn of_plan(
    plan: &Plan,
    target: &Target,
    processes: &[Process],
    costs: &Calibration,
) -> Result<Prediction> {
    let held = std::cell::RefCell::default();
    let resolve = |probe: &str| places(probe, processes, &held);
    let counted = count(target, &plan.hooks, &resolve).map_err(load_failure)?;
    let mut found = predict(plan, &counted, costs);
    found.notices.extend(observers::others(&[]));
    found.notices.extend(observers::unlike_cpus());
    found.notices.extend(
        costs
            .notices
            .iter()
            .map(|notice| format!("when calibrated, {notice}")),
    );
    Ok(found)
}

#[derive(Serialize)]
struct Predicted<'a> {
    kind: &'static str,
    command: &'a str,
    pid: u32,
    prediction: &'a Prediction,
}

fn predict_with(args: &args::Predict) -> Result<()> {
    let costs = known(args.whose.file.as_deref())?;
    let asked = Asked::read(&args.with)?;
    let found = predicted(args.whose.pid, &asked, &costs)?;
    let printed = Predicted {
        kind: "cost-predict",
        command: &args.with,
        pid: args.whose.pid,
        prediction: &found,
    };
    publish(args.whose.json, &printed, || {
        text::prediction(&found, &args.with)
    })
}

/// Runs the command in phases.
fn measured(args: &args::Verify, asked: &Asked, progress: &Progress) -> Result<Measured> {
    let pid = args.whose.pid;
    let (target, _) = target(pid)?;
    let tool = asked.words.first();
    let options = verify::Options {
        pairs: args.pairs.into(),
        phase: args.phase,
        seed: args.seed,
        by_elapsed: tool.is_some_and(|tool| tool.rsplit('/').next() == Some("strace")),
        begun: asked.own.then_some(own::BEGUN),
    };
    let stop = stop_on_signals()?;
    let state = file(None)?;
    let own = match asked.own {
        true => Some(Ready::new(
            &asked.words,
            pid,
            state.parent().unwrap_or(&state),
        )?),
        false => None,
    };
    let ready = match &own {
        Some(own) => own.words.clone(),
        None => runnable(&asked.words, &target.pids),
    };
    let mut read = || progress.read(&target);
    let found = verify::verify(&target, &ready, &mut read, &options, &stop);
    found.map_err(|error| match error {
        VerifyError::Command { .. } | VerifyError::Progress(_) => Failure::usage(error),
        _ => Failure::machine(error),
    })
}

#[derive(Serialize)]
struct Verified<'a> {
    kind: &'static str,
    command: &'a str,
    pid: u32,
    prediction: Option<&'a Prediction>,
    measured: Option<&'a Measured>,
}

fn verify_with(args: &args::Verify) -> Result<()> {
    let pid = args.whose.pid;
    let asked = Asked::read(&args.with)?;
    let costs = known(args.whose.file.as_deref())?;
    // What can't be predicted of ours is measured all the same.
    let prediction = match predicted(pid, &asked, &costs) {
        Err(_) if asked.own && args.progress.is_some() => None,
        found => Some(found?),
    };
    let measured = match &args.progress {
        None => None,
        Some(progress) => Some(measured(args, &asked, progress)?),
    };
    let printed = Verified {
        kind: "cost-verify",
        command: &args.with,
        pid,
        prediction: prediction.as_ref(),
        measured: measured.as_ref(),
    };
    publish(args.whose.json, &printed, || {
        text::verdict(prediction.as_ref(), measured.as_ref())
    })
}

#[derive(Serialize)]
struct Advised<'a> {
    kind: &'static str,
    pid: u32,
    budget: f64,
    ways: &'a [Advice],
}

fn advise_within(args: &args::Advise) -> Result<()> {
    let pid = args.whose.pid;
    let costs = known(args.whose.file.as_deref())?;
    let (target, _) = target(pid)?;
    let switches = [command::Hook {
        name: "context switches".into(),
        rate: Rate::Switches,
        kinds: vec!["switch.sampled"],
        share: Estimate::exact(1.0),
    }];
    let none = |_: &str| Ok(Vec::new());
    let counted = count(&target, &switches, &none).map_err(load_failure)?;
    if counted.cpu < 0.002 {
        return Err(Failure::machine(
            "can't advise: the program hardly ran; ask again while it works",
        ));
    }
    let ways = advise(pid, args.budget, &counted, &costs, own_cache());
    let printed = Advised {
        kind: "cost-advise",
        pid,
        budget: args.budget,
        ways: &ways,
    };
    publish(args.whose.json, &printed, || {
        text::advice(&ways, args.budget)
    })
}
