//! Two counters' rates together: a table of shares as text, a map of colours in SVG.

use std::fmt::Write;

use tailscope_timeline::escaped;

use super::text::rate;

/// Columns and rows of the text; what lies further out is in those at the ends.
const MOST_GROUPS: usize = 8;
/// The share of all that may lie further out, to either side.
const OUTSIDE: f64 = 0.005;

type Cells = [(f64, f64, u64)];

/// Values of one rate in a few groups of the same ratio, zero apart.
struct Groups {
    has_zero: bool,
    /// Where each of the others ends; the last one has no end.
    ends: Vec<f64>,
    low: f64,
}

impl Groups {
    fn of(values: impl Iterator<Item = (f64, u64)>) -> Self {
        let mut values: Vec<(f64, u64)> = values.collect();
        values.sort_by(|a, b| a.0.total_cmp(&b.0));
        let has_zero = values.iter().any(|(value, _)| *value <= 0.0);
        values.retain(|(value, _)| *value > 0.0);
        let all: u64 = values.iter().map(|(_, n)| n).sum();
        let at = |share: f64| {
            let mut below = 0;
            let found = values.iter().find(|(_, n)| {
                below += n;
                below as f64 > share * all as f64
            });
            found.or(values.last()).map(|(value, _)| *value)
        };
        let (Some(low), Some(high)) = (at(OUTSIDE), at(1.0 - OUTSIDE)) else {
            return Self {
                has_zero,
                ends: Vec::new(),
                low: 0.0,
            };
        };
        let mut distinct: Vec<f64> = values.iter().map(|(value, _)| *value).collect();
        distinct.dedup();
        distinct.retain(|value| (low..=high).contains(value));
        let groups = distinct.len().clamp(1, MOST_GROUPS);
        // The values are middles of cells: an end must not be one of them.
        let (from, to) = (low / 1.04, high * 1.04);
        let ends = (1..=groups).map(|i| from * (to / from).powf(i as f64 / groups as f64));
        Self {
            has_zero,
            ends: ends.collect(),
            low: from,
        }
    }

    fn len(&self) -> usize {
        usize::from(self.has_zero) + self.ends.len()
    }

    fn place(&self, value: f64) -> usize {
        if value <= 0.0 {
            return 0;
        }
        let group = self.ends.partition_point(|end| *end <= value);
        usize::from(self.has_zero) + group.min(self.ends.len().saturating_sub(1))
    }

    /// The middle of each, as a rate.
    fn names(&self) -> Vec<String> {
        let zero = self.has_zero.then(|| "0".to_owned());
        let mut from = self.low;
        let others = self.ends.iter().map(|end| {
            let middle = (from * end).sqrt();
            from = *end;
            rate(middle)
        });
        zero.into_iter().chain(others).collect()
    }
}

/// A table: the second rate downwards, the first across, shares of the pairs in percent.
pub fn text(names: [&str; 2], cells: &Cells) -> String {
    let all: u64 = cells.iter().map(|cell| cell.2).sum();
    if all == 0 {
        return String::new();
    }
    let across = Groups::of(cells.iter().map(|cell| (cell.0, cell.2)));
    let down = Groups::of(cells.iter().map(|cell| (cell.1, cell.2)));
    let mut counts = vec![vec![0u64; across.len()]; down.len()];
    for (x, y, n) in cells {
        counts[down.place(*y)][across.place(*x)] += n;
    }
    let mut text = format!(
        "% of the pairs by {} (across) and {} (down)\n",
        names[0], names[1]
    );
    let _ = write!(text, "{:>12}", "");
    for name in across.names() {
        let _ = write!(text, " {name:>11}");
    }
    text.push('\n');
    for (name, row) in down.names().iter().zip(counts).rev() {
        let _ = write!(text, "{name:>12}");
        for count in row {
            let share = match count {
                0 => "·".to_owned(),
                count => format!("{:.2}", 100.0 * count as f64 / all as f64),
            };
            let _ = write!(text, " {share:>11}");
        }
        text.push('\n');
    }
    text
}

