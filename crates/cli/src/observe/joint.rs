//! Two counters' rates together: a table of shares.

use std::fmt::Write;

use crate::units::rate;

/// Columns and rows of the text; what lies further out is in those at the ends.
const MOST_GROUPS: usize = 8;
/// How wide a column of the text is.
const COLUMN: usize = 12;
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
    /// At most so many, without that of zero.
    fn of(values: impl Iterator<Item = (f64, u64)>, most: usize) -> Self {
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
        let groups = distinct.len().clamp(1, most);
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

/// The table's head, the first rate across, and its rows, the second rate downwards, each with its
/// name first: shares of the pairs in percent.
fn shares(cells: &Cells, most_across: usize) -> (Vec<String>, Vec<Vec<String>>) {
    let all: u64 = cells.iter().map(|cell| cell.2).sum();
    let across = Groups::of(cells.iter().map(|cell| (cell.0, cell.2)), most_across);
    let down = Groups::of(cells.iter().map(|cell| (cell.1, cell.2)), MOST_GROUPS);
    let mut counts = vec![vec![0u64; across.len()]; down.len()];
    for (x, y, n) in cells {
        counts[down.place(*y)][across.place(*x)] += n;
    }
    let share = |count: u64| match count {
        0 => "·".to_owned(),
        count => format!("{:.2}", 100.0 * count as f64 / all as f64),
    };
    let row = |(name, row): (String, Vec<u64>)| -> Vec<String> {
        [name]
            .into_iter()
            .chain(row.into_iter().map(share))
            .collect()
    };
    let head = [String::new()].into_iter().chain(across.names()).collect();
    let rows = down
        .names()
        .into_iter()
        .zip(counts)
        .rev()
        .map(row)
        .collect();
    (head, rows)
}

/// The same as text, in as many columns as a width has room for.
pub fn text(names: [&str; 2], cells: &Cells, width: usize) -> String {
    if cells.iter().all(|cell| cell.2 == 0) {
        return String::new();
    }
    // The names of rows take one column, and zero may take another.
    let room = (width / COLUMN).saturating_sub(2).clamp(1, MOST_GROUPS);
    let (head, rows) = shares(cells, room);
    let mut text = format!(
        "% of the pairs by {} (across) and {} (down)\n",
        names[0], names[1]
    );
    for row in [head].into_iter().chain(rows) {
        let mut cells = row.into_iter();
        let _ = write!(text, "{:>12}", cells.next().unwrap_or_default());
        for cell in cells {
            let _ = write!(text, " {cell:>11}");
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_all_pairs() {
        let cells = [(0.0, 5e6, 10), (1e6, 5e6, 30), (2e6, 4e6, 60)];
        let table = text(["a", "b"], &cells, 80);
        let shares: f64 = table
            .lines()
            .skip(2)
            .flat_map(|line| line.split_whitespace().skip(2))
            .filter_map(|word| word.parse::<f64>().ok())
            .sum();
        assert!((shares - 100.0).abs() < 0.1, "{table}");
        assert_eq!(table.lines().count(), 2 + 2, "{table}");
        assert!(text(["a", "b"], &[], 80).is_empty());
    }

    #[test]
    fn a_table_fits_its_width_and_uses_it() {
        let cell = |i: i32| (1e3 * 1.5f64.powi(i % 20), 1e6 * 1.3f64.powi(i % 17), 1);
        let mut cells: Vec<_> = (0..500).map(cell).collect();
        cells.push((0.0, 0.0, 9));
        for width in [50, 80, 132] {
            let table = text(["a", "b"], &cells, width);
            let longest = table.lines().map(str::len).max().unwrap_or_default();
            assert!((width - COLUMN..=width).contains(&longest), "{table}");
        }
    }

    #[test]
    fn many_rates_become_few_groups_and_each_keeps_its_own() {
        let values = (0..500).map(|i| (1e3 * 1.09f64.powi(i % 100), 1));
        let groups = Groups::of(values.clone(), MOST_GROUPS);
        assert_eq!(groups.len(), MOST_GROUPS);
        let mut places: Vec<usize> = values.map(|(value, _)| groups.place(value)).collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places, (0..MOST_GROUPS).collect::<Vec<_>>());
        assert_eq!(Groups::of([(0.0, 7)].into_iter(), 8).names(), ["0"]);
        assert_eq!(Groups::of([(5.0, 7)].into_iter(), 8).len(), 1);
    }
}
