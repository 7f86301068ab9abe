//! Lines of text with their inks, and the room that there is for them.

use tailscope_trace::Cause;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::console::in_one_line;

/// How a piece of text is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ink {
    Plain,
    Strong,
    /// The other way round.
    Title,
    /// As this part of a bar.
    Part(Option<Cause>),
}

/// A line of the picture.
#[derive(Debug, Clone, Default)]
pub struct Line(pub Vec<(String, Ink)>);

impl Line {
    pub fn new(text: impl Into<String>, ink: Ink) -> Self {
        Self(vec![(text.into(), ink)])
    }

    pub fn plain(text: impl Into<String>) -> Self {
        Self::new(text, Ink::Plain)
    }

    pub fn push(&mut self, text: impl Into<String>, ink: Ink) {
        self.0.push((text.into(), ink));
    }

    /// Without its inks.
    pub fn text(&self) -> String {
        self.0.iter().map(|(text, _)| text.as_str()).collect()
    }

    /// Cut to a width.
    pub fn cut(mut self, width: usize) -> Self {
        let mut left = width;
        for (text, _) in &mut self.0 {
            *text = fit(text, left);
            left -= text.width();
        }
        self
    }
}

/// The room for a picture.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    pub width: usize,
    /// `None`: as many lines as it takes, and no keys.
    pub height: Option<usize>,
    /// The locale has more than ASCII.
    pub unicode: bool,
}

impl Room {
    /// One of two texts, by what the locale has.
    pub fn glyphs<'t>(&self, unicode: &'t str, ascii: &'t str) -> &'t str {
        if self.unicode { unicode } else { ascii }
    }

    /// A name, in letters that the locale has, and nothing that a terminal obeys.
    pub fn spell(&self, name: &str) -> String {
        let known = |c: &char| self.unicode || c.is_ascii();
        let name = in_one_line(name);
        name.chars()
            .map(|c| if known(&c) { c } else { '?' })
            .collect()
    }

    /// A time in at most seven columns: `740 ns`, `28.1 µs`, `1.58 ms`, `1.20 s`.
    pub fn time(&self, ns: f64) -> String {
        let micro = self.glyphs("µs", "us");
        // The thresholds are where three digits would round up into the next unit.
        let (value, unit) = match ns {
            n if n < 999.5 => return format!("{n:.0} ns"),
            n if n < 999_500.0 => (n / 1e3, micro),
            n if n < 999_500_000.0 => (n / 1e6, "ms"),
            n => (n / 1e9, "s"),
        };
        let digits = match value {
            v if v < 9.995 => 2,
            v if v < 99.95 => 1,
            _ => 0,
        };
        format!("{value:.digits$} {unit}")
    }
}

/// The text, cut to a width.
pub fn fit(text: &str, width: usize) -> String {
    let mut used = 0;
    text.chars()
        .take_while(|c| {
            used += c.width().unwrap_or(0);
            used <= width
        })
        .collect()
}

/// The text with spaces up to a width.
pub fn pad(text: &str, width: usize) -> String {
    format!("{text}{}", " ".repeat(width.saturating_sub(text.width())))
}

/// The text at the right of a width.
pub fn right(text: &str, width: usize) -> String {
    format!("{}{text}", " ".repeat(width.saturating_sub(text.width())))
}
