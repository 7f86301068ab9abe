//! The report of `tailscope chase` as text.

use std::fmt::Write;

use tailscope_locality::chase::experiment::{Point, Speed};
use tailscope_locality::chase::interval::{FEWEST, Interval};
use tailscope_locality::chase::pair::Verdict;
use tailscope_locality::chase::report::Report;
use tailscope_locality::chase::waiting;

use crate::units::count;

/// Figures about the machine first, with what makes them doubtful, then the table.
pub fn report(report: &Report) -> String {
    let mut text = String::new();
    match report.others {
        Some(share) if share > waiting::MOST => {
            let percent = share * 100.0;
            let _ = writeln!(
                text,
                "Other programs had these CPUs for {percent:.0} % of the calibration. Its figures are \
                 doubtful: stop these programs, and repeat."
            );
        }
        Some(_) => {}
        None => text.push_str("Whether other programs had these CPUs is not known.\n"),
    }
    machine(&mut text, report);
    caches(&mut text, report);
    if !report.points.is_empty() {
        table(&mut text, report);
    }
    text
}

fn machine(text: &mut String, report: &Report) {
    let (first, second) = (report.cpus[0], report.cpus[1]);
    let shown = match report.one_core_by_topology {
        true => "threads of one core",
        false => "two cores",
    };
    let beside = report.pair.beside.as_ref();
    let measured = match report.pair.verdict {
        Verdict::TwoCores => "They behave as two cores",
        Verdict::OneCore => "They behave as threads of ONE core",
        Verdict::Unknown => "Whether they behave as two cores is NOT CERTAIN",
    };
    let speed = beside.map_or_else(
        || "it was not measured".into(),
        |ratio| format!("beside each other, {} of full speed", share(ratio)),
    );
    let _ = writeln!(
        text,
        "CPUs {first} and {second}: {shown} by the topology. {measured}: {speed}."
    );
    let claims_two = !report.one_core_by_topology;
    if claims_two && report.pair.verdict == Verdict::OneCore {
        text.push_str("The ratios below are those of threads that share all caches.\n");
    }
    match report.pair.line_ns {
        Some([median, least, most]) => {
            let _ = writeln!(
                text,
                "A cache line takes {median:.0} ns from one to the other ({least:.0} to {most:.0} ns)."
            );
        }
        None => text.push_str("The time of a cache line between them is not known.\n"),
    }
    let costs = [
        ("a switch between fibres", report.costs.switch_ns),
        ("a migration there and back", report.costs.migration_ns),
    ];
    for (name, cost) in costs {
        let cost = cost.as_ref().map_or("not known".into(), nanoseconds);
        let _ = writeln!(text, "{name:<27}{cost}");
    }
}

fn caches(text: &mut String, report: &Report) {
    for (name, size, knee) in report.compared() {
        let (says, knee) = (
            bytes(size),
            knee.map(|knee| (bytes(knee), knee as f64 / size as f64)),
        );
        let _ = match knee {
            Some((at, ratio)) => {
                let percent = (ratio - 1.0) * 100.0;
                writeln!(
                    text,
                    "{name:<4}latency rises at {at}; sysfs says {says} ({percent:+.0} %)"
                )
            }
            None => writeln!(
                text,
                "{name:<4}no rise of the latency near {says}, which sysfs says"
            ),
        };
    }
}

fn table(text: &mut String, report: &Report) {
    let first = &report.points[0].speeds;
    let (base, others) = (&first[0].mode, &first[1..]);
    let sessions = count(report.sessions as u64);
    for doubt in doubts(report) {
        let _ = writeln!(text, "{doubt}");
    }
    let _ = writeln!(
        text,
        "\nmillion accesses a second of {sessions} sessions; over {base}: 95 % interval\n"
    );
    let _ = write!(text, "{:>20} {:>7} {base:>8}", "working set", "updates");
    for other in others {
        let _ = write!(text, " {:>8} {:>18}", other.mode, format!("over {base}"));
    }
    let _ = writeln!(text, " {:>7}", "line");
    for point in &report.points {
        row(text, report, point);
    }
}

