//! The report of an observation as one self-contained page: the answer, pictures with the figures
//! behind them, and the account.
//!
//! No script, no font and no picture is fetched: the file can be mailed, archived and read offline.
//! Light or dark follows the reader's system; every picture is drawn twice, for a desk and a phone.

mod account;
mod axis;
mod cost;
mod course;
mod distribution;
mod evenness;
mod figures;
mod frame;
mod heat;
mod rates;
mod ratio;
mod svg;
mod tags;

use std::fmt::Write;

use tailscope_observe::Report;
use tailscope_timeline::escaped;

use crate::units::count;
use svg::percent;

/// The look that all reports of Tailscope have, `explain`'s too, and what only this one has.
const STYLE: [&str; 2] = [
    include_str!("../../../../../python/tailscope/present/page.css"),
    include_str!("page.css"),
];

/// The names of the counters' colours, in their order.
fn class(counter: usize) -> &'static str {
    ["one", "two", "three", "four"][counter % 4]
}

fn optional(value: Option<f64>, shown: impl Fn(f64) -> String) -> String {
    value.map_or_else(|| "–".into(), shown)
}

/// The file's text.
pub fn page(report: &Report) -> String {
    let first = report.rates.first();
    let title = first.map_or("", |rate| &rate.signal);
    let cards = [
        head(report),
        rates::of(report),
        ratio::of(report),
        tags::of(report),
        heat::of(report),
        cost::of(report),
        evenness::of(report),
        account::of(report),
    ];
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>{} · Tailscope</title><style>\n{}</style></head>\n<body><main>\n{}\
         <footer>Tailscope {}. Rates are by cycles of the machine's clock, which goes on at one speed.</footer>\n\
         </main></body></html>\n",
        escaped(title),
        STYLE.concat(),
        cards.concat(),
        env!("CARGO_PKG_VERSION"),
    )
}

/// The answer in words, the figures behind it, and what should be known before they are believed.
fn head(report: &Report) -> String {
    let beside = report.observed_cpu.map_or_else(String::new, |cpu| {
        format!(" ({} as CPU {cpu})", report.placement)
    });
    let mut html = format!(
        "<div class=\"kicker\">What <strong>tailscope observe</strong> saw from CPU {}{beside} \
         in {:.1} s</div>\n\
         <h1>{}</h1>\n<div class=\"facts\">",
        report.cpu,
        report.seconds,
        answer(report),
    );
    for (title, value, note) in facts(report) {
        let _ = write!(
            html,
            "<div><span>{title}</span><b>{}</b><span>{}</span></div>",
            unbroken(&value),
            unbroken(&note)
        );
    }
    html += "</div>\n";
    let mut careful = report.notices.clone();
    if let Some(raw) = &report.raw {
        careful.extend(
            raw.error
                .iter()
                .map(|error| format!("raw samples are missing: {error}")),
        );
        if raw.lost > 0 {
            careful.push(format!(
                "{} raw samples were lost: the disk was too slow",
                count(raw.lost)
            ));
        }
    }
    if !careful.is_empty() {
        html += "<div class=\"careful\">";
        for sentence in careful {
            let _ = write!(html, "<p>{}.</p>", escaped(&sentence));
        }
        html += "</div>\n";
    }
    html
}

/// Escaped, with each number beside its unit.
fn unbroken(text: &str) -> String {
    let mut kept = escaped(text);
    for unit in ["/s", "k/s", "M/s", "G/s", "%", "M", "G"] {
        kept = kept.replace(&format!(" {unit}"), &format!("\u{a0}{unit}"));
    }
    kept
}

fn answer(report: &Report) -> String {
    let Some(first) = report.rates.first() else {
        return "Nothing was observed".into();
    };
    let grew = match first.per_second {
        Some(per_second) => format!("{} grew by {}", first.signal, brief(per_second)),
        None => format!("no rate of {} could be told", first.signal),
    };
    let cost = report.effect.as_ref();
    let cost = cost.map_or_else(|| "what observing took is unknown".into(), cost::in_words);
    format!("{}; <b>{}</b>", unbroken(&grew), unbroken(&cost))
}

fn brief(per_second: f64) -> String {
    let text = axis::short(per_second);
    match text.contains(' ') {
        true => format!("{text}/s"),
        false => format!("{text} /s"),
    }
}

/// Title, value and note of each.
fn facts(report: &Report) -> Vec<(&'static str, String, String)> {
    let mut facts = Vec::new();
    if let Some(first) = report.rates.first() {
        let spread = format!(
            "{} to {} (p1 to p99)",
            optional(first.kept.p1, brief),
            optional(first.kept.p99, brief)
        );
        let each = first.per_cycle.filter(|rate| *rate > 0.0);
        let each = optional(each, |rate| match 1.0 / rate {
            cycles if !(1e3..1e5).contains(&cycles) => format!("{} cycles", axis::short(cycles)),
            cycles => format!("{} cycles", count(cycles.round() as u64)),
        });
        facts.push(("one count in", each, spread));
    }
    let period = optional(report.periods.p50, |cycles| count(cycles.round() as u64));
    facts.push((
        "samples",
        axis::short(report.samples as f64),
        format!("one in {period} cycles, mostly"),
    ));
    let dropped = count(report.disagreed + report.preempted);
    facts.push((
        "pairs of samples kept",
        optional(report.kept_share, percent),
        format!("{dropped} dropped"),
    ));
    let cost = report.effect.as_ref();
    facts.push((
        "observing took",
        cost.map_or_else(|| "–".into(), |effect| percent(effect.share)),
        cost.map_or_else(|| "of its speed: unknown".into(), cost::interval),
    ));
    facts
}
