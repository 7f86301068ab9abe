//! The report of an observation, as text.

use std::fmt::Write;

use tailscope_observe::Report;
use tailscope_observe::report::{ByTag, Distribution, Effect, Rate, Ratios, Value};
use tailscope_observe::self_test::{Cost, Counters, SelfTest};

use super::joint;
use crate::units::{bytes, count, rate};

/// Values of tags that are shown; `--json` has more.
const SHOWN: usize = 12;

fn optional(value: Option<f64>, shown: impl Fn(f64) -> String) -> String {
    value.map_or_else(|| "-".into(), shown)
}

fn percent(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}

/// The report; its tables are at most so many columns wide.
pub fn report(report: &Report, width: usize) -> String {
    let mut text = String::new();
    let mut line = |words: String| {
        let _ = writeln!(text, "{words}");
    };
    line(of_run(report));
    line(String::new());
    tell_rates(report, width, &mut line);
    if let Some(tags) = &report.by_tag {
        line(of_tags(tags));
    }
    tell_dropped(report, &mut line);
    tell_observer(report, &mut line);
    tell_effect(report, &mut line);
    if let Some(raw) = &report.raw {
        line(format!(
            "raw samples            {} written ({}, {} files), {} lost: {}",
            count(raw.samples),
            bytes(raw.bytes),
            raw.files,
            count(raw.lost),
            raw.folder.display(),
        ));
    }
    for notice in &report.notices {
        line(format!("note: {notice}"));
    }
    text
}

/// How much was sampled, how often, and from where.
fn of_run(report: &Report) -> String {
    let period = match report.period {
        Some(cycles) => format!("every {} cycles", count(cycles)),
        None => "without waiting".into(),
    };
    let beside = report.observed_cpu.map_or_else(String::new, |cpu| {
        format!(", {} as CPU {cpu}", report.placement)
    });
    format!(
        "{} samples in {:.1} s ({}), {period}, from CPU {}{beside}",
        count(report.samples),
        report.seconds,
        report.end,
        report.cpu,
    )
}

/// Each counter's rate, and those of the first two together.
fn tell_rates(report: &Report, width: usize, line: &mut impl FnMut(String)) {
    for rate in &report.rates {
        line(of_counter(rate, report.clock_hz));
    }
    if let Some(ratio) = report.ratio {
        line(format!(
            "the first counter divided by the second  {ratio:.4}; correlation of their rates  {}",
            optional(report.correlation, |value| format!("{value:.3}")),
        ));
        if let Some(ratios) = &report.ratios {
            line(of_ratios(ratios));
        }
        line(String::new());
    }
    if let ([first, second, ..], Some(cells)) = (report.rates.as_slice(), &report.joint) {
        line(joint::text([&first.signal, &second.signal], cells, width));
    }
}

/// How many pairs of samples the rates are of, why others were dropped, and which can't be right.
fn tell_dropped(report: &Report, line: &mut impl FnMut(String)) {
    line(format!(
        "pairs of samples kept  {} of {}; dropped: {} whose clock readings disagreed by more than {}{}, {}",
        optional(report.kept_share, percent),
        count(report.kept + report.disagreed + report.preempted),
        count(report.disagreed),
        percent(report.tolerance),
        if report.clock_step > 1 {
            format!(" or a step of {} cycles", report.clock_step)
        } else {
            String::new()
        },
        if report.preemption_noticed {
            format!("{} across a preemption", count(report.preempted))
        } else {
            "preemptions can't be detected here".into()
        },
    ));
    if let Some(impossible) = &report.impossible {
        line(format!(
            "impossible rates       {} of all pairs, {} of those kept",
            count(impossible.all),
            count(impossible.kept),
        ));
    }
}

/// The observer's own regularity: its periods, what a sample took, and where it was held up.
fn tell_observer(report: &Report, line: &mut impl FnMut(String)) {
    line(format!(
        "period, cycles         {}",
        spread(&report.periods)
    ));
    line(format!("within a sample        {}", spread(&report.reads)));
    line(format!(
        "gaps of the observer   {} of ten periods and more, {} of the time, the longest {} cycles",
        count(report.gaps.count),
        percent(report.gaps.share),
        count(report.gaps.longest as u64),
    ));
}

/// What observing took from the application, and from its budget if there is one.
fn tell_effect(report: &Report, line: &mut impl FnMut(String)) {
    line(match &report.effect {
        Some(effect) => format!(
            "observing took         {} of the speed of {} (95 %: {} to {}, {} pauses)",
            percent(effect.share),
            report.progress,
            percent(effect.low),
            percent(effect.high),
            effect.phases,
        ),
        None => format!(
            "observing took         unknown: too few pauses, or {} grew too rarely",
            report.progress
        ),
    });
    if let (Some(budget), Some(effect)) = (report.budget, &report.effect) {
        line(format!(
            "                       {} the budget of {}",
            verdict(effect, budget),
            percent(budget)
        ));
    }
}

/// How what it took compares with what it may take.
fn verdict(effect: &Effect, budget: f64) -> &'static str {
    if effect.high <= budget {
        "within"
    } else if effect.low <= budget {
        "about at"
    } else {
        "above"
    }
}

