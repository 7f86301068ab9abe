//! The figures of spans by the process that ran them.
//!
//! Their number is bounded, whatever processes come and go: processes of one name and port are
//! one, the first 64 combinations with a span's name have figures of their own, and the rest is
//! `(other)` ([`Live`]).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tailscope_record::{Live, Tap};
use tailscope_trace::{Names, SpanName, SpanRow};

use crate::figures::{KindFigures, ProcessLabels};
use crate::identity::Identity;
use crate::otlp::Exporter;

/// The name of processes that had ended before anybody could look.
const ENDED: &str = "(ended)";
/// The name of all that found no place.
const OTHER: &str = "(other)";
/// Between the parts of a combination's name. No label holds it: the kernel ends names there.
const BETWEEN: char = '\0';
/// So many combinations get a number; more only happen where spans' names or ports never end.
const MOST_NAMES: u32 = 4096;

/// The figures, by combination of a process and a span's name.
#[derive(Debug, Default)]
pub(crate) struct ByProcess {
    /// Whether anybody asks for them.
    wanted: bool,
    /// Whether processes of one name and port are told apart by their numbers.
    pid: bool,
    live: Live,
    names: Names,
    /// Who the processes are: to find out takes milliseconds, and a process may bring many names.
    identities: HashMap<i32, Option<Identity>>,
    /// The combination of a process's number and the recorder's number of a span's name.
    known: HashMap<(i32, u32), SpanName>,
}

/// The figures, as the recorder and a scrape share them: both in one thread, so nobody waits.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shared(Arc<Mutex<ByProcess>>);

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, ByProcess> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What takes every row for these figures, and then for an exporter.
    pub(crate) fn tap(&self, exporter: Option<&Exporter>) -> Tap {
        let mut export = exporter.and_then(Exporter::tap);
        let figures = self.clone();
        Box::new(move |row, user, name| {
            figures.lock().enter(row, user, name);
            if let Some(export) = &mut export {
                export(row, user, name);
            }
        })
    }
}

impl ByProcess {
    /// What the configuration asks for.
    pub(crate) fn configure(&mut self, wanted: bool, pid: bool) {
        if self.pid != pid {
            // Other labels, and so other series: all begin anew.
            *self = Self::default();
        }
        (self.wanted, self.pid) = (wanted, pid);
        self.refresh();
    }

    /// Looks at all processes again: they may have other names and ports by now, or the recorder
    /// another numbering of names.
    pub(crate) fn refresh(&mut self) {
        self.known.clear();
        self.identities.clear();
    }

    /// Forgets processes that have ended and whose rows have all come.
    pub(crate) fn keep(&mut self, may_have_rows: impl Fn(u32) -> bool) {
        self.known.retain(|(pid, _), _| may_have_rows(*pid as u32));
        self.identities.retain(|pid, _| may_have_rows(*pid as u32));
    }

    /// Lets time pass.
    pub(crate) fn advance(&mut self, now: Instant) {
        self.live.advance(now);
    }

    fn enter(&mut self, row: &SpanRow, user: u32, name: &str) {
        if !self.wanted {
            return;
        }
        let key = (row.pid, row.span.index());
        let combination = match self.known.get(&key) {
            Some(known) => *known,
            None => {
                let named = self.name(row.pid, name);
                *self.known.entry(key).or_insert(named)
            }
        };
        let names = &self.names;
        let text = || Arc::clone(names.text(combination));
        self.live.enter(row, (user, combination), text);
    }

    fn name(&mut self, pid: i32, span: &str) -> SpanName {
        let ask = || Identity::of(pid as u32);
        let identity = self.identities.entry(pid).or_insert_with(ask).as_ref();
        let port = identity.and_then(|who| who.port);
        let port = port.map_or_else(String::new, |port| port.to_string());
        let name = identity.map_or_else(|| ENDED.into(), |who| who.name.clone());
        let pid = if self.pid {
            pid.to_string()
        } else {
            String::new()
        };
        let text = [name.as_str(), &port, &pid, span].join(&BETWEEN.to_string());
        match self.names.find(&text) {
            Some(known) => known,
            None if self.names.len() < MOST_NAMES => self.names.intern(&text),
            None => self.names.intern(OTHER),
        }
    }

    /// What a scrape is told.
    pub(crate) fn figures(&self) -> Vec<(ProcessLabels, KindFigures)> {
        let all = self.live.kinds();
        let kinds = all.iter().enumerate();
        kinds
            .map(|(place, kind)| {
                let parts: Vec<&str> = kind.name().splitn(4, BETWEEN).collect();
                let (labels, span) = match parts.as_slice() {
                    [process, port, pid, span] => {
                        let labels = ProcessLabels {
                            process: (*process).to_owned(),
                            port: (*port).to_owned(),
                            pid: self.pid.then(|| (*pid).to_owned()),
                        };
                        (labels, *span)
                    }
                    _ => {
                        let labels = ProcessLabels {
                            process: OTHER.to_owned(),
                            port: String::new(),
                            pid: self.pid.then(String::new),
                        };
                        (labels, OTHER)
                    }
                };
                (labels, KindFigures::of(all, place, span))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(pid: u32, wall_ns: i64) -> SpanRow {
        SpanRow {
            pid: pid as i32,
            wall_ns,
            weight: 1.0,
            ..SpanRow::default()
        }
    }

    fn wanted(pid: bool) -> ByProcess {
        let mut all = ByProcess::default();
        all.configure(true, pid);
        all.advance(Instant::now());
        all
    }

    #[test]
    fn rows_are_counted_by_process_and_span() {
        let mut all = wanted(false);
        let me = std::process::id();
        let comm = std::fs::read_to_string("/proc/self/comm").expect("ours");
        all.enter(&row(me, 100), 0, "get");
        all.enter(&row(me, 300), 0, "get");
        all.enter(&row(u32::MAX, 50), 0, "get");
        let figures = all.figures();
        let told: Vec<_> = figures
            .iter()
            .map(|(labels, kind)| (labels.process.as_str(), kind.name.as_str(), kind.spans))
            .collect();
        assert_eq!(told, [(comm.trim_end(), "get", 2), (ENDED, "get", 1)]);
        assert!(figures.iter().all(|(labels, _)| labels.pid.is_none()));
    }

    #[test]
    fn with_pid_each_process_has_its_own_figures() {
        let mut all = wanted(true);
        all.enter(&row(u32::MAX, 1), 0, "get");
        all.enter(&row(u32::MAX - 1, 1), 0, "get");
        let told: Vec<_> = all.figures().into_iter().map(|(who, _)| who.pid).collect();
        assert_eq!(told, [Some("-1".to_owned()), Some("-2".to_owned())]);
    }

    #[test]
    fn combinations_are_bounded_and_no_row_is_lost() {
        let mut all = wanted(false);
        for number in 0..10_000u32 {
            let mut row = row(u32::MAX, 1);
            row.span = Names::default().intern("x");
            all.known.clear();
            all.enter(&row, 0, &format!("span {number}"));
        }
        let figures = all.figures();
        assert_eq!(figures.len(), 65);
        let spans: u64 = figures.iter().map(|(_, kind)| kind.spans).sum();
        assert_eq!(spans, 10_000);
        let (last, kind) = figures.last().expect("there are some");
        assert_eq!((last.process.as_str(), kind.name.as_str()), (OTHER, OTHER));
    }

    #[test]
    fn nothing_is_kept_that_nobody_asks_for() {
        let mut all = ByProcess::default();
        all.enter(&row(std::process::id(), 1), 0, "get");
        assert!(all.figures().is_empty());
    }
}