/// What a reader has to know before the figures are compared.
fn doubts(report: &Report) -> Vec<String> {
    let mut doubts = Vec::new();
    if report.points.len() < report.planned {
        doubts.push(format!(
            "Interrupted: {} of {} combinations were measured.",
            report.points.len(),
            report.planned
        ));
    }
    let lines = report.points.iter().filter_map(|point| point.line_ns);
    let medians: Vec<f64> = lines.map(|[median, ..]| median).collect();
    let least = medians.iter().copied().fold(f64::INFINITY, f64::min);
    let most = medians.iter().copied().fold(0.0, f64::max);
    if most > FAR * least {
        doubts.push(format!(
            "The CPUs moved apart or together during the run: a line took {least:.0} to {most:.0} \
             ns. Compare rows with a similar time of the line only."
        ));
    }
    let dropped: usize = report.points.iter().map(|point| point.dropped).sum();
    let segments: usize = report.points.iter().map(|point| point.segments).sum();
    if dropped > 0 {
        doubts.push(format!(
            "{dropped} of {segments} segments were dropped: the caches did not fill within a second, or other \
             programs had the CPUs."
        ));
    }
    let ratios: Vec<_> = report
        .points
        .iter()
        .flat_map(|point| &point.speeds[1..])
        .collect();
    let of = |is: fn(&Speed) -> bool| ratios.iter().filter(|speed| is(speed)).count();
    let all = ratios.len();
    let unclear = of(|speed| speed.ratio.is_some_and(|ratio| !ratio.is_clear()));
    if unclear > 0 {
        doubts.push(format!(
            "Can't tell which mode is faster in {unclear} of {all} comparisons, marked with `?`: \
             their intervals contain 1."
        ));
    }
    let short = of(|speed| speed.ratio.is_none());
    if short > 0 {
        doubts.push(format!(
            "{short} of {all} ratios have no interval, as there were fewer than {FEWEST} rounds. Use \
             a longer --duration."
        ));
    }
    doubts
}

/// A line's time that changes by more than this factor is another distance, not noise.
const FAR: f64 = 1.5;

fn row(text: &mut String, report: &Report, point: &Point) {
    let (l1d, l2) = (report.caches.l1d, report.caches.l2);
    let size = point.working_set as f64;
    let of_cache = match (l1d, l2) {
        (Some(l1d), Some(l2)) if size < (l1d as f64 * l2 as f64).sqrt() => {
            format!("{:.2} L1d", size / l1d as f64)
        }
        (_, Some(l2)) => format!("{:.2} L2", size / l2 as f64),
        _ => String::new(),
    };
    let size = format!("{} {of_cache:>9}", bytes(point.working_set));
    let updates = format!("{:.1} %", point.updates * 100.0);
    let _ = write!(
        text,
        "{size:>20} {updates:>7} {:>8}",
        millions(&point.speeds[0])
    );
    for speed in &point.speeds[1..] {
        let _ = write!(text, " {:>8} {:>18}", millions(speed), compared(speed));
    }
    let line = point
        .line_ns
        .map_or("-".into(), |[median, ..]| format!("{median:.0} ns"));
    let _ = writeln!(text, " {line:>7}");
}

fn millions(speed: &Speed) -> String {
    format!("{:.1}", speed.per_second / 1e6)
}

fn compared(speed: &Speed) -> String {
    let Some(ratio) = speed.ratio else {
        return "too few rounds".into();
    };
    let Interval { value, low, high } = ratio;
    match ratio.is_clear() {
        true => format!("{value:.2} ({low:.2} to {high:.2})"),
        false => format!("? ({low:.2} to {high:.2})"),
    }
}

fn share(ratio: &Interval) -> String {
    let percent = |share: f64| format!("{:.0}", share * 100.0);
    let (low, high) = (percent(ratio.low), percent(ratio.high));
    format!("{} % ({low} to {high} %)", percent(ratio.value))
}

fn nanoseconds(cost: &Interval) -> String {
    format!(
        "{:.1} ns ({:.1} to {:.1} ns)",
        cost.value, cost.low, cost.high
    )
}

/// Bytes in units of 1,024, as caches are counted.
fn bytes(count: u64) -> String {
    let n = count as f64;
    match n {
        n if n < 1024.0 => format!("{n} B"),
        n if n < 1024.0 * 1023.95 => format!("{:.1} KiB", n / 1024.0),
        _ => format!("{:.2} MiB", n / 1024.0 / 1024.0),
    }
}

#[cfg(test)]
mod tests;
