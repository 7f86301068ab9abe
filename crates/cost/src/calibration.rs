//! What was measured, kept with the machine that it was measured on.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::identity::Identity;
use crate::statistics::{Estimate, student};

/// The layout of the file.
const VERSION: u32 = 1;
/// Values of earlier runs that are kept of each kind.
const EARLIER: usize = 9;

/// One kind of hit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KindCost {
    /// The kind's name.
    pub kind: String,
    /// ns that one hit takes from the program, with the interval from this run alone.
    pub ns: Estimate,
    /// The same in iterations of the reference loop that ran between.
    pub loops: f64,
    /// Hits that were timed.
    pub hits: u64,
    /// What earlier runs on this machine gave, the latest first (ns).
    pub earlier: Vec<f64>,
}

impl KindCost {
    /// ns a hit, with an interval that also holds how far runs on this machine lie apart.
    #[must_use]
    pub fn with_earlier(&self) -> Estimate {
        let runs: Vec<f64> = [self.ns.value]
            .iter()
            .chain(&self.earlier)
            .copied()
            .collect();
        let count = runs.len();
        if count < 2 {
            return self.ns;
        }
        let mean = runs.iter().sum::<f64>() / count as f64;
        let variance =
            runs.iter().map(|run| (run - mean).powi(2)).sum::<f64>() / (count - 1) as f64;
        // Of the next value, not of the mean: what the program meets is one more draw.
        let half = student(count - 1) * (variance * (1.0 + 1.0 / count as f64)).sqrt();
        Estimate {
            value: mean,
            low: (mean - half).min(self.ns.low).max(0.0),
            high: (mean + half).max(self.ns.high),
        }
    }
}

/// What a machine's hooks cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// The layout of the file.
    pub version: u32,
    /// The machine.
    pub machine: Identity,
    /// Seconds since 1970.
    pub at: u64,
    /// How long it took.
    pub seconds: f64,
    /// How often each kind had its turn.
    pub rounds: usize,
    /// ns of one iteration of the reference loop.
    pub loop_ns: f64,
    /// What each kind costs.
    pub kinds: Vec<KindCost>,
    /// Kinds that this machine has not, and why.
    pub absent: Vec<(String, String)>,
    /// What makes the figures doubtful.
    pub notices: Vec<String>,
}

/// Why there are no figures for this machine.
#[derive(Debug, thiserror::Error)]
pub enum CalibrationError {
    /// None yet.
    #[error("this machine is not calibrated: no {0}; run tailscope cost calibrate (10 s)")]
    None(String),
    /// It can't be read.
    #[error("can't read {path}: {why}; run tailscope cost calibrate to replace it")]
    Unreadable {
        /// The file.
        path: String,
        /// What is wrong.
        why: String,
    },
    /// It is another machine's.
    #[error(
        "{path} was measured on another machine or under other settings, so its costs are wrong \
         here; run tailscope cost calibrate. {}", .differences.join("; ")
    )]
    OtherMachine {
        /// The file.
        path: String,
        /// In what they differ.
        differences: Vec<String>,
    },
    /// It can't be written.
    #[error("can't write {path}: {source}")]
    Unwritable {
        /// The file.
        path: String,
        /// Why.
        source: io::Error,
    },
}

impl Calibration {
    /// A new one.
    #[must_use]
    pub fn new(machine: Identity, at: u64) -> Self {
        Self {
            version: VERSION,
            machine,
            at,
            seconds: 0.0,
            rounds: 0,
            loop_ns: 0.0,
            kinds: Vec::new(),
            absent: Vec::new(),
            notices: Vec::new(),
        }
    }