/// Where values of one rate are along an axis of so many steps: a step is a cell of the grid.
fn steps(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut all: Vec<f64> = values.collect();
    all.sort_by(f64::total_cmp);
    all.dedup();
    all
}

/// The same cell by cell as a picture, darker where more pairs are.
pub fn picture(names: [&str; 2], cells: &Cells) -> String {
    const SIZE: f64 = 360.0;
    const LEFT: f64 = 90.0;
    const BOTTOM: f64 = 36.0;
    let Some(most) = cells.iter().map(|cell| cell.2).max() else {
        return String::new();
    };
    let (xs, ys) = (
        steps(cells.iter().map(|cell| cell.0)),
        steps(cells.iter().map(|cell| cell.1)),
    );
    let (wide, high) = (SIZE / xs.len() as f64, SIZE / ys.len() as f64);
    let place = |all: &[f64], value: f64| all.partition_point(|one| *one < value) as f64;
    let mut svg = format!(
        "<h2>Two rates together: pairs of samples</h2>\n\
         <svg viewBox=\"0 0 {:.0} {:.0}\" role=\"img\" style=\"max-width:34em\">\n",
        LEFT + SIZE,
        SIZE + BOTTOM
    );
    for (x, y, n) in cells {
        let shade = 0.08 + 0.92 * (1.0 + *n as f64).ln() / (1.0 + most as f64).ln();
        let _ = writeln!(
            svg,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{wide:.1}\" height=\"{high:.1}\" fill=\"#0b6e99\" \
             fill-opacity=\"{shade:.2}\"><title>{}, {}: {n}</title></rect>",
            LEFT + place(&xs, *x) * wide,
            SIZE - (place(&ys, *y) + 1.0) * high,
            rate(*x),
            rate(*y),
        );
    }
    for share in [0.0, 0.5, 1.0] {
        let pick = |all: &[f64]| rate(all[((all.len() - 1) as f64 * share) as usize]);
        let anchor = if share < 1.0 { "start" } else { "end" };
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT + share * SIZE,
            SIZE + 14.0,
            pick(&xs),
            LEFT - 4.0,
            SIZE - share * (SIZE - 12.0),
            pick(&ys),
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{} →, {} ↑; only rates that came have a place</text>\n</svg>",
        (LEFT + SIZE) / 2.0,
        SIZE + BOTTOM - 6.0,
        escaped(names[0]),
        escaped(names[1]),
    );
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_all_pairs() {
        let cells = [(0.0, 5e6, 10), (1e6, 5e6, 30), (2e6, 4e6, 60)];
        let table = text(["a", "b"], &cells);
        let shares: f64 = table
            .lines()
            .skip(2)
            .flat_map(|line| line.split_whitespace().skip(2))
            .filter_map(|word| word.parse::<f64>().ok())
            .sum();
        assert!((shares - 100.0).abs() < 0.1, "{table}");
        assert_eq!(table.lines().count(), 2 + 2, "{table}");
        assert!(text(["a", "b"], &[]).is_empty());
    }

    #[test]
    fn many_rates_become_few_groups_and_each_keeps_its_own() {
        let values = (0..500).map(|i| (1e3 * 1.09f64.powi(i % 100), 1));
        let groups = Groups::of(values.clone());
        assert_eq!(groups.len(), MOST_GROUPS);
        let mut places: Vec<usize> = values.map(|(value, _)| groups.place(value)).collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places, (0..MOST_GROUPS).collect::<Vec<_>>());
        assert_eq!(Groups::of([(0.0, 7)].into_iter()).names(), ["0"]);
        assert_eq!(Groups::of([(5.0, 7)].into_iter()).len(), 1);
    }

    #[test]
    fn foreign_names_never_become_markup() {
        let svg = picture(["<b>", "&"], &[(1.0, 2.0, 3)]);
        assert!(svg.contains("&lt;b&gt;") && svg.contains("&amp;") && !svg.contains("<b>"));
        assert_eq!(svg.matches("<rect").count(), 1);
        assert!(picture(["a", "b"], &[]).is_empty());
    }
}
