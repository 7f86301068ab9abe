//! The ladder: for each measurement the mechanism that was taken, and why not a better one.

use std::collections::BTreeMap;

/// What one measurement stands on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rung {
    /// The mechanism; `None` if this machine can't measure it.
    pub mechanism: Option<&'static str>,
    /// Why not a better one; empty for the best.
    pub why: String,
}

/// All measurements, by the name of what is measured.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ladder(BTreeMap<&'static str, Rung>);

impl Ladder {
    /// Enters a measurement.
    pub fn set(
        &mut self,
        what: &'static str,
        mechanism: Option<&'static str>,
        why: impl Into<String>,
    ) {
        self.0.insert(
            what,
            Rung {
                mechanism,
                why: why.into(),
            },
        );
    }

    /// The measurement's rung.
    #[must_use]
    pub fn get(&self, what: &str) -> Option<&Rung> {
        self.0.get(what)
    }

    /// Whether this machine measures it.
    #[must_use]
    pub fn measures(&self, what: &str) -> bool {
        self.get(what).is_some_and(|rung| rung.mechanism.is_some())
    }

    /// All entries, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Rung)> {
        self.0.iter().map(|(what, rung)| (*what, rung))
    }
}
