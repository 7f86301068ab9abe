//! What should be known before the figures are believed.

use super::ByTag;
use super::context::Context;
use crate::analysis::Analysis;
use crate::signal::Signal;

/// By how much the rate of the pairs kept may differ from that of all before it is said.
const UNLIKE: f64 = 0.02;

pub(super) fn of<const N: usize, const T: usize>(
    seen: &Analysis<N, T>,
    context: &Context<'_>,
) -> Vec<String> {
    let mut notices = Vec::new();
    let cpu = context.placement.cpu;
    if context.placement.shared && !context.sleeps {
        notices.push(format!(
            "the application may also run on the observer's CPU {cpu}; keep it off with taskset"
        ));
    }
    if tailscope_signals::cut_short::happened() > 0 {
        notices.push(
            "a file with a signal was truncated during the observation, and reads as 0 since then; \
             observe again"
                .into(),
        );
    }
    let counts = seen.counts;
    let pairs = counts.kept + counts.disagreed + counts.preempted;
    if pairs > 0 && counts.kept * 10 < pairs * 9 {
        notices.push(
            "more than a tenth of the pairs were dropped because their readings disagree; \
             use a longer --period"
                .into(),
        );
    }
    let (step, period) = (context.tolerance.step(), seen.periods.quantile(0.5));
    if let Some(period) = period.filter(|p| step as f64 > p * context.tolerance.share() && step > 1)
    {
        notices.push(format!(
            "the clock advances by {step} cycles at a time, so readings can't be compared more \
             finely than to {:.1} % of a period",
            step as f64 / period.max(1.0) * 100.0
        ));
    }
    for (rates, signal) in seen.rates.iter().zip(context.counters) {
        let kept = rates.grown as f64 / counts.kept_cycles.max(1) as f64;
        let all = rates.all_grown as f64 / counts.cycles.max(1) as f64;
        if rates.all_grown == 0 {
            notices.push(format!("{} never changed", signal.name));
        } else if (kept / all - 1.0).abs() > UNLIKE {
            notices.push(format!(
                "the kept pairs show {:.1} % of the rate of {} over all pairs, so the \
                 dropped pairs differ; use a longer --period",
                kept / all * 100.0,
                signal.name
            ));
        }
    }
    let (values, _) = seen.tags.by_time();
    for (place, tag) in context.tags.iter().enumerate() {
        let of_tag = tag
            .names
            .notices(values.iter().map(|(tags, _)| tags[place]));
        for notice in of_tag {
            // Two tags of one process say the same.
            if !notices.contains(&notice) {
                notices.push(notice);
            }
        }
    }
    notices
}

/// Of counters whose rates by tag are unknown.
pub(super) fn of_tags(tags: &ByTag, counters: &[Signal]) -> Vec<String> {
    let grow = (0..)
        .zip(counters)
        .filter(|(i, _)| tags.grows_at_changes(*i));
    grow.map(|(i, signal)| {
        let share = tags.changed_grown[i].unwrap_or_default() * 100.0;
        let (name, tag) = (&signal.name, tags.signals.join(", "));
        format!(
            "the rates of {name} by {tag} are unknown: {share:.0} % of its growth was between samples \
             with different values"
        )
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags(changed_share: f64, changed_grown: Option<f64>) -> ByTag {
        ByTag {
            signals: vec!["running:0".into()],
            distinct: 0,
            values: Vec::new(),
            functions: None,
            changed: 0,
            changed_share,
            changed_grown: vec![changed_grown],
        }
    }

    #[test]
    fn only_growth_beyond_its_share_of_the_time_is_at_changes() {
        assert!(tags(0.01, Some(1.0)).grows_at_changes(0));
        // It grows evenly, and the tag changes nearly always.
        assert!(!tags(0.95, Some(0.95)).grows_at_changes(0));
        assert!(!tags(0.01, Some(0.02)).grows_at_changes(0));
        assert!(!tags(0.01, None).grows_at_changes(0));
    }
}
