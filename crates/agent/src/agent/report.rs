//! What a scrape is told.

use std::fs;

use tailscope_signals::clock::own_cpu_ns;
use tailscope_trace::LOST_UNWRITTEN;

use super::Agent;
use super::budget::Held;
use crate::figures::{Figures, KindFigures, Own};

impl Agent {
    pub(super) fn figures(&self) -> Figures {
        let mut counted = self.counts.before.clone();
        counted.add(&self.recording.counted());
        let mut lost = counted.lost;
        lost.insert(LOST_UNWRITTEN.to_owned(), self.written.lost_rows());
        let all = self.recording.kinds();
        let kinds = all.iter().enumerate();
        let kinds = kinds.map(|(place, kind)| KindFigures::of(all, place, kind.name()));
        Figures {
            spans: counted.spans,
            rows: counted.rows,
            bytes: self.written.bytes(),
            lost,
            processes: self.recording.watched() as u64,
            holding: self.holding,
            turns: self.counts.turns,
            reloads: self.counts.reloads,
            refused_reloads: self.counts.refused_reloads,
            config_is_applied: !self.counts.last_refused,
            overhead: self.held.as_ref().map(Held::overhead),
            write_errors: self.counts.write_errors,
            exported: self.exporter.as_ref().map(|_| self.exported.read()),
            kinds: kinds.collect(),
            by_process: self.by_process.lock().figures(),
            own: own(self.started_ns),
        }
    }
}

/// What this process uses.
fn own(started_ns: i64) -> Own {
    let entries = |path| fs::read_dir(path).map_or(0, |entries| entries.count() as u64);
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse().ok())
        .unwrap_or(0);
    Own {
        cpu_ns: own_cpu_ns(),
        resident_bytes: pages * rustix::param::page_size() as u64,
        // Less the one that counts them.
        descriptors: entries("/proc/self/fd").saturating_sub(1),
        threads: entries("/proc/self/task"),
        started_ns,
    }
}
