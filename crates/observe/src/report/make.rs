//! From what was seen to the report.

use std::collections::HashMap;

use super::context::Context;
use super::{
    ByTag, Curves, Distribution, Function, Gaps, Impossible, Rate, Ratios, Report, Slice, Value,
    notices,
};
use crate::analysis::{Analysis, Rates};
use crate::histogram::Histogram;
use crate::signal::Signal;
use crate::tags::Seen;

/// So many values of the tags are told; the rest together.
const TOLD_VALUES: usize = 50;

/// Puts both together.
pub(crate) fn report<const N: usize, const T: usize>(
    seen: &Analysis<N, T>,
    context: Context<'_>,
) -> Report {
    let hz = context.clock_hz as f64;
    let counts = seen.counts;
    let pairs = counts.kept + counts.disagreed + counts.preempted;
    let by_tag = (T > 0).then(|| by_tag(seen, context.tags, hz));
    let mut notices = notices::of(seen, &context);
    notices.extend(
        by_tag
            .iter()
            .flat_map(|tags| notices::of_tags(tags, context.counters)),
    );
    Report {
        notices,
        cpu: context.placement.cpu,
        observed_cpu: context.placement.observed,
        placement: if context.placement.same_core {
            "same core"
        } else {
            "other core"
        },
        clock_hz: context.clock_hz,
        seconds: context.seconds,
        end: context.end,
        period: context.period,
        samples: counts.samples,
        again: counts.again,
        kept: counts.kept,
        disagreed: counts.disagreed,
        preempted: counts.preempted,
        preemption_noticed: context.preemption_noticed,
        kept_share: (pairs > 0).then(|| counts.kept as f64 / pairs as f64),
        tolerance: context.tolerance.share(),
        clock_step: context.tolerance.step(),
        impossible: context.most.map(|most| Impossible {
            most,
            all: counts.impossible,
            kept: counts.impossible_kept,
        }),
        rates: rates(seen, context.counters, hz),
        ratio: ratio(seen),
        ratios: (N > 1).then(|| ratios(seen)),
        correlation: seen.together.correlation(),
        joint: (N > 1).then(|| joint(seen, hz)),
        by_tag,
        periods: Distribution::of(&seen.periods, 1.0),
        reads: Distribution::of(&seen.reads, 1.0),
        gaps: Gaps::of(&seen.periods),
        series: series(seen, hz),
        progress: context.progress,
        effect: context.effect,
        budget: context.budget,
        raw: context.raw,
        curves: curves(seen, hz),
    }
}

/// By counter, over all the time and by pair of samples.
fn rates<const N: usize, const T: usize>(
    seen: &Analysis<N, T>,
    counters: &[Signal],
    hz: f64,
) -> Vec<Rate> {
    let over = |cycles: u64| (cycles > 0).then(|| 1.0 / cycles as f64);
    let (kept, all) = (over(seen.counts.kept_cycles), over(seen.counts.cycles));
    let rate = |(signal, rates): (&Signal, &Rates)| {
        let per_cycle = kept.map(|one| rates.grown as f64 * one);
        Rate {
            signal: signal.name.clone(),
            how: signal.how.clone(),
            per_second: per_cycle.map(|rate| rate * hz),
            per_cycle,
            all_per_second: all.map(|one| rates.all_grown as f64 * one * hz),
            kept: Distribution::of(&rates.kept, hz),
            all: Distribution::of(&rates.all, hz),
            cells: per_second(&rates.kept, hz),
        }
    };
    counters.iter().zip(&seen.rates).map(rate).collect()
}

/// A histogram of rates a cycle, as rates a second and how often each came.
fn per_second(rates: &Histogram, hz: f64) -> Vec<(f64, u64)> {
    let cells = rates.cells().into_iter();
    cells.map(|(rate, count)| (rate * hz, count)).collect()
}

/// Instructions by cycles, say.
fn ratio<const N: usize, const T: usize>(seen: &Analysis<N, T>) -> Option<f64> {
    let [first, second, ..] = seen.rates.as_slice() else {
        return None;
    };
    (second.grown > 0).then(|| first.grown as f64 / second.grown as f64)
}

