//! When a JVM stopped all its threads, and what for, from its own probes.

use std::collections::HashMap;

use serde::Serialize;
use tailscope_signals::event::{Event, Jvm, What};

/// A time in which a JVM's threads stood still.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Pause {
    /// The JVM's process.
    pub process: u32,
    /// The thread that did what the others were stopped for.
    pub tid: u32,
    /// From when, in ns of `CLOCK_MONOTONIC`.
    pub from_ns: u64,
    /// Until when.
    pub to_ns: u64,
    /// It was for a collection.
    pub collection: bool,
    /// What it was, in words.
    pub name: String,
}

#[derive(Debug, Default)]
struct Open {
    from: u64,
    operation: Vec<u8>,
    collector: Vec<u8>,
    collection: bool,
}

/// Which name the next piece of text goes on with.
#[derive(Debug, Clone, Copy)]
enum Naming {
    Operation,
    Collector,
    Another,
}

/// Makes pauses of events, which have to come in the order of their time.
#[derive(Debug, Default)]
pub struct Pauses {
    open: HashMap<u32, Open>,
    naming: HashMap<u32, Naming>,
    ended: Vec<Pause>,
}

impl Pauses {
    /// Takes the next event, of a thread of this process.
    pub fn take(&mut self, event: &Event, process: impl FnOnce() -> Option<u32>) {
        match event.what {
            What::Jvm {
                what,
                begins,
                name,
                more,
            } => {
                let naming = self.switch(event, what, begins, name, process);
                if more {
                    self.naming.insert(event.tid, naming);
                }
            }
            What::Text(text) => {
                let open = self.open.get_mut(&event.tid);
                match (self.naming.remove(&event.tid), open) {
                    (Some(Naming::Operation), Some(open)) => open.operation.extend(text),
                    (Some(Naming::Collector), Some(open)) => open.collector.extend(text),
                    _ => {}
                }
            }
            _ => {}
        }
    }

    fn switch(
        &mut self,
        event: &Event,
        what: Jvm,
        begins: bool,
        name: [u8; 12],
        process: impl FnOnce() -> Option<u32>,
    ) -> Naming {
        let (tid, now) = (event.tid, event.at);
        match (what, begins) {
            (Jvm::Operation, true) => {
                let open = Open {
                    from: now,
                    operation: name.to_vec(),
                    ..Open::default()
                };
                self.open.insert(tid, open);
                return Naming::Operation;
            }
            (Jvm::Collection, true) => {
                // Within an operation, as a rule; a JVM may collect without one.
                let open = self.open.entry(tid).or_insert(Open {
                    from: now,
                    ..Open::default()
                });
                open.collection = true;
            }
            (Jvm::Collector, true) => {
                if let Some(open) = self.open.get_mut(&tid)
                    && open.collector.is_empty()
                {
                    open.collector = name.to_vec();
                    return Naming::Collector;
                }
            }
            (Jvm::Operation, false) => self.close(tid, now, process),
            (Jvm::Collection, false) => {
                let alone = |open: &Open| open.operation.is_empty();
                if self.open.get(&tid).is_some_and(alone) {
                    self.close(tid, now, process);
                }
            }
            _ => {}
        }
        Naming::Another
    }

    fn close(&mut self, tid: u32, now: u64, process: impl FnOnce() -> Option<u32>) {
        let (Some(open), Some(process)) = (self.open.remove(&tid), process()) else {
            return;
        };
        let text = |bytes: &[u8]| {
            let end = bytes.iter().position(|byte| *byte == 0);
            let text = String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]);
            crate::trace::printable(&text)
        };
        let (operation, collector) = (text(&open.operation), text(&open.collector));
        let name = match (open.collection, collector.as_str(), operation.as_str()) {
            (true, "", "") => "stop-the-world collection".into(),
            (true, "", operation) => format!("stop-the-world collection ({operation})"),
            (true, collector, _) => format!("stop-the-world collection {collector}"),
            (false, _, operation) => format!("stop-the-world operation {operation}"),
        };
        self.ended.push(Pause {
            process,
            tid,
            from_ns: open.from,
            to_ns: now,
            collection: open.collection,
            name,
        });
    }

    /// All pauses that ended, in the order of their ends.
    #[must_use]
    pub fn all(&self) -> &[Pause] {
        &self.ended
    }

    /// The pause of a process that covers most of `from..to`, if it covers at least half.
    #[must_use]
    pub fn over(&self, process: u32, from: u64, to: u64) -> Option<&Pause> {
        let covers = |pause: &Pause| {
            let (begin, end) = (pause.from_ns.max(from), pause.to_ns.min(to));
            end.saturating_sub(begin)
        };
        let first = self.ended.partition_point(|pause| pause.to_ns <= from);
        self.ended[first..]
            .iter()
            .take_while(|pause| pause.from_ns < to)
            .filter(|pause| pause.process == process && covers(pause) * 2 >= to - from)
            .max_by_key(|pause| covers(pause))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn twelve(text: &str) -> [u8; 12] {
        std::array::from_fn(|at| text.as_bytes().get(at).copied().unwrap_or_default())
    }

    fn pauses(events: &[(u64, What)]) -> Vec<Pause> {
        let mut pauses = Pauses::default();
        for &(at, what) in events {
            pauses.take(&Event { at, tid: 5, what }, || Some(4));
        }
        pauses.all().to_vec()
    }

    fn jvm(what: Jvm, begins: bool, name: &str) -> What {
        What::Jvm {
            what,
            begins,
            name: twelve(name),
            more: name.len() > 12,
        }
    }

    #[test]
    fn a_collection_is_named_for_its_collector_from_the_operation_s_begin_to_its_end() {
        let text = |from: &str| What::Text(twelve(from));
        let made = pauses(&[
            (10, jvm(Jvm::Operation, true, "G1CollectForAllocation")),
            (10, text("Allocation")),
            (12, jvm(Jvm::Collection, true, "")),
            (13, jvm(Jvm::Collector, true, "G1 Young Generation")),
            (13, text("eration")),
            (14, jvm(Jvm::Collector, true, "G1 Young Generation")),
            (14, text("eration")),
            (50, jvm(Jvm::Collection, false, "")),
            (60, jvm(Jvm::Operation, false, "G1CollectForAllocation")),
            (60, text("Allocation")),
        ]);
        assert_eq!(made.len(), 1);
        assert_eq!(
            (made[0].from_ns, made[0].to_ns, made[0].collection),
            (10, 60, true)
        );
        assert_eq!(
            made[0].name,
            "stop-the-world collection G1 Young Generation"
        );
    }

    #[test]
    fn another_operation_keeps_its_own_name_and_an_end_without_a_begin_is_nothing() {
        let made = pauses(&[
            (5, jvm(Jvm::Operation, false, "x")),
            (10, jvm(Jvm::Operation, true, "Cleanup")),
            (20, jvm(Jvm::Operation, false, "Cleanup")),
        ]);
        assert_eq!(made.len(), 1);
        assert_eq!(made[0].name, "stop-the-world operation Cleanup");
    }

    #[test]
    fn a_collection_without_an_operation_counts_too() {
        let made = pauses(&[
            (10, jvm(Jvm::Collection, true, "")),
            (20, jvm(Jvm::Collection, false, "")),
        ]);
        assert_eq!(made[0].name, "stop-the-world collection");
    }
}
