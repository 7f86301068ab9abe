//! What `tailscope cost` prints for people.

use tailscope_cost::advise::Advice;
use tailscope_cost::phases::Measured;
use tailscope_cost::predict::{Part, Prediction};
use tailscope_cost::{Calibration, Estimate, KINDS, KindCost};

use crate::units::{count, rate};

/// ns with three digits that count.
fn ns(value: f64) -> String {
    match value.abs() {
        v if v < 99.95 => format!("{value:.1}"),
        v if v < 9_999.5 => format!("{value:.0}"),
        _ => format!("{:.1} µs", value / 1e3),
    }
}

/// A cost, or the bound where it is below the noise.
fn cost(of: Estimate) -> String {
    if of.is_below_noise() {
        format!("< {}", ns(of.high.max(0.1)))
    } else {
        ns(of.value)
    }
}

fn half(of: Estimate) -> String {
    match of.is_below_noise() {
        true => "-".into(),
        false => format!("{:.1} %", of.relative() * 100.0),
    }
}

/// A share of time: `1.2 %`, or the bound where it is below the noise.
fn share(of: Estimate) -> String {
    if of.is_below_noise() && of.value >= 0.0 && of.low == 0.0 {
        return format!("< {}", percent(of.high.max(1e-5)));
    }
    with_interval(of)
}

/// A share of time and its interval.
pub fn with_interval(of: Estimate) -> String {
    format!(
        "{} ({} to {})",
        percent(of.value),
        percent(of.low),
        percent(of.high)
    )
}

/// A share of time.
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent.abs() {
        p if p < 0.0995 => format!("{percent:.3} %"),
        p if p < 9.95 => format!("{percent:.2} %"),
        _ => format!("{percent:.1} %"),
    }
}

/// The table of kinds.
pub fn calibration(of: &Calibration) -> String {
    let mut text = String::new();
    for notice in &of.notices {
        text += &format!("note: {notice}\n");
    }
    text += &format!(
        "{}\nkernel {}\nhypervisor {}\n{} rounds in {:.1} s\n\n",
        of.machine.cpu, of.machine.kernel, of.machine.hypervisor, of.rounds, of.seconds
    );
    text += "    ns a hit   interval   all runs  kind\n";
    for kind in KINDS {
        if let Some(found) = of.kinds.iter().find(|cost| cost.kind == kind.name) {
            text += &format!(
                "{:>12} {:>10} {:>10}  {}\n",
                cost(found.ns),
                half(found.ns),
                all_runs(found),
                kind.name,
            );
        }
    }
    text += "\nnot available here\n";
    for (kind, why) in &of.absent {
        text += &format!("  {kind}: {why}\n");
    }
    text + "\ninterval: half of the 95 % interval of this run\n\
            all runs: the same with how far runs on this machine lie apart; predictions use it\n\
            kinds:    docs/how-to/know-what-observing-costs.md\n"
}

fn all_runs(of: &KindCost) -> String {
    match of.earlier.is_empty() {
        true => "-".into(),
        false => half(of.with_earlier()),
    }
}

/// Of more hooks those that were not hit are not shown one by one.
const FEW: usize = 8;

/// A prediction.
pub fn prediction(of: &Prediction, command: &str) -> String {
    let mut text = match of.slowdown {
        Some(slowdown) => format!(
            "predicted: {} more time for the same work\n",
            share(slowdown)
        ),
        None => "not predicted: a part of the cost is not known\n".to_owned(),
    };
    for notice in &of.notices {
        text += &format!("note: {notice}\n");
    }
    text += &format!("by {command}\n\n");
    text += "       hits/s    ns a hit  share of CPU time             hook\n";
    let hit = |part: &&Part| part.per_second.value > 0.0 || part.unknown.is_some();
    let shown: Vec<&Part> = match of.parts.len() {
        0..=FEW => of.parts.iter().collect(),
        _ => of.parts.iter().filter(hit).collect(),
    };
    for part in &shown {
        text += &format!(
            "{:>13} {:>11}  {:<28}  {}\n",
            rate(part.per_second.value),
            part.ns.map_or("?".into(), cost),
            part.share.map_or("?".into(), share),
            part.hook
        );
        if let Some(why) = &part.unknown {
            text += &format!("{:>28}{why}\n", "");
        }
    }
    let left_out = of.parts.len() - shown.len();
    if left_out > 0 {
        text += &format!("and {left_out} hooks that were not hit while it counted\n");
    }
    let effort = of.effort_share.map_or("an unknown share".into(), |share| {
        format!("at most {:.3} %", share * 100.0)
    });
    let hits = of.effort.tracepoint_hits + of.effort.probe_hits + of.effort.stepped_hits;
    text += &format!(
        "\nThe program used {:.3} s of CPU time a second. Counting took {:.2} s and {effort} of that \
         time\n({} hits were counted).\n",
        of.cpu,
        of.effort.seconds,
        count(hits)
    );
    text + "The interval holds calibration and counting. Caches that are colder in the program than in\n\
            the calibration are not in it.\n"
}

/// Predicted beside measured.
pub fn verdict(predicted: Option<&Prediction>, measured: Option<&Measured>) -> String {
    let mut text = String::new();
    let expected = predicted.and_then(|prediction| prediction.slowdown);
    let found = measured.and_then(|measured| measured.slowdown);
    text += match (expected, found) {
        (Some(a), Some(b)) if a.low <= b.high && b.low <= a.high => {
            "the intervals of prediction and measurement meet\n"
        }
        (Some(_), Some(_)) => "the measurement does not meet the prediction\n",
        (Some(_), None) => "predicted, not verified\n",
        (None, Some(_)) => "measured, not predicted\n",
        (None, None) => "neither predicted nor measured\n",
    };
    let shown = |of: Option<Estimate>| of.map_or("not known".into(), share);
    text += &format!(
        "  predicted  {}\n  measured   {}\n",
        shown(expected),
        shown(found)
    );
    if let Some(measured) = measured {
        text += &format!(
            "  by {} time for the same progress, in {} pairs of phases\n",
            measured.by, measured.pairs
        );
        for notice in &measured.notices {
            text += &format!("note: {notice}\n");
        }
    }
    for notice in predicted
        .into_iter()
        .flat_map(|prediction| &prediction.notices)
    {
        text += &format!("note: {notice}\n");
    }
    text
}

/// Ways to sample within a budget.
pub fn advice(ways: &[Advice], budget: f64) -> String {
    let mut text = format!(
        "within {:.3} % more time for the same work, up to the upper end of the prediction:\n\n",
        budget * 100.0
    );
    for way in ways {
        text += &format!("{}\n", way.way);
        match (&way.command, way.slowdown) {
            (Some(command), Some(slowdown)) => {
                text += &format!("  {command}\n  predicted: {}\n", share(slowdown));
                if !way.why.is_empty() {
                    text += &format!("  {}\n", way.why);
                }
            }
            _ => text += &format!("  not within the budget: {}\n", way.why),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_below_the_noise_is_a_bound() {
        let noise = Estimate {
            value: 3.0,
            low: -1.0,
            high: 7.0,
        };
        assert_eq!(cost(noise), "< 7.0");
        let none = Estimate {
            value: 0.0,
            low: 0.0,
            high: 0.0,
        };
        assert_eq!(share(none), "< 0.001 %");
        assert_eq!(share(Estimate::exact(0.012)), "1.20 % (1.20 % to 1.20 %)");
    }
}
