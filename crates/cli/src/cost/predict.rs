//! `tailscope cost predict`: the hooks of a command in a process, and what they cost there.

use std::cell::RefCell;

use anyhow::Result;
use serde::Serialize;
use tailscope_cost::command::{self, Machine, Plan, split};
use tailscope_cost::count::{Place, count};
use tailscope_cost::predict::{Prediction, predict};
use tailscope_cost::target::Target;
use tailscope_cost::{Calibration, observers};
use tailscope_kernel::{PidNamespace, Spot};
use tailscope_record::{Process, ResolvedProbes, SpanSource};

use super::calibrate::known;
use super::{args, own, publish, text};
use crate::failure::Failure;
use crate::subject::{load_failure, targets};

/// Hits are counted by numbers of processes that a nested namespace does not know.
pub fn check_namespace() -> Result<()> {
    match PidNamespace::here().map_err(Failure::machine)? {
        PidNamespace::Initial => Ok(()),
        _ => Err(Failure::machine(
            "can't count hits in a nested PID namespace, such as a container's; run with --pid=host",
        )),
    }
}

/// The process and what it made.
pub(super) fn target(pid: u32) -> Result<(Target, Vec<Process>)> {
    check_namespace()?;
    let processes = targets(&[pid], &[], false, "predict")?;
    let pids = processes.iter().map(|process| process.pid).collect();
    Ok((Target { pids }, processes))
}

/// A command line that is to be predicted for a process.
pub(super) struct Asked {
    pub(super) words: Vec<String>,
    /// Whether it is one of ours.
    pub(super) own: bool,
}

impl Asked {
    pub(super) fn read(line: &str) -> Result<Self> {
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
    held: &RefCell<Vec<ResolvedProbes>>,
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

pub(super) fn predicted(pid: u32, asked: &Asked, costs: &Calibration) -> Result<Prediction> {
    let (target, processes) = target(pid)?;
    let plan = asked.plan(&processes, costs)?;
    of_plan(&plan, &target, &processes, costs)
}

/// What an observer with this plan would cost these processes while it is attached.
pub fn while_attached(
    plan: &Plan,
    processes: &[Process],
    costs: &Calibration,
) -> Result<Prediction> {
    check_namespace()?;
    let pids = processes.iter().map(|process| process.pid).collect();
    of_plan(plan, &Target { pids }, processes, costs)
}

fn of_plan(
    plan: &Plan,
    target: &Target,
    processes: &[Process],
    costs: &Calibration,
) -> Result<Prediction> {
    let held = RefCell::default();
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

pub(super) fn predict_with(args: &args::Predict) -> Result<()> {
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
