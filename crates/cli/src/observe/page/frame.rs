//! The two axes that a picture lies between.

use super::axis::Axis;
use super::svg::{Anchor, label, line, width_of};

const TOP: f64 = 36.0;
const BOTTOM: f64 = 44.0;
const RIGHT: f64 = 16.0;
/// Two ticks closer than this share their place.
const APART: f64 = 8.0;

/// Two axes and the room between them.
#[derive(Debug)]
pub struct Frame {
    pub width: f64,
    pub height: f64,
    left: f64,
    x: Axis,
    y: Axis,
    /// How values across are written, where that is not as plain numbers.
    written: Option<fn(f64) -> String>,
}

impl Frame {
    /// Axes from left to right and from below to above, in a picture of this width.
    pub fn new(width: f64, x: Axis, y: Axis) -> Self {
        let ticks = y.ticks(5);
        let widest = ticks
            .iter()
            .map(|tick| width_of(&tick.1))
            .fold(0.0, f64::max);
        Self {
            width,
            height: if width < 400.0 { 240.0 } else { 270.0 },
            left: widest + 14.0,
            x,
            y,
            written: None,
        }
    }

    /// The same, with the values across written in words of their own.
    pub fn written(self, written: fn(f64) -> String) -> Self {
        Self {
            written: Some(written),
            ..self
        }
    }

    pub fn x(&self, value: f64) -> f64 {
        self.left + self.x.place(value) * (self.width - self.left - RIGHT)
    }

    pub fn y(&self, value: f64) -> f64 {
        self.bottom() - self.y.place(value) * (self.bottom() - TOP)
    }

    pub fn at(&self, x: f64, y: f64) -> (f64, f64) {
        (self.x(x), self.y(y))
    }

    /// From where to where the axis across goes.
    pub fn sides(&self) -> (f64, f64) {
        (self.left, self.width - RIGHT)
    }

    pub fn bottom(&self) -> f64 {
        self.height - BOTTOM
    }

    pub fn top(&self) -> f64 {
        TOP
    }

    /// Lines at round values, what they are, and in which units.
    pub fn grid(&self, across: &str, up: &str) -> String {
        let (left, right) = self.sides();
        let mut parts = String::new();
        for (value, text) in self.y.ticks(5) {
            let y = self.y(value);
            parts += &line((left, y), (right, y), "grid");
            parts += &label((left - 8.0, y + 4.0), &text, "tick", Anchor::End);
        }
        let mut free = f64::MIN;
        for (value, text) in self.x.ticks((self.width / 85.0) as usize) {
            let x = self.x(value);
            let text = self.written.map_or(text, |written| written(value));
            parts += &line((x, self.bottom()), (x, self.bottom() + 4.0), "edge");
            let half = width_of(&text) / 2.0;
            // At the right end a label may not stand out.
            let middle = x.min(self.width - half);
            if middle - half >= free {
                parts += &label(
                    (middle, self.bottom() + 18.0),
                    &text,
                    "tick",
                    Anchor::Middle,
                );
                free = middle + half + APART;
            }
        }
        parts += &line((left, self.bottom()), (right, self.bottom()), "edge");
        parts += &label((0.0, 12.0), up, "axis", Anchor::Start);
        parts + &label((right, self.height - 6.0), across, "axis", Anchor::End)
    }
}
