//! The report and the status, in words.

use serde_json::Value;
use tailscope_borrow::state::Entry;
use tailscope_borrow::{Estimate, Lane, Report, Side, Tail};

use crate::console::in_one_line;
use crate::units::{count, time};

fn ns(value: f64) -> String {
    time(value.max(0.0).round() as u64)
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn signed(share: f64) -> String {
    format!("{:+.1} %", share * 100.0)
}

fn or_unknown(value: Option<f64>, words: impl Fn(f64) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), words)
}

/// `low to high`, or nothing.
fn interval(estimate: &Estimate, words: impl Fn(f64) -> String) -> String {
    match (estimate.low, estimate.high) {
        (Some(low), Some(high)) => format!("{} to {}", words(low), words(high)),
        _ => "-".to_owned(),
    }
}

/// What is most important in one sentence.
fn headline(report: &Report, p99: Option<&Tail>) -> String {
    let Some((tail, on, off, change)) = p99.and_then(|tail| {
        let figures = (tail.lending_ns.value?, tail.held_back_ns.value?);
        Some((tail, figures.0, figures.1, tail.change.value?))
    }) else {
        return String::new();
    };
    let sure = match (tail.change.low, tail.change.high) {
        (Some(low), Some(high)) => format!(" (95 %: {} to {})", signed(low), signed(high)),
        _ => String::new(),
    };
    format!(
        "p99 of process {}: {} with lending, {} without: {}{sure}\n",
        report.server,
        ns(on),
        ns(off),
        signed(change)
    )
}

fn row(name: &str, cells: [String; 2], rest: &str) -> String {
    let [on, off] = cells;
    let line = format!("  {name:<16}{on:>12}{off:>12}   {rest}");
    format!("{}\n", line.trim_end())
}

/// The report.
pub fn report(report: &Report) -> String {
    let mut text = String::new();
    for note in &report.notes {
        text += &format!("{note}\n");
    }
    let lane = Lane {
        cpus: report.cpus.clone(),
    };
    text += &format!(
        "borrowed {} of CPU time in {}, on CPU {}\n",
        time(report.borrowed_ns),
        time(report.elapsed_ns),
        lane.list()
    );
    let p99 = report.tails.iter().find(|tail| tail.name == "p99");
    text += &headline(report, p99);
    text += "\n";
    text += &row(
        "",
        ["lending".into(), "held back".into()],
        "change, 95 % interval",
    );
    let sides = |of: &dyn Fn(&Side) -> String| [of(&report.lending), of(&report.held_back)];
    text += &row("time", sides(&|side| time(side.time_ns)), "");
    text += &row(
        "CPU busy",
        sides(&|side| or_unknown(side.busy, percent)),
        "",
    );
    text += &row("batch", sides(&|side| or_unknown(side.batch, percent)), "");
    text += &row("requests", sides(&|side| count(side.requests)), "");
    text += &row(
        "wait for a CPU",
        sides(&|side| or_unknown(side.waited_ns, ns)),
        "mean of a request",
    );
    for tail in &report.tails {
        let cells = [&tail.lending_ns, &tail.held_back_ns].map(|e| or_unknown(e.value, ns));
        let change = or_unknown(tail.change.value, signed);
        let rest = format!("{change}, {}", interval(&tail.change, signed));
        text += &row(tail.name, cells, &rest);
    }
    text + "\n" + &footer(report)
}

fn footer(report: &Report) -> String {
    let mut text = String::new();
    if let Some(slo) = &report.slo {
        let known = slo.windows_held + slo.windows_broken;
        let reached = slo.reached_ns.map_or_else(|| "-".to_owned(), time);
        text += &format!(
            "SLO {}: held in {} of {known} windows of 10 s; over all requests {reached}; lent {} of the time\n",
            slo.slo,
            slo.windows_held,
            percent(slo.lent_share),
        );
    }
    let below = match report.mechanism.idle_group {
        Some(version) => format!("SCHED_IDLE and cpu.idle (cgroup v{version})"),
        None => "SCHED_IDLE alone".to_owned(),
    };
    text += &format!(
        "the batch is below the server by {below}; held back by {}",
        report.mechanism.held_back_by
    );
    if let Some(p50) = report.switch_p50_ns {
        text += &format!(", in {} at the median", time(p50));
    }
    text += "\n";
    let put_back = [
        (report.policies_put_back, "a policy"),
        (report.affinities_put_back, "an affinity"),
        (report.groups_put_back, "a cgroup"),
    ];
    for (times, what) in put_back.into_iter().filter(|(times, _)| *times > 0) {
        text += &format!(
            "the batch chose {what} of its own; put back {} times\n",
            count(times)
        );
    }
    text
}

/// One batch command that runs.
pub fn status(entry: &Entry, figures: Option<&Value>) -> String {
    let command = in_one_line(&entry.command.join(" "));
    let mut text = format!(
        "process {} lends the CPUs of process {} to '{command}'\n",
        entry.borrower.pid, entry.server
    );
    if !entry.is_kept() {
        return text + "  it was killed; run tailscope borrow --restore\n";
    }
    let Some(figures) = figures else {
        return text + "  there are no figures yet\n";
    };
    let number = |path: &str| figures.pointer(path).and_then(Value::as_f64);
    text += &format!(
        "  borrowed {} in {}; CPU busy {} with lending, {} without\n",
        or_unknown(number("/borrowed_ns"), ns),
        or_unknown(number("/elapsed_ns"), ns),
        or_unknown(number("/lending/busy"), percent),
        or_unknown(number("/held_back/busy"), percent),
    );
    text += &format!(
        "  p99 {} with lending, {} without\n",
        or_unknown(number("/tails/1/lending_ns/value"), ns),
        or_unknown(number("/tails/1/held_back_ns/value"), ns),
    );
    if let Some(slo) = figures.pointer("/slo/slo").and_then(Value::as_str) {
        let share = or_unknown(number("/slo/lent_share"), percent);
        text += &format!("  SLO {slo}: lends {share} of the time\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_a_dash() {
        let unknown = Estimate {
            value: None,
            low: None,
            high: None,
        };
        assert_eq!(or_unknown(unknown.value, ns), "-");
        assert_eq!(interval(&unknown, signed), "-");
        let known = Estimate {
            value: Some(0.0),
            low: Some(-0.031),
            high: Some(0.08),
        };
        assert_eq!(interval(&known, signed), "-3.1 % to +8.0 %");
    }
}
