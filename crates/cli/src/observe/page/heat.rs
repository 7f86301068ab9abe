//! Two counters' rates together, as a map: the stronger its colour, the more pairs of samples.

use std::collections::BTreeMap;
use std::fmt::Write;

use tailscope_observe::Report;
use tailscope_timeline::escaped;

use super::axis::{Axis, quantile};
use super::frame::Frame;
use super::svg::{Anchor, NARROW, Words, drawn, label, picture, width_of};
use super::{figures, optional};
use crate::observe::joint;
use crate::units::count;

/// The share of the pairs that may lie beyond each side of the map.
const OUTSIDE: f64 = 0.000_5;
/// Shades, from few pairs to many.
const SHADES: usize = 8;
/// More cells than this are joined: the map could not be seen any finer, and the page be long.
const MOST_CELLS: usize = 4_000;
const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 420.0;
const KEY: f64 = 13.0;
/// Below the map, what its colours mean.
const KEY_ROOM: f64 = 26.0;

type Cells = [(f64, f64, u64)];

/// The card; nothing where there is one counter.
pub fn of(report: &Report) -> String {
    let ([first, second, ..], Some(cells)) = (report.rates.as_slice(), &report.joint) else {
        return String::new();
    };
    let names = [first.signal.as_str(), &second.signal];
    let together = optional(report.correlation, |value| format!("{value:.3}"));
    let ratio = optional(report.ratio, |value| format!("{value:.4}"));
    let words = Words {
        name: format!("The rates of {} and {} together", names[0], names[1]),
        about: format!("The first by the second is {ratio}; their rates correlate by {together}."),
    };
    let (head, rows) = joint::shares(cells, joint::MOST_GROUPS);
    let mut html = format!(
        "<section><h2>Two rates together</h2><p class=\"say\">How often both rates came at once, \
         from one sample to the next: the stronger the colour, the more pairs. {} by {} is \
         <b>{ratio}</b> on average; their rates correlate by <b>{together}</b> (Pearson's).</p>\n",
        escaped(names[0]),
        escaped(names[1]),
    );
    let picture = drawn(WIDTH, |width| map(names, cells, &words, width));
    let _ = writeln!(html, "<div class=\"map\">{picture}</div>");
    let out = outside(cells);
    if out > 0 {
        let _ = write!(
            html,
            "<p class=\"rest\">{} pairs lie beyond the edges.</p>",
            count(out)
        );
    }
    html += &figures::table(
        &format!(
            "The figures: % of the pairs, by {} (across) and {} (down)",
            names[0], names[1]
        ),
        &head,
        rows,
    );
    html + "</section>\n"
}

/// The axis of one of the rates: logarithmic, as the cells are.
fn axis(values: &[(f64, u64)]) -> Option<Axis> {
    let mut sorted = values.to_vec();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let zeros = sorted.first().is_some_and(|first| first.0 <= 0.0);
    sorted.retain(|value| value.0 > 0.0);
    let (low, high) = (
        quantile(&sorted, OUTSIDE)?,
        quantile(&sorted, 1.0 - OUTSIDE)?,
    );
    // Out to the ends of the outermost cells, and a little further.
    Some(Axis::logarithmic(low / 1.15, high * 1.15, zeros))
}

fn axes(cells: &Cells) -> Option<(Axis, Axis)> {
    let across: Vec<(f64, u64)> = cells.iter().map(|cell| (cell.0, cell.2)).collect();
    let up: Vec<(f64, u64)> = cells.iter().map(|cell| (cell.1, cell.2)).collect();
    Some((axis(&across)?, axis(&up)?))
}

fn outside(cells: &Cells) -> u64 {
    let Some((x, y)) = axes(cells) else { return 0 };
    let out = cells
        .iter()
        .filter(|cell| !x.holds(cell.0) || !y.holds(cell.1));
    out.map(|cell| cell.2).sum()
}

/// Where the cell of a rate begins and ends, if each doubling is cut into so many of equal length.
fn edges(rate: f64, each: f64) -> (f64, f64) {
    if rate <= 0.0 {
        return (0.0, 0.0);
    }
    let doubling = rate.log2().floor().exp2();
    let step = doubling / each;
    let low = doubling + ((rate - doubling) / step).floor() * step;
    (low, low + step)
}

/// What is drawn: a rectangle in px and how many pairs.
struct Spot {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    pairs: u64,
}

/// The map's cells, joined where there would be too many.
fn spots(cells: &Cells, (x, y): (Axis, Axis), frame: &Frame) -> Vec<Spot> {
    for each in [8.0, 4.0, 2.0, 1.0] {
        let mut joined: BTreeMap<[u64; 2], (f64, f64, u64)> = BTreeMap::new();
        for (a, b, n) in cells
            .iter()
            .filter(|cell| x.holds(cell.0) && y.holds(cell.1))
        {
            let key = [edges(*a, each).0.to_bits(), edges(*b, each).0.to_bits()];
            joined.entry(key).or_insert((*a, *b, 0)).2 += n;
        }
        if joined.len() > MOST_CELLS && each > 1.0 {
            continue;
        }
        return joined
            .into_values()
            .map(|cell| spot(cell, each, frame))
            .collect();
    }
    Vec::new()
}

