//! What a value was over time, a step for each slice of it.

use super::axis::Axis;
use super::frame::Frame;
use super::svg::{Words, path, picture, through};

/// Values by the moment when each slice began, in seconds; `None`: it has none.
pub struct Course<'r> {
    pub words: Words,
    pub up: &'r str,
    pub class: &'r str,
    pub slices: &'r [(f64, Option<f64>)],
    /// How long all of it is, in seconds.
    pub seconds: f64,
    /// The axis goes at least as high.
    pub least: f64,
}

impl Course<'_> {
    /// Empty where no slice has a value.
    pub fn drawn(&self, width: f64) -> String {
        let highest = self.slices.iter().filter_map(|slice| slice.1);
        let Some(highest) = highest.reduce(f64::max) else {
            return String::new();
        };
        let y = Axis::linear(0.0, (highest * 1.06).max(self.least));
        let frame = Frame::new(width, Axis::linear(0.0, self.seconds), y);
        let mut parts = frame.grid("seconds", self.up);
        let class = format!("curve {}", self.class);
        for piece in self.pieces() {
            let points = piece
                .iter()
                .flat_map(|(from, to, value)| [frame.at(*from, *value), frame.at(*to, *value)]);
            parts += &path(&through(points), &class, &self.words.name);
        }
        picture(width, frame.height, &self.words, &parts)
    }

    /// The slices that follow each other without one that has no value: begin, end and value.
    fn pieces(&self) -> Vec<Vec<(f64, f64, f64)>> {
        let mut pieces = vec![Vec::new()];
        let ends = self.slices.iter().skip(1).map(|slice| slice.0);
        let ends = ends.chain([self.seconds]);
        for ((from, value), to) in self.slices.iter().zip(ends) {
            match (value, pieces.last_mut()) {
                (Some(value), Some(piece)) => piece.push((*from, to.max(*from), *value)),
                _ => pieces.push(Vec::new()),
            }
        }
        pieces.retain(|piece| !piece.is_empty());
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_breaks_where_nothing_is_known() {
        let slices = [
            (0.0, Some(5.0)),
            (1.0, None),
            (2.0, Some(6.0)),
            (3.0, Some(6.5)),
        ];
        let mut course = Course {
            words: Words {
                name: "rate".into(),
                about: String::new(),
            },
            up: "counts a second",
            class: "s-0",
            slices: &slices,
            seconds: 3.5,
            least: 0.0,
        };
        let pieces = course.pieces();
        assert_eq!(pieces[0], [(0.0, 1.0, 5.0)]);
        assert_eq!(pieces[1], [(2.0, 3.0, 6.0), (3.0, 3.5, 6.5)]);
        assert_eq!(course.drawn(480.0).matches("<path").count(), 2);
        course.slices = &slices[1..2];
        assert!(course.drawn(480.0).is_empty());
    }
}
