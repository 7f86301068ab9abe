//! The report of an observation as one self-contained file: the text, and pictures in SVG.

use std::fmt::Write;

use tailscope_observe::Report;
use tailscope_timeline::escaped;

use super::{joint, table, text};

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 220.0;
const LEFT: f64 = 60.0;
const BOTTOM: f64 = 36.0;
const TOP: f64 = 8.0;
const RIGHT: f64 = 12.0;
/// Readable on white, also for those who see few colours.
const COLOURS: [&str; 4] = ["#0b6e99", "#d9730d", "#4d6461", "#ad1a72"];

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:46em;margin:2em auto;padding:0 1em}\
                     pre{overflow-x:auto;background:#f5f5f3;padding:1em;font-size:12px}\
                     svg{width:100%;height:auto}table{border-collapse:collapse}td,th{padding:.1em .6em;text-align:right}\
                     td:first-child{text-align:left;overflow-wrap:anywhere}text{font:11px system-ui,sans-serif;fill:#444}";

/// One curve, in the units of its axes.
struct Line<'r> {
    name: &'r str,
    points: Vec<(f64, f64)>,
}

/// How far values along an axis are from its begin, from 0 to 1.
#[derive(Clone, Copy)]
struct Axis {
    low: f64,
    high: f64,
    logarithmic: bool,
}

impl Axis {
    /// One that holds all values; `None` if there are none.
    fn of(values: impl Iterator<Item = f64> + Clone, logarithmic: bool) -> Option<Self> {
        let usable = values.filter(|v| v.is_finite() && (!logarithmic || *v > 0.0));
        let high = usable.clone().reduce(f64::max)?;
        let low = if logarithmic {
            usable.reduce(f64::min)?
        } else {
            0.0
        };
        Some(Self {
            low,
            high: if high > low { high } else { low + 1.0 },
            logarithmic,
        })
    }

    fn place(self, value: f64) -> f64 {
        let share = if self.logarithmic {
            (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        share.clamp(0.0, 1.0)
    }

    /// Values to write beside it.
    fn ticks(self) -> Vec<f64> {
        (0..=4)
            .map(|i| {
                let share = f64::from(i) / 4.0;
                if self.logarithmic {
                    self.low * (self.high / self.low).powf(share)
                } else {
                    self.low + (self.high - self.low) * share
                }
            })
            .collect()
    }
}

/// A number short enough for an axis.
fn short(value: f64) -> String {
    match value.abs() {
        v if v >= 1e9 => format!("{:.3}G", value / 1e9),
        v if v >= 1e6 => format!("{:.3}M", value / 1e6),
        v if v >= 1e4 => format!("{:.3}k", value / 1e3),
        v if v >= 100.0 => format!("{value:.0}"),
        _ => format!("{value:.3}"),
    }
}

/// A picture with its title; nothing where there is nothing to show.
fn chart(title: &str, below: &str, lines: &[Line<'_>], logarithmic: bool) -> String {
    let xs = || {
        lines
            .iter()
            .flat_map(|line| line.points.iter().map(|p| p.0))
    };
    let ys = || {
        lines
            .iter()
            .flat_map(|line| line.points.iter().map(|p| p.1))
    };
    let (Some(x), Some(y)) = (Axis::of(xs(), logarithmic), Axis::of(ys(), false)) else {
        return String::new();
    };
    let across = |value: f64| LEFT + x.place(value) * (WIDTH - LEFT - RIGHT);
    let up = |value: f64| HEIGHT - BOTTOM - y.place(value) * (HEIGHT - BOTTOM - TOP);
    let mut svg = format!(
        "<h2>{}</h2>\n<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">\n",
        escaped(title)
    );
    for tick in y.ticks() {
        let at = up(tick);
        let _ = writeln!(
            svg,
            "<path d=\"M{LEFT} {at:.1}H{:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 4.0,
            at + 4.0,
            short(tick)
        );
    }
    for tick in x.ticks() {
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            across(tick),
            HEIGHT - BOTTOM + 14.0,
            short(tick)
        );
    }
    for (line, colour) in lines.iter().zip(COLOURS.iter().cycle()) {
        let mut path = String::new();
        for (x, y) in &line.points {
            let step = if path.is_empty() { 'M' } else { 'L' };
            let _ = write!(path, "{step}{:.1} {:.1}", across(*x), up(*y));
        }
        let _ = writeln!(
            svg,
            "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\">\
             <title>{}</title></path>",
            escaped(line.name)
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n</svg>",
        (WIDTH + LEFT) / 2.0,
        HEIGHT - 4.0,
        escaped(below)
    );
    for (line, colour) in lines.iter().zip(COLOURS.iter().cycle()) {
        let _ = writeln!(
            svg,
            "<div><span style=\"color:{colour}\">&#9632;</span> {}</div>",
            escaped(line.name)
        );
    }
    svg
}

/// Which share of all is at or below each value.
fn cumulated(cells: &[(f64, u64)]) -> Vec<(f64, f64)> {
    let all: u64 = cells.iter().map(|(_, count)| count).sum();
    let mut below = 0;
    cells
        .iter()
        .map(|(value, count)| {
            below += count;
            (*value, below as f64 / all.max(1) as f64)
        })
        .collect()
}

/// The file's text.
pub fn page(report: &Report) -> String {
    let rates: Vec<Line<'_>> = report
        .rates
        .iter()
        .map(|rate| Line {
            name: &rate.signal,
            points: cumulated(&rate.cells),
        })
        .collect();
    let over_time: Vec<Line<'_>> = report
        .rates
        .iter()
        .enumerate()
        .map(|(i, rate)| Line {
            name: &rate.signal,
            points: report
                .series
                .iter()
                .filter_map(|slice| Some((slice.at, *slice.per_second.as_ref()?.get(i)?)))
                .collect(),
        })
        .collect();
    let jitter = [
        Line {
            name: "from one sample to the next",
            points: cumulated(&report.curves.periods),
        },
        Line {
            name: "within a sample",
            points: cumulated(&report.curves.reads),
        },
    ];
    let pictures = [
        chart("Rates over time", "seconds", &over_time, false),
        chart(
            "Rates by sample: the share at or below",
            "counts a second",
            &rates,
            true,
        ),
        chart(
            "How evenly was sampled: the share at or below",
            "cycles",
            &jitter,
            true,
        ),
    ];
    let together = match (report.rates.as_slice(), &report.joint) {
        ([first, second, ..], Some(cells)) => {
            joint::picture([&first.signal, &second.signal], cells)
        }
        _ => String::new(),
    };
    let tables = report.by_tag.as_ref();
    let tables = tables.map_or_else(String::new, |tags| table::by_tag(tags, &report.rates));
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <title>tailscope observe</title><style>{STYLE}</style></head>\n<body>\n\
         <h1>What was observed</h1>\n<pre>{}</pre>\n{tables}\n{}\n{together}\n</body></html>\n",
        escaped(&text::report(report)),
        pictures.join("\n")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_names_never_become_markup() {
        let lines = [Line {
            name: "<script>&\"",
            points: vec![(1.0, 0.5), (10.0, 1.0)],
        }];
        let svg = chart("<b>", "cycles", &lines, true);
        assert!(!svg.contains("<script>") && !svg.contains("<b>"), "{svg}");
        assert!(svg.contains("&lt;script&gt;&amp;&quot;"));
    }

    #[test]
    fn points_lie_inside_the_picture() {
        for logarithmic in [false, true] {
            let axis = Axis::of([1.0, 5.0, 1000.0].into_iter(), logarithmic).expect("values");
            for value in [0.0, 1.0, 7.0, 1000.0, 1e9] {
                assert!((0.0..=1.0).contains(&axis.place(value)), "{value}");
            }
            assert_eq!(axis.place(1000.0), 1.0);
        }
        assert!(chart("empty", "", &[], true).is_empty());
        let zeros = [Line {
            name: "zeros",
            points: vec![(0.0, 1.0)],
        }];
        assert!(chart("zeros", "", &zeros, true).is_empty());
    }

    #[test]
    fn shares_end_at_one() {
        assert_eq!(cumulated(&[(0.0, 1), (2.0, 3)]), [(0.0, 0.25), (2.0, 1.0)]);
        assert!(cumulated(&[]).is_empty());
    }
}
