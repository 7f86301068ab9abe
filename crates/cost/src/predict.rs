//! What a command would cost a program: how often its hooks are hit, times what a hit costs.
//!
//! Two laws are kept apart. What happens in the program's own time (calls, switches) adds to each
//! second of work: time grows by the factor 1 + α·rate. Samples by the clock take their share of each
//! second, whatever the program does: 1 − α·rate of it is left.

use serde::Serialize;

use crate::calibration::Calibration;
use crate::command::{Hook, Plan, Rate};
use crate::count::{Counted, Effort};
use crate::statistics::Estimate;

/// Less CPU time (seconds a second) is too little to say a share of.
const LEAST_CPU: f64 = 0.002;
/// An interval of more than this share on either side is worth a word.
const WIDE: f64 = 0.5;

/// One hook's part.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Part {
    /// The hook.
    pub hook: String,
    /// Hits a second.
    pub per_second: Estimate,
    /// ns a hit, if it is known.
    pub ns: Option<Estimate>,
    /// The share of the program's CPU time that it adds, if it is known.
    pub share: Option<Estimate>,
    /// Why something is not known.
    pub unknown: Option<String>,
}

/// What a command would cost.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Prediction {
    /// How much more CPU time the same work takes: 0.01 is 1 %. `None`: some part is not known.
    pub slowdown: Option<Estimate>,
    /// The hooks' parts.
    pub parts: Vec<Part>,
    /// CPU time of the program, in seconds a second.
    pub cpu: f64,
    /// What counting took.
    pub effort: Effort,
    /// What counting cost the program, as a share of its CPU time, if that is known.
    pub effort_share: Option<f64>,
    /// What makes it doubtful.
    pub notices: Vec<String>,
}

/// Puts counts and costs together.
#[must_use]
pub fn predict(plan: &Plan, counted: &Counted, costs: &Calibration) -> Prediction {
    let mut notices = plan.notices.clone();
    let parts: Vec<Part> = plan
        .hooks
        .iter()
        .zip(&counted.hooks)
        .map(|(hook, found)| {
            let ns = cost_of(hook, found.stepped, costs);
            let ran = counted.cpu >= LEAST_CPU;
            let share = ns.as_ref().ok().filter(|_| found.unknown.is_none() && ran);
            let share = share.map(|ns| {
                let hits = found.rate.times(hook.share);
                hits.times(*ns).scaled(1e-9 / counted.cpu)
            });
            let why = found.unknown.clone().or(ns.as_ref().err().cloned());
            Part {
                hook: hook.name.clone(),
                per_second: found.rate.times(hook.share),
                ns: ns.ok(),
                share,
                unknown: why,
            }
        })
        .collect();
    if counted.cpu < LEAST_CPU {
        notices.push(format!(
            "the program ran for only {:.1} ms a second, so the share is not known; ask again while \
             it works",
            counted.cpu * 1e3
        ));
    }
    let slowdown = total(plan, &parts);
    if slowdown.is_some_and(|found| found.relative() > WIDE) {
        notices.push(
            "the interval is so wide that the figure is an order of magnitude: the costs of a hit or the \
             rates vary that much"
                .into(),
        );
    }
    Prediction {
        slowdown,
        cpu: counted.cpu,
        effort: counted.effort,
        effort_share: effort(counted, costs),
        parts,
        notices,
    }
}

/// ns of one hit of a hook, or which kind is missing.
fn cost_of(hook: &Hook, stepped: bool, costs: &Calibration) -> Result<Estimate, String> {
    let mut sum = Estimate::exact(0.0);
    for kind in &hook.kinds {
        let kind = if stepped && *kind == "uprobe" {
            "uprobe.stepped"
        } else {
            kind
        };
        let cost = costs.cost(kind).ok_or_else(|| {
            format!(
                "no cost of {kind} on this machine: {}",
                costs.why_absent(kind)
            )
        })?;
        // Below the noise: from nothing to the bound.
        let cost = Estimate {
            value: cost.value.max(0.0),
            low: cost.low.max(0.0),
            high: cost.high.max(0.0),
        };
        sum = sum.plus(cost);
    }
    Ok(sum)
}

