//! What a JVM did while a request was with its threads.

use std::collections::BTreeSet;

use serde::Serialize;

use super::Gap;
use crate::thread_timeline::ThreadTimelines;
use crate::trace::Trace;

/// What a JVM did during a request, on all its threads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct JvmMeanwhile {
    /// Its process.
    pub process: u32,
    /// Its name.
    pub name: String,
    /// How old it was when the request began, in ns; `None`: it was gone when the window was written.
    pub age_ns: Option<u64>,
    /// Classes that were loaded.
    pub classes_loaded: usize,
    /// Classes whose initialisation began and ended.
    pub classes_initialized: usize,
    /// Methods whose compilation ended.
    pub methods_compiled: usize,
}

impl JvmMeanwhile {
    /// In words: `java (process 42), 3.2 s old: 210 methods compiled`.
    #[must_use]
    pub fn words(&self) -> String {
        let all = [
            (self.classes_loaded, "class loaded", "classes loaded"),
            (
                self.classes_initialized,
                "class initialised",
                "classes initialised",
            ),
            (self.methods_compiled, "method compiled", "methods compiled"),
        ];
        let told: Vec<String> = all
            .iter()
            .filter(|(count, ..)| *count > 0)
            .map(|&(count, one, more)| format!("{count} {}", if count == 1 { one } else { more }))
            .collect();
        let (name, process) = (&self.name, self.process);
        format!(
            "{name} (process {process}){}: {}",
            self.old(", "),
            told.join(", ")
        )
    }

    /// How old it is, behind these words; nothing where that is not known.
    fn old(&self, behind: &str) -> String {
        self.age_ns.map_or_else(String::new, |age| {
            format!("{behind}{:.1} s old", age as f64 / 1e9)
        })
    }

    /// What there is to say where a request ran in it, most of the time, and nothing else is known: such code
    /// may be slow because it is not compiled yet.
    pub(super) fn beside_running(&self) -> String {
        match self.methods_compiled {
            0 => String::new(),
            1 => format!(
                ", in a JVM{} that compiled 1 method meanwhile",
                self.old(" ")
            ),
            count => format!(
                ", in a JVM{} that compiled {count} methods meanwhile",
                self.old(" ")
            ),
        }
    }

    /// Of all JVMs whose threads are in these gaps of a request, and that did anything.
    pub(super) fn of(
        trace: &Trace,
        timelines: &ThreadTimelines,
        gaps: &[Gap],
        from: u64,
        to: u64,
    ) -> Vec<Self> {
        let processes: BTreeSet<u32> = gaps
            .iter()
            .filter_map(|gap| timelines.process(gap.tid))
            .collect();
        let all = processes.into_iter().map(|process| {
            let (classes_loaded, classes_initialized) =
                timelines.classes().counts(process, from, to);
            let of = |tid| timelines.process(tid) == Some(process);
            let started = trace.about.started.get(&process);
            Self {
                process,
                name: trace.process(process),
                age_ns: started.map(|at| from.saturating_sub(*at)),
                classes_loaded,
                classes_initialized,
                methods_compiled: timelines.compilations().count(from, to, of),
            }
        });
        all.filter(|jvm| jvm.classes_loaded + jvm.classes_initialized + jvm.methods_compiled > 0)
            .collect()
    }
}