fn spot((a, b, pairs): (f64, f64, u64), each: f64, frame: &Frame) -> Spot {
    let (left, right) = edges(a, each);
    let (low, high) = edges(b, each);
    // Zero has no length on its axis.
    let (mut left, mut right) = (frame.x(left), frame.x(right));
    let (mut top, mut bottom) = (frame.y(high), frame.y(low));
    if right - left < 1.0 {
        (left, right) = (left, left + 7.0);
    }
    if bottom - top < 1.0 {
        (top, bottom) = (bottom - 7.0, bottom);
    }
    Spot {
        left,
        right,
        top,
        bottom,
        pairs,
    }
}

fn map(names: [&str; 2], cells: &Cells, words: &Words, width: f64) -> String {
    let Some((x, y)) = axes(cells) else {
        return String::new();
    };
    let mut frame = Frame::new(width, x, y);
    frame.height = if width > NARROW { HEIGHT } else { 330.0 };
    let mut parts = frame.grid(
        &format!("{}, counts a second", names[0]),
        &format!("{}, counts a second", names[1]),
    );
    let spots = spots(cells, (x, y), &frame);
    let most = spots.iter().map(|spot| spot.pairs).max().unwrap_or(1);
    let mut shades = vec![String::new(); SHADES];
    for spot in &spots {
        let share = (spot.pairs as f64).ln() / (most as f64).ln().max(1e-9);
        let shade = ((share * SHADES as f64) as usize).min(SHADES - 1);
        let _ = write!(
            shades[shade],
            "M{:.1} {:.1}h{:.1}v{:.1}h-{2:.1}z",
            spot.left,
            spot.top,
            spot.right - spot.left,
            spot.bottom - spot.top,
        );
    }
    for (shade, letters) in shades
        .iter()
        .enumerate()
        .filter(|shade| !shade.1.is_empty())
    {
        let _ = write!(
            parts,
            "<path class=\"heat\" fill-opacity=\"{:.2}\" d=\"{letters}\"/>",
            opacity(shade)
        );
    }
    parts += &key(&frame, most);
    picture(width, frame.height + KEY_ROOM, words, &parts)
}

fn opacity(shade: usize) -> f64 {
    0.12 + 0.88 * shade as f64 / (SHADES - 1) as f64
}

/// What the shades mean.
fn key(frame: &Frame, most: u64) -> String {
    let (left, _) = frame.sides();
    let top = frame.height + 8.0;
    let mut parts = label((left, top + 9.0), "1 pair", "tick", Anchor::Start);
    let begins = left + width_of("1 pair") + 6.0;
    for shade in 0..SHADES {
        let at = begins + KEY * shade as f64;
        let _ = write!(
            parts,
            "<rect class=\"heat\" fill-opacity=\"{:.2}\" x=\"{at:.1}\" y=\"{top:.1}\" \
             width=\"{KEY}\" height=\"10\"/>",
            opacity(shade)
        );
    }
    let ends = begins + KEY * SHADES as f64 + 6.0;
    let most = format!("{} pairs", count(most));
    parts + &label((ends, top + 9.0), &most, "tick", Anchor::Start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rates_cell_holds_it() {
        for rate in [1.0, 1.0001, 1.99, 2.0, 4.17e6, 1e-3] {
            for each in [8.0, 4.0, 1.0] {
                let (low, high) = edges(rate, each);
                assert!(
                    low <= rate && rate < high && high <= low * (1.0 + 1.001 / each),
                    "{rate}"
                );
            }
        }
        assert_eq!(edges(0.0, 8.0), (0.0, 0.0));
    }

    #[test]
    fn every_pair_is_on_the_map_or_counted_beyond_it() {
        let mut cells = vec![
            (0.0, 5e6, 10),
            (1e6, 5e6, 30_000),
            (2e6, 4e6, 60_000),
            (1e12, 4e6, 1),
        ];
        let (x, y) = axes(&cells).expect("there are rates");
        let frame = Frame::new(WIDTH, x, y);
        let shown: u64 = spots(&cells, (x, y), &frame)
            .iter()
            .map(|spot| spot.pairs)
            .sum();
        assert_eq!((shown, outside(&cells)), (90_010, 1));
        cells.extend(
            (0..9_000).map(|i| (1e6 * 1.07f64.powi(i % 100), 1e3 * 1.07f64.powi(i / 90), 50)),
        );
        let (x, y) = axes(&cells).expect("there are rates");
        assert!(spots(&cells, (x, y), &frame).len() <= MOST_CELLS);
    }

    #[test]
    fn foreign_names_never_become_markup() {
        let words = Words {
            name: "<b>".into(),
            about: String::new(),
        };
        let svg = map(["<b>", "&"], &[(1.0, 2.0, 3)], &words, WIDTH);
        assert!(svg.contains("&lt;b&gt;") && svg.contains("&amp;") && !svg.contains("<b>"));
        assert!(map(["a", "b"], &[(0.0, 0.0, 5)], &words, WIDTH).is_empty());
    }
}
