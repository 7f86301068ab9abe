//! How evenly was sampled, where the observer itself was held up, and which pairs were dropped.

use tailscope_observe::Report;

use super::axis::{Axis, short};
use super::course::Course;
use super::distribution::Distribution;
use super::frame::Frame;
use super::svg::{HALF, Words, dot, drawn, path, picture, through};
use crate::observe::text::percent;
use crate::units::{count, time};

/// A gap is a period of so many median ones (docs/reference/observe.md).
const GAP: f64 = 10.0;

/// The card.
pub fn of(report: &Report) -> String {
    let hz = report.clock_hz.max(1) as f64;
    format!(
        "<section><h2>How evenly was sampled</h2>\
         <p class=\"say\">In cycles of the machine's clock: {:.2} GHz, 1,000 cycles are {}. An \
         even sampler would be a single step in both upper pictures.</p>\n\
         <div class=\"pair\"><div>{}</div>\n<div>{}</div></div>\n\
         <div class=\"pair lower\"><div>{}</div>\n<div>{}</div></div></section>\n",
        hz / 1e9,
        time((1e12 / hz) as u64),
        periods(report),
        reads(report),
        gaps(report),
        dropped(report),
    )
}

fn cycles(value: f64) -> String {
    match value {
        v if v < 1e5 => count(v.round() as u64),
        v => short(v),
    }
}

/// A tick's length of time: `20 µs`, `1 ms`.
fn round_time(ns: f64) -> String {
    time(ns.round() as u64)
        .replace(".00 ", " ")
        .replace(".0 ", " ")
}

fn quantiles(of: &tailscope_observe::report::Distribution) -> String {
    let shown = |value: Option<f64>| super::optional(value, cycles);
    format!(
        "Half are at most {} cycles, 99 % at most {}, the longest has {}.",
        shown(of.p50),
        shown(of.p99),
        cycles(of.max)
    )
}

fn cells_of(words: Words, cells: &[(f64, u64)], max: f64, goal: Option<(f64, String)>) -> String {
    let curve = Distribution {
        words,
        across: "cycles",
        up: "% that are at most so long",
        class: "measured",
        cells,
        // What is longer is in the picture of the gaps.
        outside: 0.005,
        behind: None,
        goal,
        shown: &cycles,
    };
    let html = drawn(HALF, |width| curve.drawn(width));
    match curve.beyond() {
        0 => html,
        out => {
            html + &format!(
                "<p class=\"rest\">Beyond the right edge: {} of them, up to {} cycles.</p>",
                count(out),
                cycles(max)
            )
        }
    }
}

fn periods(report: &Report) -> String {
    let words = Words {
        name: "Distribution of the periods".into(),
        about: quantiles(&report.periods),
    };
    let goal = report
        .period
        .map(|period| (period as f64, format!("asked: {}", count(period))));
    "<h3>Periods: from one sample to the next</h3>".to_owned()
        + &cells_of(words, &report.curves.periods, report.periods.max, goal)
}

fn reads(report: &Report) -> String {
    let words = Words {
        name: "Distribution of how long a sample takes".into(),
        about: quantiles(&report.reads),
    };
    "<h3>Within a sample: from one reading of the clock to the other</h3>".to_owned()
        + &cells_of(words, &report.curves.reads, report.reads.max, None)
}

/// How many gaps were at least so long.
fn gaps(report: &Report) -> String {
    let title = "<h3>Gaps: when the observer was held up</h3>";
    let from = report.periods.p50.unwrap_or(0.0) * GAP;
    let ns = 1e9 / report.clock_hz.max(1) as f64;
    let cells: Vec<(f64, u64)> = report
        .curves
        .periods
        .iter()
        .copied()
        .filter(|cell| cell.0 >= from)
        .collect();
    let (Some(first), Some(last)) = (cells.first(), cells.last()) else {
        let none = format!(
            "None: no period was ten times the median one ({} cycles) or more.",
            cycles(from / GAP)
        );
        return format!("{title}<p class=\"rest\">{none}</p>");
    };
    let longest = last.0.max(from * 2.0) * 1.15;
    let x = Axis::logarithmic(from.min(first.0) * ns, longest * ns, false);
    let y = Axis::logarithmic(0.7, report.gaps.count as f64 * 1.3, false);
    let words = Words {
        name: "Distribution of the gaps".into(),
        about: format!(
            "{} gaps of {} and more, {} of the time; the longest took {}.",
            count(report.gaps.count),
            time((from * ns) as u64),
            percent(report.gaps.share),
            time((report.gaps.longest * ns) as u64)
        ),
    };
    let svg = drawn(HALF, |width| {
        let frame = Frame::new(width, x, y).written(round_time);
        let mut parts = frame.grid("", "gaps that were at least so long");
        let mut left = report.gaps.count;
        let mut points = vec![(frame.sides().0, frame.y(left as f64))];
        for (value, n) in &cells {
            let at = frame.x(value * ns);
            points.push((at, frame.y(left as f64)));
            left = left.saturating_sub(*n);
            points.push((
                at,
                if left > 0 {
                    frame.y(left as f64)
                } else {
                    frame.bottom()
                },
            ));
        }
        parts += &path(&through(points), "curve measured", &words.name);
        parts += &dot(frame.at(last.0 * ns, last.1 as f64), "ink");
        picture(width, frame.height, &words, &parts)
    });
    format!("{title}{svg}<p class=\"rest\">{}</p>", words.about)
}

fn dropped(report: &Report) -> String {
    let slices: Vec<(f64, Option<f64>)> = report
        .series
        .iter()
        .map(|slice| {
            let pairs = slice.kept + slice.dropped;
            let share = (pairs > 0).then(|| 100.0 * slice.dropped as f64 / pairs as f64);
            (slice.at, share)
        })
        .collect();
    let kept = super::optional(report.kept_share.map(|share| 1.0 - share), percent);
    let course = Course {
        words: Words {
            name: "Pairs of samples that were dropped, over time".into(),
            about: format!(
                "{kept} of all pairs: {} whose two readings of the clock disagreed by more than \
                 {}, {} across a preemption.",
                count(report.disagreed),
                percent(report.tolerance),
                count(report.preempted)
            ),
        },
        up: "% of the pairs of samples",
        class: "s-lost",
        slices: &slices,
        seconds: report.seconds,
        least: 1.0,
    };
    format!(
        "<h3>Dropped pairs</h3>{}<p class=\"rest\">{}</p>",
        drawn(HALF, |width| course.drawn(width)),
        course.words.about
    )
}
