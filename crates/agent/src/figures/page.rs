//! Prometheus' text format: families of samples, each with its help and its type.

use std::fmt::{Display, Write};

/// The text so far.
#[derive(Default)]
pub(super) struct Page {
    text: String,
    /// The name of the family that the next samples belong to.
    family: &'static str,
}

impl Page {
    /// Begins a family, of Prometheus' kinds: `counter`, `gauge`, `summary`.
    pub(super) fn family(&mut self, name: &'static str, kind: &str, help: &str) -> &mut Self {
        self.family = name;
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        self
    }

    /// A sample of the family, whose name ends with `suffix`.
    pub(super) fn labelled(&mut self, suffix: &str, labels: &[(&str, &str)], value: impl Display) {
        let _ = write!(self.text, "{}{suffix}", self.family);
        for (place, (name, text)) in labels.iter().enumerate() {
            let before = if place == 0 { '{' } else { ',' };
            let _ = write!(self.text, "{before}{name}=\"{}\"", escaped(text));
        }
        let after = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.text, "{after} {value}");
    }

    /// A family of one sample that only grows.
    pub(super) fn counter(&mut self, name: &'static str, help: &str, value: impl Display) {
        self.family(name, "counter", help).labelled("", &[], value);
    }

    /// A family of one sample that may fall, too.
    pub(super) fn gauge(&mut self, name: &'static str, help: &str, value: impl Display) {
        self.family(name, "gauge", help).labelled("", &[], value);
    }

    /// The whole text.
    pub(super) fn into_text(self) -> String {
        self.text
    }
}

/// A label's value. Names of spans are foreign.
fn escaped(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\\' => "\\\\".into(),
            '"' => "\\\"".into(),
            '\n' => "\\n".into(),
            c => c.to_string(),
        })
        .collect()
}