    /// Reads one, if it is this machine's.
    ///
    /// # Errors
    /// If there is none, it can't be read, or it is another machine's.
    pub fn read(path: &Path) -> Result<Self, CalibrationError> {
        let name = || path.display().to_string();
        let unreadable = |why: String| CalibrationError::Unreadable { path: name(), why };
        let text = match std::fs::read_to_string(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Err(CalibrationError::None(name()));
            }
            text => text.map_err(|e| unreadable(e.to_string()))?,
        };
        let read: Self = serde_json::from_str(&text).map_err(|e| unreadable(e.to_string()))?;
        if read.version != VERSION {
            return Err(unreadable(format!("layout {} is not known", read.version)));
        }
        let finite = |cost: &KindCost| {
            let ns = cost.ns;
            [ns.value, ns.low, ns.high]
                .iter()
                .all(|x| x.is_finite() && x.abs() < 1e12)
        };
        if !read.kinds.iter().all(finite) {
            return Err(unreadable("a cost is no number".into()));
        }
        let differences = Identity::here().differences(&read.machine);
        if !differences.is_empty() {
            return Err(CalibrationError::OtherMachine {
                path: name(),
                differences,
            });
        }
        Ok(read)
    }

    /// Takes over what earlier runs on this machine gave.
    pub fn follow(&mut self, before: &Self) {
        for cost in &mut self.kinds {
            if let Some(known) = before.kinds.iter().find(|known| known.kind == cost.kind) {
                cost.earlier = vec![known.ns.value];
                cost.earlier.extend(known.earlier.iter().take(EARLIER - 1));
            }
        }
    }

    /// Writes it; an older file stays until this one is whole.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn write(&self, path: &Path) -> Result<(), CalibrationError> {
        let written = || {
            if let Some(folder) = path
                .parent()
                .filter(|folder| !folder.as_os_str().is_empty())
            {
                tailscope_output::Folder::make(folder)?;
            }
            let json = serde_json::to_string_pretty(self).map_err(io::Error::other)?;
            tailscope_output::write(path, json + "\n")
        };
        written().map_err(|source| CalibrationError::Unwritable {
            path: path.display().to_string(),
            source,
        })
    }

    /// What a hit of this kind costs, over all runs.
    #[must_use]
    pub fn cost(&self, kind: &str) -> Option<Estimate> {
        let cost = self.kinds.iter().find(|cost| cost.kind == kind)?;
        Some(cost.with_earlier())
    }

    /// Why this machine has not that kind.
    #[must_use]
    pub fn why_absent(&self, kind: &str) -> &str {
        let found = self.absent.iter().find(|(name, _)| name == kind);
        found.map_or("it is not measured", |(_, why)| why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one() -> Calibration {
        let mut new = Calibration::new(Identity::here(), 1);
        new.kinds.push(KindCost {
            kind: "uprobe.empty".into(),
            ns: Estimate {
                value: 600.0,
                low: 590.0,
                high: 610.0,
            },
            loops: 400.0,
            hits: 1000,
            earlier: Vec::new(),
        });
        new
    }

    #[test]
    fn what_is_written_is_read_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("sub/cost.json");
        one().write(&path).expect("it can be written");
        assert_eq!(Calibration::read(&path).expect("it is ours"), one());
    }

    #[test]
    fn figures_of_another_machine_are_refused_and_the_difference_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("cost.json");
        let mut other = one();
        other.machine.cpu = "Other CPU".into();
        other.write(&path).expect("it can be written");
        let error = Calibration::read(&path)
            .expect_err("it is another's")
            .to_string();
        assert!(
            error.contains("Other CPU") && error.contains("calibrate"),
            "{error}"
        );
    }

    #[test]
    fn a_changed_setting_makes_it_another_machine() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("cost.json");
        let mut other = one();
        let setting = "kernel/perf_event_max_sample_rate";
        other.machine.settings.insert(setting.into(), "1".into());
        other.write(&path).expect("it can be written");
        let error = Calibration::read(&path)
            .expect_err("it is another's")
            .to_string();
        assert!(error.contains(setting), "{error}");
    }

    #[test]
    fn damaged_files_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("cost.json");
        for text in ["", "{", "[]", "{\"version\": 9}"] {
            std::fs::write(&path, text).expect("it can be written");
            let error = Calibration::read(&path).expect_err("it is no calibration");
            assert!(
                matches!(error, CalibrationError::Unreadable { .. }),
                "{error}"
            );
        }
        let mut wrong = one();
        wrong.kinds[0].ns.value = 1e300;
        wrong.write(&path).expect("it can be written");
        assert!(Calibration::read(&path).is_err());
    }

    #[test]
    fn runs_that_lie_apart_widen_the_interval() {
        let mut later = one();
        let mut earlier = one();
        earlier.kinds[0].ns = Estimate::exact(700.0);
        later.follow(&earlier);
        assert_eq!(later.kinds[0].earlier, [700.0]);
        let both = later.cost("uprobe.empty").expect("it is there");
        assert!(
            both.value == 650.0 && both.high > 700.0 && both.low < 590.0,
            "{both:?}"
        );
    }
}
