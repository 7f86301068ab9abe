//! A counter's rate: how it is distributed, and over time.

use tailscope_observe::Report;
use tailscope_observe::report::{Distribution as Summary, Rate};
use tailscope_timeline::escaped;

use super::course::Course;
use super::distribution::Distribution;
use super::figures::table;
use super::svg::{HALF, Words, drawn, percent};
use super::{class, optional};
use crate::observe::text::rate;
use crate::units::count;

/// A card of each counter.
pub fn of(report: &Report) -> String {
    let rates = report.rates.iter().enumerate();
    rates
        .map(|(number, rate)| card(report, number, rate))
        .collect()
}

fn card(report: &Report, number: usize, counter: &Rate) -> String {
    let each = counter.per_cycle.filter(|rate| *rate > 0.0);
    let each = each.map_or_else(String::new, |rate| {
        format!(", one in {:.1} cycles of the clock", 1.0 / rate)
    });
    format!(
        "<section><h2><i class=\"key b-{0}\"></i>{1}</h2>\
         <p class=\"say\">On average {2}{each}. It is read by {3}.</p>\n\
         <div class=\"pair\"><div>{4}</div>\n<div>{5}</div></div>\n{6}</section>\n",
        class(number),
        escaped(&counter.signal),
        optional(counter.per_second, rate),
        escaped(&counter.how),
        distribution(report, number, counter),
        course(report, number, counter),
        figures(counter),
    )
}

/// From this share of pairs on that saw no growth, the picture is of the others.
const IDLE: f64 = 0.5;

/// The pairs that are drawn: all, or where most saw no growth, those that did.
fn shown(cells: &[(f64, u64)], without_idle: bool) -> &[(f64, u64)] {
    match cells {
        [(rate, _), others @ ..] if without_idle && *rate <= 0.0 => others,
        all => all,
    }
}

fn distribution(report: &Report, number: usize, counter: &Rate) -> String {
    let title = "<h3>How fast, from one sample to the next</h3>";
    let kept = &counter.kept;
    let idle = counter.cells.first().filter(|cell| cell.0 <= 0.0);
    let idle = idle.map_or(0.0, |cell| cell.1 as f64 / kept.count.max(1) as f64);
    let without_idle = idle > IDLE;
    let cells = shown(&counter.cells, without_idle);
    if cells.is_empty() {
        return format!("{title}<p class=\"rest\">No pair of samples saw it grow.</p>");
    }
    let all = report.curves.all.get(number).map_or(&[][..], Vec::as_slice);
    let dropped = report.disagreed + report.preempted > 0;
    let curve = Distribution {
        words: Words {
            name: format!("Distribution of the rate of {}", counter.signal),
            about: format!(
                "Of {} pairs of samples, 1 % are at or below {}, half at or below {}, 99 % at or \
                 below {}.",
                count(kept.count),
                optional(kept.p1, rate),
                optional(kept.p50, rate),
                optional(kept.p99, rate),
            ),
        },
        across: "counts a second",
        up: if without_idle {
            "% of the pairs that saw it grow, at most so fast"
        } else {
            "% of the pairs of samples that are at most so fast"
        },
        class: &format!("s-{}", class(number)),
        cells,
        outside: 0.000_5,
        behind: dropped.then(|| (shown(all, without_idle), "all pairs, those dropped too")),
        goal: None,
        shown: &super::brief,
    };
    let mut html = title.to_owned() + &drawn(HALF, |width| curve.drawn(width));
    if dropped {
        html += &format!(
            "<div class=\"legend\"><span><i class=\"key stroke b-{}\"></i>pairs kept</span>\
             <span><i class=\"key stroke dashed\"></i>all pairs, those dropped too</span></div>",
            class(number)
        );
    }
    if without_idle {
        html += &format!(
            "<p class=\"rest\">Not drawn: {} of the pairs, which saw no growth.</p>",
            percent(idle)
        );
    }
    match curve.beyond() {
        0 => html,
        out => {
            html + &format!(
                "<p class=\"rest\">Beyond the right edge: {} of {} pairs, up to {}.</p>",
                count(out),
                count(kept.count),
                rate(kept.max)
            )
        }
    }
}

fn course(report: &Report, number: usize, counter: &Rate) -> String {
    let slices: Vec<(f64, Option<f64>)> = report
        .series
        .iter()
        .map(|slice| {
            let rates = slice.per_second.as_ref();
            (slice.at, rates.and_then(|rates| rates.get(number).copied()))
        })
        .collect();
    let known = slices.iter().filter_map(|slice| slice.1);
    let (low, high) = (known.clone().reduce(f64::min), known.reduce(f64::max));
    let course = Course {
        words: Words {
            name: format!("Rate of {} over time", counter.signal),
            about: format!(
                "In {:.1} s, in slices, between {} and {}.",
                report.seconds,
                optional(low, rate),
                optional(high, rate)
            ),
        },
        up: "counts a second",
        class: &format!("s-{}", class(number)),
        slices: &slices,
        seconds: report.seconds,
        least: 0.0,
    };
    format!(
        "<h3>Over time</h3>{}",
        drawn(HALF, |width| course.drawn(width))
    )
}

fn figures(counter: &Rate) -> String {
    let head = ["", "pairs kept", "all pairs"].map(str::to_owned);
    let rows = rows(&counter.kept, rate)
        .into_iter()
        .zip(rows(&counter.all, rate));
    let rows = rows.map(|((name, kept), (_, all))| vec![name.to_owned(), kept, all]);
    table("The figures: the rate by pair of samples", &head, rows)
}

/// A distribution in figures.
pub(super) fn rows(of: &Summary, text: fn(f64) -> String) -> [(&'static str, String); 10] {
    let shown = |value| optional(value, text);
    [
        ("pairs", count(of.count)),
        ("mean", shown(of.mean)),
        ("standard deviation", shown(of.deviation)),
        ("p1", shown(of.p1)),
        ("p10", shown(of.p10)),
        ("p50", shown(of.p50)),
        ("p90", shown(of.p90)),
        ("p99", shown(of.p99)),
        ("p99.9", shown(of.p999)),
        ("largest", text(of.max)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_without_growth_are_left_out_only_where_they_are_most() {
        let cells = [(0.0, 60), (5.0, 40)];
        assert_eq!(shown(&cells, true), [(5.0, 40)]);
        assert_eq!(shown(&cells, false), cells);
        assert_eq!(shown(&cells[1..], true), [(5.0, 40)]);
        assert!(shown(&cells[..1], true).is_empty() && shown(&[], true).is_empty());
    }
}