fn spread(of: &Distribution) -> String {
    let shown = |value: Option<f64>| optional(value, |value| format!("{value:.0}"));
    format!(
        "p1 {}  p50 {}  p90 {}  p99 {}  p99.9 {}  max {:.0}",
        shown(of.p1),
        shown(of.p50),
        shown(of.p90),
        shown(of.p99),
        shown(of.p999),
        of.max
    )
}

fn of_counter(counter: &Rate, hz: u64) -> String {
    let shown = |value: Option<f64>| optional(value, rate);
    let each = counter
        .per_cycle
        .filter(|rate| *rate > 0.0)
        .map_or_else(String::new, |rate| {
            format!(", one in {:.1} cycles", 1.0 / rate)
        });
    let kept = &counter.kept;
    let fastest = if counter.all.max > kept.max * 1.01 {
        format!(
            " (dropped pairs showed up to {}, {:.1} a cycle)",
            rate(counter.all.max),
            counter.all.max / hz.max(1) as f64
        )
    } else {
        String::new()
    };
    format!(
        "{}\n  {}{each}; {}\n  by sample: p1 {}  p10 {}  p50 {}  p90 {}  p99 {}  max {}{fastest}\n",
        counter.signal,
        shown(counter.per_second),
        counter.how,
        shown(kept.p1),
        shown(kept.p10),
        shown(kept.p50),
        shown(kept.p90),
        shown(kept.p99),
        rate(kept.max),
    )
}

fn of_ratios(ratios: &Ratios) -> String {
    let shown = |value: Option<f64>| optional(value, |value| format!("{value:.4}"));
    let kept = &ratios.kept;
    let without = match ratios.without {
        0 => String::new(),
        without => format!("; in {} pairs the second did not grow", count(without)),
    };
    format!(
        "  by sample: p1 {}  p10 {}  p50 {}  p90 {}  p99 {}  max {:.4}{without}",
        shown(kept.p1),
        shown(kept.p10),
        shown(kept.p50),
        shown(kept.p90),
        shown(kept.p99),
        kept.max,
    )
}

fn of_tags(tags: &ByTag) -> String {
    let mut text = format!(
        "by {} ({} values; {} of the time it changed between two samples)\n",
        tags.signals.join(", "),
        count(tags.distinct as u64),
        percent(tags.changed_share),
    );
    if let Some(functions) = &tags.functions {
        for function in functions.iter().take(SHOWN) {
            let rates = function.per_second.as_deref().unwrap_or_default();
            let rates: Vec<String> = rates.iter().map(|r| optional(*r, rate)).collect();
            let _ = writeln!(
                text,
                "  {:>18}  {:>8}  {:>10} samples  {}",
                function.name.as_deref().unwrap_or("(unknown)"),
                percent(function.share),
                count(function.samples),
                rates.join("  "),
            );
        }
        text += "  by place in these functions\n";
    }
    for value in tags.values.iter().take(SHOWN) {
        let name = name_of(value);
        let rates = value.per_second.as_deref().unwrap_or_default();
        let rates: Vec<String> = rates
            .iter()
            .zip(&value.deviation)
            .map(|(mean, deviation)| {
                optional(*mean, |mean| {
                    format!("{} ± {}", rate(mean), rate(*deviation))
                })
            })
            .collect();
        let _ = writeln!(
            text,
            "  {name:>18}  {:>8}  {:>10} samples  {}",
            percent(value.share),
            count(value.samples),
            rates.join("  "),
        );
    }
    if tags.values.len() > SHOWN {
        let _ = writeln!(text, "  … {} more with --json", tags.values.len() - SHOWN);
    }
    text
}

/// What a value of the tags is called.
fn name_of(value: &Value) -> String {
    let (Some(tags), Some(names)) = (&value.tags, &value.names) else {
        return "others".into();
    };
    let words = tags
        .iter()
        .zip(names)
        .map(|(number, name)| name.clone().unwrap_or_else(|| number.to_string()));
    words.collect::<Vec<_>>().join(", ")
}

/// What a sample takes.
pub fn self_test(test: &SelfTest, writer: Option<u32>) -> String {
    let row = |name: &str, cost: &Cost| {
        format!(
            "{name:<36} {:>8.1} {:>9.1} {:>8.1} {:>14.1}\n",
            cost.load, cost.floor, cost.clocked, cost.analysed
        )
    };
    let mut text = format!(
        "{:<36} {:>8} {:>9} {:>8} {:>14}\n",
        format!("cycles a sample, on CPU {}", test.cpu),
        "counter",
        "floor",
        "sample",
        "with analysis"
    );
    text += &row("nobody writes the counter", &test.quiet);
    match (&test.contended, writer) {
        (Some(cost), Some(cpu)) => {
            text += &row(&format!("CPU {cpu} writes it as fast as it can"), cost);
        }
        _ => text += "(no other CPU may be used: not measured with a writer)\n",
    }
    text += &match &test.counters {
        Counters::Counted {
            executed,
            instructions,
            cycles,
            ipc,
        } => format!(
            "hardware counters: {} instructions of {}, {} cycles, IPC {ipc:.4}\n",
            count(*instructions),
            count(*executed),
            count(*cycles)
        ),
        Counters::None { why } => format!("hardware counters: none ({why})\n"),
    };
    text
}
