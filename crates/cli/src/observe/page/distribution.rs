//! How values are distributed: which share of them is at or below each.

use super::axis::{Axis, quantile};
use super::frame::Frame;
use super::svg::{Anchor, Words, dot, label, line, path, picture, through, width_of};

/// The quantiles that are told by name.
const TOLD: [(f64, &str); 2] = [(0.5, "p50"), (0.99, "p99")];
/// Steps smaller than this can't be seen (px).
const VISIBLE: f64 = 0.4;

type Cells = [(f64, u64)];

/// One distribution, and perhaps another behind it.
pub struct Distribution<'r> {
    pub words: Words,
    /// What is counted, and in which unit it is told.
    pub across: &'r str,
    pub up: &'r str,
    pub class: &'r str,
    pub cells: &'r Cells,
    /// The share of all that may lie beyond each end of the axis.
    pub outside: f64,
    /// What is drawn behind, with what it is.
    pub behind: Option<(&'r Cells, &'r str)>,
    /// A value that was asked for, with its name.
    pub goal: Option<(f64, String)>,
    /// A value as people read it.
    pub shown: &'r dyn Fn(f64) -> String,
}

impl Distribution<'_> {
    /// Empty where there is nothing to show.
    pub fn drawn(&self, width: f64) -> String {
        let Some(x) = Axis::of(self.cells, self.outside) else {
            return String::new();
        };
        let frame = Frame::new(width, x, Axis::linear(0.0, 100.0));
        let mut parts = frame.grid(self.across, self.up);
        if let Some((value, name)) = self.goal.as_ref().filter(|goal| x.holds(goal.0)) {
            let at = frame.x(*value);
            parts += &line((at, frame.top()), (at, frame.bottom()), "goal");
            let right = at + width_of(name) + 12.0 < width;
            let (shift, anchor) = if right {
                (6.0, Anchor::Start)
            } else {
                (-6.0, Anchor::End)
            };
            parts += &label((at + shift, frame.bottom() - 8.0), name, "row", anchor);
        }
        if let Some((cells, tip)) = self.behind {
            parts += &path(&steps(cells, x, &frame), "curve dashed", tip);
        }
        let class = format!("curve {}", self.class);
        parts += &path(&steps(self.cells, x, &frame), &class, &self.words.name);
        parts += &self.quantiles(&frame, x);
        picture(width, frame.height, &self.words, &parts)
    }

    /// How many values lie beyond the picture's right edge.
    pub fn beyond(&self) -> u64 {
        let Some(axis) = Axis::of(self.cells, self.outside) else {
            return 0;
        };
        let out = self.cells.iter().filter(|cell| cell.0 > axis.high());
        out.map(|cell| cell.1).sum()
    }

    fn quantiles(&self, frame: &Frame, axis: Axis) -> String {
        let mut parts = String::new();
        for (share, name) in TOLD {
            let Some(value) = quantile(self.cells, share).filter(|value| axis.holds(*value)) else {
                continue;
            };
            let (x, y) = frame.at(value, share * 100.0);
            let text = format!("{name} {}", (self.shown)(value));
            let (left, right) = frame.sides();
            // To the left above the curve, where there is room, else below it to the right.
            let before = x - width_of(&text) - 14.0 > left;
            let (dx, anchor) = if before {
                (-9.0, Anchor::End)
            } else {
                (9.0, Anchor::Start)
            };
            let down = if before { -6.0 } else { 16.0 };
            parts += &dot((x.min(right), y), "ink");
            parts += &label((x + dx, y + down), &text, "value", anchor);
        }
        parts
    }
}

/// The share at or below each value, in steps.
fn steps(cells: &Cells, axis: Axis, frame: &Frame) -> String {
    let all: u64 = cells.iter().map(|cell| cell.1).sum();
    let mut below = 0;
    let (left, right) = frame.sides();
    let mut points = vec![(left, frame.bottom())];
    for (value, count) in cells {
        let height = |below: u64| frame.y(100.0 * below as f64 / all.max(1) as f64);
        let (before, after) = (height(below), height(below + count));
        below += count;
        if *value > axis.high() {
            break;
        }
        let x = frame.x(*value);
        let (last_x, last_y) = points[points.len() - 1];
        if x - last_x >= VISIBLE {
            points.push((x, before));
        }
        if x - last_x >= VISIBLE || last_y - after >= VISIBLE || below == all {
            points.push((x, after));
        }
    }
    let last = points[points.len() - 1].1;
    points.push((right, last));
    through(points)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of<'c>(cells: &'c Cells, behind: Option<&'c Cells>) -> Distribution<'c> {
        Distribution {
            words: Words {
                name: "rates".into(),
                about: String::new(),
            },
            across: "counts a second",
            up: "% of the pairs",
            class: "s-one",
            cells,
            outside: 0.000_5,
            behind: behind.map(|cells| (cells, "all")),
            goal: None,
            shown: &|value| format!("{value}"),
        }
    }

    #[test]
    fn a_curve_ends_at_all_and_names_its_quantiles() {
        let (kept, all) = ([(10.0, 1), (20.0, 3)], [(10.0, 2), (20.0, 2)]);
        let svg = of(&kept, Some(&all)).drawn(480.0);
        assert!(svg.contains("p50 20") && svg.contains("p99 20"), "{svg}");
        assert_eq!(svg.matches("class=\"curve").count(), 2);
        // The top of the frame, which is 100 %.
        assert!(svg.contains(" 36\"><title>rates"), "{svg}");
        assert!(of(&[], None).drawn(480.0).is_empty());
        assert!(of(&[(0.0, 7)], None).drawn(480.0).is_empty());
    }

    #[test]
    fn what_does_not_fit_is_counted() {
        let cells = [(10.0, 99_990), (11.0, 9), (1e9, 1)];
        assert_eq!(of(&cells, None).beyond(), 10);
        assert_eq!(of(&cells[..1], None).beyond(), 0);
    }
}
