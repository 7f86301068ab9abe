//! When a JVM's threads compiled methods, from its own probes.

use std::collections::HashMap;

use tailscope_signals::event::{Event, Jvm, What};

/// Makes stretches of events, which have to come in the order of their time.
#[derive(Debug, Default)]
pub struct Compilations {
    open: HashMap<u32, u64>,
    /// By thread: from when to when.
    ended: HashMap<u32, Vec<(u64, u64)>>,
}

impl Compilations {
    /// Takes the next event; `kept`: somebody may ask for what is now.
    pub fn take(&mut self, event: &Event, kept: bool) {
        let What::Jvm {
            what: Jvm::Compile,
            begins,
            ..
        } = event.what
        else {
            return;
        };
        if begins {
            self.open.insert(event.tid, event.at);
        } else if let Some(begin) = self.open.remove(&event.tid).filter(|_| kept) {
            let of = self.ended.entry(event.tid).or_default();
            of.push((begin, event.at));
        }
    }

    /// Whether a thread compiled for at least half of the time from `from` to `to`.
    #[must_use]
    pub fn over(&self, tid: u32, from: u64, to: u64) -> bool {
        let of = self.ended.get(&tid).map_or(&[][..], Vec::as_slice);
        let first = of.partition_point(|(_, end)| *end <= from);
        let within = of[first..].iter().take_while(|(begin, _)| *begin < to);
        let covered: u64 = within
            .map(|(begin, end)| (*end).min(to) - (*begin).max(from))
            .sum();
        covered > 0 && covered * 2 >= to - from
    }

    /// How many methods were done within `from..to`, by threads that `of` takes.
    #[must_use]
    pub fn count(&self, from: u64, to: u64, of: impl Fn(u32) -> bool) -> usize {
        let threads = self.ended.iter().filter(|(tid, _)| of(**tid));
        threads
            .map(|(_, ended)| {
                let before = |at: u64| ended.partition_point(|(_, end)| *end < at);
                before(to) - before(from)
            })
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_compiles_from_each_begin_to_its_end_and_methods_count_at_theirs() {
        let mut made = Compilations::default();
        for (at, tid, begins) in [
            (5, 8, false), // without a begin: nothing
            (10, 8, true),
            (20, 9, true),
            (30, 8, false),
            (32, 8, true),
            (50, 8, false),
            (60, 9, false),
        ] {
            let what = What::Jvm {
                what: Jvm::Compile,
                begins,
                name: [0; 12],
                more: false,
            };
            made.take(&Event { at, tid, what }, true);
        }
        assert!(made.over(8, 12, 48));
        assert!(made.over(8, 0, 40));
        assert!(!made.over(8, 45, 60));
        assert!(!made.over(7, 12, 48));
        assert_eq!(made.count(10, 55, |_| true), 2);
        assert_eq!(made.count(10, 61, |tid| tid == 9), 1);
        assert_eq!(made.count(31, 31, |_| true), 0);
    }
}
