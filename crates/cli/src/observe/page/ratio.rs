//! One counter by another, from one sample to the next: of instructions and cycles it is the IPC.

use tailscope_observe::Report;
use tailscope_observe::report::Ratios;
use tailscope_timeline::escaped;

use super::axis::short;
use super::distribution::Distribution;
use super::figures::table;
use super::optional;
use super::rates::rows;
use super::svg::{HALF, Words, drawn, percent};
use crate::units::count;

/// The share of the pairs that may lie beyond each edge of the picture.
const OUTSIDE: f64 = 0.000_5;

/// What the ratio of two signals is called, and in which unit it is told.
fn called(signals: [&str; 2]) -> (&'static str, &'static str) {
    match signals.map(event) {
        ["instructions", "cycles" | "cpu-cycles"] => ("IPC", "instructions a cycle"),
        ["cycles" | "cpu-cycles", "instructions"] => ("CPI", "cycles an instruction"),
        _ => ("One by the other", "the first counter by the second"),
    }
}

/// The event of a hardware counter's name.
fn event(signal: &str) -> &str {
    match signal.rsplit_once(':') {
        Some((_, event)) if signal.starts_with("counter:") => event,
        _ => "",
    }
}

/// The card; nothing where there is one counter.
pub fn of(report: &Report) -> String {
    let ([first, second, ..], Some(ratios)) = (report.rates.as_slice(), &report.ratios) else {
        return String::new();
    };
    let names = [first.signal.as_str(), &second.signal];
    format!(
        "<section><h2>{}</h2><p class=\"say\">{} by {}, from one sample to the next: <b>{}</b> \
         of all that was counted.</p>\n<div class=\"map\">{}</div>\n{}</section>\n",
        called(names).0,
        escaped(names[0]),
        escaped(names[1]),
        optional(report.ratio, |ratio| format!("{ratio:.4}")),
        picture(names, ratios),
        figures(ratios),
    )
}

fn picture(names: [&str; 2], ratios: &Ratios) -> String {
    let kept = &ratios.kept;
    let curve = Distribution {
        words: Words {
            name: format!("Distribution of {} by {}", names[0], names[1]),
            about: format!(
                "Of {} pairs of samples, 1 % are at or below {}, half at or below {}, 99 % at or \
                 below {}.",
                count(kept.count),
                optional(kept.p1, short),
                optional(kept.p50, short),
                optional(kept.p99, short),
            ),
        },
        across: called(names).1,
        up: "% of the pairs of samples that are at most that",
        class: "s-one",
        cells: &ratios.cells,
        outside: OUTSIDE,
        behind: None,
        goal: None,
        shown: &short,
    };
    let mut html = match curve.drawn(HALF).is_empty() {
        true => "<p class=\"rest\">In no pair of samples did both grow.</p>".to_owned(),
        false => drawn(HALF, |width| curve.drawn(width)),
    };
    let beyond = curve.beyond();
    if beyond > 0 {
        html += &format!(
            "<p class=\"rest\">Beyond the right edge: {} of {} pairs, up to {}.</p>",
            count(beyond),
            count(kept.count),
            short(kept.max)
        );
    }
    if ratios.without > 0 {
        let share = ratios.without as f64 / (ratios.without + kept.count) as f64;
        html += &format!(
            "<p class=\"rest\">Not drawn: {} of the pairs, in which the second did not grow.</p>",
            percent(share)
        );
    }
    html
}

fn figures(ratios: &Ratios) -> String {
    let mut rows = rows(&ratios.kept, short).to_vec();
    rows.insert(1, ("pairs without a ratio", count(ratios.without)));
    let rows = rows
        .into_iter()
        .map(|(name, value)| vec![name.to_owned(), value]);
    table(
        "The figures: the ratio by pair of samples, each counting the same",
        &["", "pairs kept"].map(str::to_owned),
        rows,
    )
}

#[cfg(test)]
mod tests {
    use tailscope_observe::report::Distribution as Summary;

    use super::*;
    use crate::observe::page::axis::quantile;

    fn made(cells: &[(f64, u64)], without: u64) -> Ratios {
        let at = |share| quantile(cells, share);
        Ratios {
            kept: Summary {
                count: cells.iter().map(|cell| cell.1).sum(),
                mean: None,
                deviation: None,
                p1: at(0.01),
                p10: at(0.1),
                p50: at(0.5),
                p90: at(0.9),
                p99: at(0.99),
                p999: at(0.999),
                max: cells.last().map_or(0.0, |cell| cell.0),
            },
            without,
            cells: cells.to_vec(),
        }
    }

    const IPC: [&str; 2] = ["counter:7/8:instructions", "counter:7/8:cycles"];

    #[test]
    fn instructions_by_cycles_are_the_ipc() {
        assert_eq!(called(IPC), ("IPC", "instructions a cycle"));
        assert_eq!(
            called(["counter:7:cpu-cycles", "counter:7:instructions"]).0,
            "CPI"
        );
        let other = called(["channel:7:instructions", "channel:7:cycles"]);
        assert_eq!(other.1, "the first counter by the second");
    }

    #[test]
    fn a_quarter_of_the_pairs_is_drawn_at_a_quarter_of_the_height() {
        let html = picture(IPC, &made(&[(0.5, 25), (1.5, 75)], 100));
        assert!(
            html.contains("p50 1.5") && html.contains("50.00 % of the pairs"),
            "{html}"
        );
        // The curve's steps: at 0.5 up to a quarter of the picture's height, at 1.5 up to all.
        let path = &html[html.find("<path class=\"curve").expect("drawn")..];
        let path = &path[path.find(" d=\"").expect("a path") + 4..];
        let path = &path[..path.find('"').expect("its end")];
        let numbers = path.split(|c: char| !c.is_ascii_digit() && c != '.');
        let numbers: Vec<f64> = numbers.filter_map(|n| n.parse().ok()).collect();
        let heights: Vec<f64> = numbers.iter().skip(1).step_by(2).copied().collect();
        let (low, high) = (heights[0], heights[heights.len() - 1]);
        let quarter = low - (low - high) / 4.0;
        assert!(
            heights.iter().any(|y| (y - quarter).abs() < 0.6),
            "{heights:?}"
        );
    }

    #[test]
    fn where_nothing_ran_there_is_no_picture_and_the_card_says_so() {
        let names = ["<b>", "&"];
        let html = picture(names, &made(&[], 5));
        assert!(
            html.contains("In no pair") && html.contains("100.00 %"),
            "{html}"
        );
        assert!(!picture(names, &made(&[(2.0, 9)], 0)).contains("<b>"));
    }
}
