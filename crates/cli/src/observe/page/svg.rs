//! Elements of SVG: numbers short, text escaped, colours by class so that they follow the theme.

use std::fmt::Write;

use tailscope_timeline::escaped;

/// The widths that pictures are drawn for: all of a desk, half of it, a phone.
pub const WIDE: f64 = 1000.0;
pub const HALF: f64 = 480.0;
pub const NARROW: f64 = 346.0;
/// About so wide is a letter of the pictures' text.
const LETTER: f64 = 6.4;

/// Where a text is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

/// A coordinate with one decimal at most.
fn short(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

pub fn line(from: (f64, f64), to: (f64, f64), class: &str) -> String {
    format!(
        "<line class=\"{class}\" x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\"/>",
        short(from.0),
        short(from.1),
        short(to.0),
        short(to.1)
    )
}

pub fn label(at: (f64, f64), text: &str, class: &str, anchor: Anchor) -> String {
    let anchor = match anchor {
        Anchor::Start => "start",
        Anchor::Middle => "middle",
        Anchor::End => "end",
    };
    format!(
        "<text class=\"{class}\" x=\"{}\" y=\"{}\" text-anchor=\"{anchor}\">{}</text>",
        short(at.0),
        short(at.1),
        escaped(text)
    )
}

/// A filled rectangle with a tooltip.
pub fn bar(at: (f64, f64), size: (f64, f64), class: &str, tip: &str) -> String {
    format!(
        "<rect class=\"{class}\" x=\"{}\" y=\"{}\" width=\"{:.2}\" height=\"{}\" rx=\"2\">\
         <title>{}</title></rect>",
        short(at.0),
        short(at.1),
        size.0,
        short(size.1),
        escaped(tip)
    )
}

pub fn dot(at: (f64, f64), class: &str) -> String {
    format!(
        "<circle class=\"{class}\" cx=\"{}\" cy=\"{}\" r=\"4\"/>",
        short(at.0),
        short(at.1)
    )
}

/// The letters of a path through points; empty through none.
pub fn through(points: impl IntoIterator<Item = (f64, f64)>) -> String {
    let mut path = String::new();
    for (x, y) in points {
        let step = if path.is_empty() { 'M' } else { 'L' };
        let _ = write!(path, "{step}{} {}", short(x), short(y));
    }
    path
}

pub fn path(letters: &str, class: &str, tip: &str) -> String {
    format!(
        "<path class=\"{class}\" d=\"{letters}\"><title>{}</title></path>",
        escaped(tip)
    )
}

/// What a picture says to who can't see it: its name, and what is to be seen in it.
#[derive(Debug)]
pub struct Words {
    pub name: String,
    pub about: String,
}

/// A share in percent, with a minus that can be seen.
pub fn percent(share: f64) -> String {
    crate::observe::text::percent(share).replace('-', "\u{2212}")
}

/// A whole picture that scales to its place.
pub fn picture(width: f64, height: f64, words: &Words, parts: &str) -> String {
    format!(
        "<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\"><desc>{}</desc>{parts}</svg>",
        short(width),
        short(height),
        escaped(&words.name),
        escaped(&words.about)
    )
}

/// A picture twice, for a desk and for a phone, of which the style shows one.
pub fn drawn(wide: f64, draw: impl Fn(f64) -> String) -> String {
    format!(
        "<div class=\"wide\">{}</div><div class=\"narrow\">{}</div>",
        draw(wide),
        draw(NARROW)
    )
}

/// How wide a text is, about.
pub fn width_of(text: &str) -> f64 {
    text.chars().count() as f64 * LETTER
}

/// As much of a text as there is room for; its end tells names apart, so the middle goes.
pub fn fitted(text: &str, room: f64) -> String {
    let most = ((room / LETTER) as usize).max(3);
    let letters: Vec<char> = text.chars().collect();
    if letters.len() <= most {
        return text.to_owned();
    }
    let kept = most - 1;
    let head: String = letters[..kept.div_ceil(2)].iter().collect();
    let tail: String = letters[letters.len() - kept / 2..].iter().collect();
    format!("{head}…{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_names_never_become_markup() {
        let words = Words {
            name: "<b>\"".into(),
            about: "<i>".into(),
        };
        let parts = label((0.0, 1.25), "<script>&", "tick", Anchor::End)
            + &bar((0.0, 0.0), (1.0, 2.0), "f-0", "<u>")
            + &path("M0 0", "curve", "<s>");
        let svg = picture(10.0, 5.0, &words, &parts);
        for tag in ["<b>", "<i>", "<script>", "<u>", "<s>"] {
            assert!(!svg.contains(tag), "{svg}");
        }
        assert!(svg.contains("&lt;script&gt;&amp;") && svg.contains("&lt;b&gt;&quot;"));
    }

    #[test]
    fn long_names_keep_both_ends() {
        assert_eq!(fitted("short", 100.0), "short");
        let cut = fitted("a_function_with_a_very_long_name.c:120", 20.0 * LETTER);
        assert_eq!(cut.chars().count(), 20);
        assert!(
            cut.starts_with("a_function") && cut.ends_with("c:120"),
            "{cut}"
        );
    }
}
