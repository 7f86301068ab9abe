//! How it was observed, what was lost, and all of it as text.

use tailscope_observe::Report;
use tailscope_timeline::escaped;

use super::figures::fact;
use crate::observe::text;
use crate::observe::text::percent;
use crate::units::{bytes, count};

/// The width of the text's tables: the page scrolls where it has less room.
const PAGE_COLUMNS: usize = 132;

/// The card.
pub fn of(report: &Report) -> String {
    let facts: String = facts(report)
        .iter()
        .map(|(title, text)| fact(title, text))
        .collect();
    format!(
        "<section><h2>How it was observed, and what was lost</h2>\n\
         <dl class=\"how\">{facts}</dl>\n<details><summary>All of it as text</summary>\
         <div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"All of it as text\">\
         <pre>{}</pre></div></details></section>\n",
        escaped(&text::report(report, PAGE_COLUMNS))
    )
}

fn facts(report: &Report) -> Vec<(&'static str, String)> {
    let mut facts = vec![
        ("observer", observer(report)),
        ("ended", report.end.clone()),
        ("pairs of samples", pairs(report)),
    ];
    if let Some(impossible) = &report.impossible {
        let text = format!(
            "{} of all pairs grew by more than {} a cycle, {} of those kept",
            count(impossible.all),
            impossible.most,
            count(impossible.kept)
        );
        facts.push(("impossible rates", text));
    }
    for rate in &report.rates {
        facts.push(("counter", format!("{}: {}", rate.signal, rate.how)));
    }
    for tag in report.by_tag.iter().flat_map(|tags| &tags.signals) {
        facts.push(("tag", tag.clone()));
    }
    facts.push((
        "progress",
        format!("{} tells the application's speed", report.progress),
    ));
    if let Some(raw) = &report.raw {
        let text = format!(
            "{} written ({}, {} files), {} lost: {}",
            count(raw.samples),
            bytes(raw.bytes),
            raw.files,
            count(raw.lost),
            raw.folder.display()
        );
        facts.push(("raw samples", text));
    }
    facts
}

fn observer(report: &Report) -> String {
    let beside = report.observed_cpu.map_or_else(String::new, |cpu| {
        format!(", {} as CPU {cpu}", report.placement)
    });
    let period = match report.period {
        Some(cycles) => format!("every {} cycles", count(cycles)),
        None => "as fast as it goes".into(),
    };
    format!(
        "CPU {}{beside}; {period}; {} samples in {:.1} s",
        report.cpu,
        count(report.samples),
        report.seconds
    )
}

fn pairs(report: &Report) -> String {
    format!(
        "{} kept; dropped: {} whose two readings of the clock disagreed by more than {} (Shim's \
         double-time error correction), {}",
        count(report.kept),
        count(report.disagreed),
        percent(report.tolerance),
        if report.preemption_noticed {
            format!(
                "{} across a preemption of the observer",
                count(report.preempted)
            )
        } else {
            "preemptions can't be told here".into()
        }
    )
}
