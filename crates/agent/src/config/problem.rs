//! What is wrong with a configuration, and where.

use std::fmt;
use std::path::PathBuf;

/// A configuration is wrong: where, and how.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Problem {
    pub(super) path: PathBuf,
    /// Line and column, counted from 1.
    pub(super) at: Option<(usize, usize)>,
    pub(super) what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        if let Some((line, column)) = self.at {
            write!(f, ":{line}:{column}")?;
        }
        write!(f, ": {}", self.what)
    }
}

impl Problem {
    /// The line that is wrong, counted from 1, where it is one.
    #[must_use]
    pub fn line(&self) -> Option<usize> {
        self.at.map(|(line, _)| line)
    }
}

/// What is wrong with a value's kind, as people write the right one.
pub(super) fn in_words(message: &str) -> String {
    match message.strip_suffix(", expected a sequence") {
        // The only tables of which there may be several.
        Some(what) if what.ends_with(" map") => "a list is expected; write [[process]]".into(),
        Some(what) => format!("{what}: write a list, [\"…\"]"),
        None => message.to_owned(),
    }
}

/// Line and column of a byte, counted from 1.
pub(super) fn place(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
    (line, column)
}
