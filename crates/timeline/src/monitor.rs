//! When threads of a JVM waited for a monitor that another one held, from its own probes
//! (`-XX:+DTraceMonitorProbes`).

use std::collections::HashMap;

use tailscope_signals::event::{Event, Jvm, What};

/// A wait of a thread.
#[derive(Debug)]
struct Wait {
    from: u64,
    to: u64,
    class: Vec<u8>,
}

/// Makes waits of events, which have to come in the order of their time.
#[derive(Debug, Default)]
pub struct Monitors {
    open: HashMap<u32, Wait>,
    /// The next piece of text of this thread goes on with its monitor's class.
    naming: HashMap<u32, bool>,
    ended: HashMap<u32, Vec<Wait>>,
}

impl Monitors {
    /// Takes the next event; `kept`: somebody may ask for what is now.
    pub fn take(&mut self, event: &Event, kept: bool) {
        let (tid, now) = (event.tid, event.at);
        match event.what {
            What::Jvm {
                what,
                begins,
                name,
                more,
            } => {
                let contends = what == Jvm::Monitor && begins;
                if more {
                    self.naming.insert(tid, contends);
                }
                if contends {
                    let wait = Wait {
                        from: now,
                        to: now,
                        class: name.to_vec(),
                    };
                    self.open.insert(tid, wait);
                } else if what == Jvm::Monitor
                    && let Some(wait) = self.open.remove(&tid).filter(|_| kept)
                {
                    let of = self.ended.entry(tid).or_default();
                    of.push(Wait { to: now, ..wait });
                }
            }
            What::Text(text) => {
                if self.naming.remove(&tid) == Some(true)
                    && let Some(wait) = self.open.get_mut(&tid)
                {
                    wait.class.extend(text);
                }
            }
            _ => {}
        }
    }

    /// The class of the monitor that a thread waited for all the time from `from` to `to`.
    #[must_use]
    pub fn over(&self, tid: u32, from: u64, to: u64) -> Option<String> {
        let of = self.ended.get(&tid)?;
        let wait = of.get(of.partition_point(|wait| wait.to < to))?;
        let end = wait.class.iter().position(|byte| *byte == 0);
        let class = String::from_utf8_lossy(&wait.class[..end.unwrap_or(wait.class.len())]);
        (wait.from <= from).then(|| crate::trace::printable(&class).replace('/', "."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn twelve(text: &str) -> [u8; 12] {
        std::array::from_fn(|at| text.as_bytes().get(at).copied().unwrap_or_default())
    }

    #[test]
    fn a_wait_is_named_for_its_monitors_class_as_long_as_it_lasts() {
        let jvm = |what, begins, name: &str| What::Jvm {
            what,
            begins,
            name: twelve(name),
            more: name.len() > 12,
        };
        let mut monitors = Monitors::default();
        for (at, what) in [
            (5, jvm(Jvm::Class, false, "com/example/Another")),
            (5, What::Text(twelve("Another"))),
            (10, jvm(Jvm::Monitor, true, "com/example/Table")),
            (10, What::Text(twelve("Table"))),
            (90, jvm(Jvm::Monitor, false, "com/example/Table")),
            (90, What::Text(twelve("Table"))),
        ] {
            monitors.take(&Event { at, tid: 5, what }, true);
        }
        assert_eq!(
            monitors.over(5, 20, 80).as_deref(),
            Some("com.example.Table")
        );
        assert_eq!(monitors.over(5, 5, 80), None);
        assert_eq!(monitors.over(5, 20, 95), None);
        assert_eq!(monitors.over(6, 20, 80), None);
    }
}
