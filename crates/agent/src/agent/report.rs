//! What a scrape is told.

use std::collections::BTreeMap;
use std::fs;

use tailscope_signals::clock::own_cpu_ns;

use super::Agent;
use crate::figures::{Figures, KindFigures, Own};

impl Agent {
    pub(super) fn figures(&self) -> Figures {
        let mut lost = self.counts.lost.clone();
        add(&mut lost, self.recorder.lost());
        let kinds = self.recorder.live().kinds().iter().map(|kind| {
            let (recent, total) = (kind.recent(), kind.total());
            KindFigures {
                name: kind.name().to_owned(),
                p50_ns: recent.quantile(0.5),
                p99_ns: recent.quantile(0.99),
                spans: total.spans(),
                wall_ns: total.whole().wall_ns,
            }
        });
        Figures {
            spans: self.counts.spans + self.recorder.seen(),
            rows: self.counts.rows + self.recorder.rows(),
            bytes: self.counts.bytes + self.recorder.sealed().bytes,
            lost,
            processes: self.recorder.processes().len() as u64,
            holding: self.holding,
            turns: self.counts.turns,
            reloads: self.counts.reloads,
            refused_reloads: self.counts.refused_reloads,
            config_is_applied: !self.counts.last_refused,
            write_errors: self.counts.write_errors,
            exported: self.exporter.as_ref().map(|_| self.exported.read()),
            kinds: kinds.collect(),
            own: own(self.started_ns),
        }
    }
}

/// Adds counts by their names.
pub(super) fn add(sums: &mut BTreeMap<String, u64>, counts: BTreeMap<String, u64>) {
    for (name, count) in counts {
        *sums.entry(name).or_default() += count;
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