/// Both laws together.
fn total(plan: &Plan, parts: &[Part]) -> Option<Estimate> {
    let (mut added, mut taken) = (Estimate::exact(0.0), Estimate::exact(0.0));
    for (hook, part) in plan.hooks.iter().zip(parts) {
        let share = part.share?;
        match hook.rate {
            Rate::PerCpuSecond(_) => taken = taken.plus(share),
            _ => added = added.plus(share),
        }
    }
    let factor =
        |added: f64, taken: f64| (1.0 + added.max(0.0)) / (1.0 - taken.clamp(0.0, 0.99)) - 1.0;
    Some(Estimate {
        value: factor(added.value, taken.value),
        low: factor(added.low, taken.low),
        high: factor(added.high, taken.high),
    })
}

/// What counting cost the program.
fn effort(counted: &Counted, costs: &Calibration) -> Option<f64> {
    let effort = counted.effort;
    let body = costs.cost("payload.map")?.value;
    let mut ns = 0.0;
    for (hits, kind) in [
        (effort.tracepoint_hits, "rawtracepoint"),
        (effort.probe_hits, "uprobe"),
        (effort.stepped_hits, "uprobe.stepped"),
    ] {
        if hits > 0 {
            // Up to the bound: this is promised to be small.
            ns += hits as f64 * (costs.cost(kind)?.high + 2.0 * body);
        }
    }
    let cpu_ns = counted.cpu * counted.effort.seconds * 1e9;
    (counted.cpu >= LEAST_CPU).then(|| ns / cpu_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibration::KindCost;
    use crate::count::HookRate;
    use crate::identity::Identity;

    fn costs(kinds: &[(&str, f64, f64)]) -> Calibration {
        let mut costs = Calibration::new(Identity::default(), 0);
        for (kind, value, half) in kinds {
            costs.kinds.push(KindCost {
                kind: (*kind).to_owned(),
                ns: Estimate {
                    value: *value,
                    low: value - half,
                    high: value + half,
                },
                loops: 1.0,
                hits: 1,
                earlier: Vec::new(),
            });
        }
        costs
    }

    fn counted(rates: &[f64], cpu: f64) -> Counted {
        let hooks = rates.iter().map(|rate| HookRate {
            rate: Estimate::exact(*rate),
            stepped: false,
            unknown: None,
        });
        Counted {
            hooks: hooks.collect(),
            cpu,
            threads: 1,
            effort: Effort::default(),
        }
    }

    fn plan(rate: Rate, kinds: &[&'static str]) -> Plan {
        let mut plan = Plan::default();
        plan.hook("x", rate, kinds);
        plan
    }

    #[test]
    fn hits_add_to_the_work_and_samples_take_from_the_time() {
        let calls = plan(Rate::Tracepoint("x".into()), &["tracepoint"]);
        let found = predict(
            &calls,
            &counted(&[100_000.0], 1.0),
            &costs(&[("tracepoint", 1000.0, 0.0)]),
        );
        assert!((found.slowdown.expect("known").value - 0.1).abs() < 1e-9);
        let samples = plan(Rate::PerCpuSecond(10_000.0), &["sample.cpu-clock"]);
        let costs = costs(&[("sample.cpu-clock", 10_000.0, 0.0)]);
        let found = predict(&samples, &counted(&[10_000.0], 1.0), &costs);
        assert!((found.slowdown.expect("known").value - 1.0 / 9.0).abs() < 1e-9);
    }

    #[test]
    fn a_kind_that_is_not_there_leaves_the_sum_unknown() {
        let calls = plan(Rate::KernelFunction("x".into()), &["kprobe"]);
        let found = predict(&calls, &counted(&[1.0], 1.0), &costs(&[]));
        assert_eq!(found.slowdown, None);
        assert!(
            found.parts[0]
                .unknown
                .as_ref()
                .is_some_and(|why| why.contains("kprobe"))
        );
    }

    #[test]
    fn a_cost_below_the_noise_is_a_bound_and_not_0() {
        let calls = plan(Rate::Tracepoint("x".into()), &["tracepoint"]);
        let costs = costs(&[("tracepoint", -2.0, 12.0)]);
        let found = predict(&calls, &counted(&[1e6], 1.0), &costs)
            .slowdown
            .expect("known");
        assert!(found.low == 0.0 && found.high > 0.009, "{found:?}");
    }

    #[test]
    fn of_a_program_that_does_not_run_no_share_is_said() {
        let calls = plan(Rate::Switches, &["switch.perf"]);
        let found = predict(
            &calls,
            &counted(&[1.0], 0.0),
            &costs(&[("switch.perf", 300.0, 1.0)]),
        );
        assert_eq!(found.slowdown, None);
        assert!(found.notices[0].contains("hardly") || found.notices[0].contains("only"));
    }
}