/// The same by pair of samples.
fn ratios<const N: usize, const T: usize>(seen: &Analysis<N, T>) -> Ratios {
    Ratios {
        kept: Distribution::of(&seen.ratios.kept, 1.0),
        without: seen.ratios.without,
        cells: seen.ratios.kept.cells(),
    }
}

/// The first two counters' rates together, in counts a second.
fn joint<const N: usize, const T: usize>(seen: &Analysis<N, T>, hz: f64) -> Vec<(f64, f64, u64)> {
    let cells = seen.joint.cells().into_iter();
    cells.map(|(x, y, n)| (x * hz, y * hz, n)).collect()
}

fn curves<const N: usize, const T: usize>(seen: &Analysis<N, T>, hz: f64) -> Curves {
    let all = seen.rates.iter();
    Curves {
        all: all.map(|rates| per_second(&rates.all, hz)).collect(),
        periods: seen.periods.cells(),
        reads: seen.reads.cells(),
    }
}

fn by_tag<const N: usize, const T: usize>(
    seen: &Analysis<N, T>,
    tags: &[Signal],
    hz: f64,
) -> ByTag {
    let all = seen.counts.kept_cycles.max(1) as f64;
    let hits = seen.counts.kept.max(1) as f64;
    let per_second = |seen: &Seen<N>| -> Option<Vec<Option<f64>>> {
        let per_second = |grown: &u64| Some(*grown as f64 / seen.cycles as f64 * hz);
        (seen.cycles > 0).then(|| seen.grown.iter().map(per_second).collect())
    };
    let value = |values: Option<Vec<u64>>, seen: &Seen<N>| Value {
        names: values.as_ref().map(|values| {
            let named = tags.iter().zip(values);
            named
                .map(|(signal, value)| signal.names.of(*value))
                .collect()
        }),
        tags: values,
        share: seen.hits as f64 / hits,
        samples: seen.samples,
        per_second: per_second(seen),
        deviation: (0..N).map(|i| seen.deviation(i) * hz).collect(),
    };
    let (values, others) = seen.tags.by_time();
    let in_code = tags.first().filter(|tag| tag.names.are_places());
    let functions = in_code.map(|tag| {
        let mut by_name: HashMap<Option<String>, Seen<N>> = HashMap::new();
        for (tags, seen) in &values {
            let name = tags
                .first()
                .and_then(|address| tag.names.function(*address));
            by_name.entry(name).or_default().join(seen);
        }
        let mut functions: Vec<Function> = by_name
            .into_iter()
            .map(|(name, seen)| Function {
                name,
                share: seen.hits as f64 / hits,
                samples: seen.samples,
                per_second: per_second(&seen),
            })
            .collect();
        functions.sort_by(|a, b| b.share.total_cmp(&a.share));
        functions
    });
    let told = values.len().min(TOLD_VALUES);
    let mut rest = others;
    values[told..].iter().for_each(|(_, seen)| rest.join(seen));
    let mut shown: Vec<Value> = values[..told]
        .iter()
        .map(|(tags, seen)| value(Some(tags.to_vec()), seen))
        .collect();
    if rest.hits > 0 {
        shown.push(value(None, &rest));
    }
    let (changed, changed_cycles) = seen.tags.changed();
    let grown = seen.tags.grown();
    let at_changes = |(rates, grown): (&Rates, u64)| {
        let missing = rates.grown.saturating_sub(grown);
        (rates.grown > 0).then(|| missing as f64 / rates.grown as f64)
    };
    ByTag {
        signals: tags.iter().map(|signal| signal.name.clone()).collect(),
        distinct: values.len(),
        values: shown,
        functions,
        changed,
        changed_share: changed_cycles as f64 / all,
        changed_grown: seen.rates.iter().zip(grown).map(at_changes).collect(),
    }
    .without_unknown()
}

fn series<const N: usize, const T: usize>(seen: &Analysis<N, T>, hz: f64) -> Vec<Slice> {
    let length = seen.series.length() as f64 / hz;
    seen.series
        .slices()
        .iter()
        .enumerate()
        .map(|(i, slice)| Slice {
            at: i as f64 * length,
            kept: slice.good,
            dropped: slice.dropped,
            per_second: (slice.cycles > 0).then(|| {
                let rate = |grown: &u64| *grown as f64 / slice.cycles as f64 * hz;
                slice.grown.iter().map(rate).collect()
            }),
        })
        .collect()
}
