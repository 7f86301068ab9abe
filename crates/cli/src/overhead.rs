//! `--overhead`, for every command that observes: attached for that part of the time that the budget
//! allows.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use anyhow::Result;
use tailscope_cost::budget::{Budget, Next, SHORTEST};
use tailscope_cost::command::Plan;
use tailscope_cost::duty_cycle::{DutyCycle, Spent};
use tailscope_cost::predict::Prediction;
use tailscope_cost::program::Program;
use tailscope_record::Process;
use tailscope_record::quantity::parse_probability;

use crate::cost::{self, percent, with_interval};
use crate::failure::Failure;
use crate::screen::Screen;
use crate::units::time;

/// How often a rest is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// What was asked for.
pub struct Asked<'a> {
    /// By which share the program may be slower.
    pub budget: f64,
    /// How long it all takes, if somebody said so.
    pub duration: Option<Duration>,
    /// The processes that are observed, and whether those count that they make.
    pub processes: &'a [Process],
    pub children: bool,
    /// What the observer does while it is attached: "record", "watch".
    pub verb: &'static str,
    /// What costs less, for who asks for too little.
    pub cheaper: &'static str,
}

impl Asked<'_> {
    /// Predicts what the observer costs, and says so. To be called right before it attaches.
    ///
    /// # Errors
    /// The machine can't be calibrated, or the budget can't be held.
    pub fn begin(&self, screen: &Screen, plan: &Plan) -> Result<Budget> {
        cost::check_namespace()?;
        let costs = cost::known_or_calibrated(screen)?;
        let pids: Vec<u32> = self.processes.iter().map(|process| process.pid).collect();
        let predict = || cost::while_attached(plan, self.processes, &costs);
        let (program, prediction) = Program::seen_during(&pids, self.children, predict);
        let prediction = prediction?;
        let cycle = DutyCycle::new(self.budget, prediction.slowdown);
        self.check(&cycle)?;
        screen.say(&self.expected(&prediction, &cycle));
        Ok(Budget::begin(program, cycle, self.duration))
    }

    /// A budget that can't be held is an error before anything is attached.
    fn check(&self, cycle: &DutyCycle) -> Result<()> {
        let (budget, verb) = (percent(self.budget), self.verb);
        if cycle.is_too_small() {
            return Err(Failure::usage(format!(
                "an overhead of {budget} leaves no time to {verb}: choose a larger one, or {}",
                self.cheaper
            )));
        }
        match self.duration {
            Some(duration) if cycle.with(Some(duration)) < SHORTEST => {
                let needed = SHORTEST.div_f64(cycle.share()) + Duration::from_secs(1);
                Err(Failure::usage(format!(
                    "an overhead of {budget} leaves less than {} of {} to {verb}: {verb} for {} s at least, or \
                     allow more",
                    time(SHORTEST.as_nanos() as u64),
                    time(duration.as_nanos() as u64),
                    needed.as_secs()
                )))
            }
            _ => Ok(()),
        }
    }

    fn expected(&self, prediction: &Prediction, cycle: &DutyCycle) -> String {
        let share = percent(cycle.share());
        let so = match prediction.slowdown {
            Some(_) => "so it is attached for",
            None => "it begins with",
        };
        format!("{}; {so} {share} of the time", predicted(prediction))
    }
}

/// What it would cost to be attached all of the time.
pub fn predicted(prediction: &Prediction) -> String {
    if let Some(slowdown) = prediction.slowdown {
        return format!(
            "predicted: attached all of the time, it would slow the program down by {}",
            with_interval(slowdown)
        );
    }
    let mut parts = prediction.parts.iter();
    let why = parts.find_map(|part| part.unknown.clone());
    format!(
        "the overhead is not predicted ({})",
        why.unwrap_or_else(|| "the program hardly ran while it was counted".to_owned())
    )
}

/// Rests until the observer attaches again. `ended`: whether there is nothing left to observe.
pub fn rest(budget: &mut Budget, stop: &AtomicBool, mut ended: impl FnMut() -> bool) -> Rested {
    loop {
        if stop.load(Ordering::Relaxed) {
            return Rested::Stopped;
        }
        if ended() {
            return Rested::Ended;
        }
        let rested = match budget.next() {
            Next::Rest => {
                sleep(LOOK);
                continue;
            }
            Next::Attach => Rested::Attach,
            Next::Over => Rested::Over,
        };
        budget.rested();
        return rested;
    }
}

/// Why a rest is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rested {
    /// The observer attaches again.
    Attach,
    /// The time is over.
    Over,
    /// There is nothing left to observe.
    Ended,
    /// A signal came.
    Stopped,
}

/// What it came to.
pub fn said(spent: &Spent, budget: f64) -> String {
    let of = format!(
        "of {} that were allowed; attached for {} of the time",
        percent(budget),
        percent(spent.share)
    );
    match (spent.overall, spent.predicted) {
        (Some(measured), _) => format!(
            "overhead: {} measured in {} pairs of phases, {of}",
            with_interval(measured),
            spent.while_attached.pairs
        ),
        (None, Some(predicted)) => format!(
            "overhead: {} predicted and not measured ({}), {of}",
            with_interval(predicted),
            spent.while_attached.notices.join("; ")
        ),
        (None, None) => format!("overhead: not known, {of}"),
    }
}

/// A share of a program's time, less than all of it.
pub fn parse_overhead(text: &str) -> Result<f64, String> {
    match parse_probability(text).map_err(|e| e.to_string())? {
        share if share < 1.0 => Ok(share),
        _ => Err(format!("'{text}' is no bound; write a share such as 1%")),
    }
}
