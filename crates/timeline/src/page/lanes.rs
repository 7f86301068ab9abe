//! What a page draws of the CPUs: who had each of them when, what ran on top, and who was woken.

use std::collections::BTreeMap;

use tailscope_signals::event::{OnTop, What};

use crate::trace::Trace;

/// More bars than this are more than a screen has points.
const MOST_BARS: usize = 4000;

/// A bar of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bar<T> {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) what: T,
}

/// One CPU.
#[derive(Debug, Default)]
pub(super) struct Lane {
    /// The threads that had it; no bar: it was idle.
    pub(super) threads: Vec<Bar<u32>>,
    /// What ran on top of them.
    pub(super) on_top: Vec<Bar<OnTop>>,
    current: Option<(u32, u64)>,
    open: Vec<(OnTop, u64)>,
}

/// A wake-up of a thread that is looked at, to the moment when it ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WakeUp {
    pub(super) at: u64,
    pub(super) from_cpu: u32,
    pub(super) runs: u64,
    pub(super) on_cpu: u32,
}

/// The lanes of a stretch of time, and the wake-ups of these threads.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    pub(super) cpus: BTreeMap<u32, Lane>,
    pub(super) wake_ups: Vec<WakeUp>,
}

impl Lane {
    fn leave(&mut self, now: u64, from: u64) {
        if let Some((tid, since)) = self.current.take()
            && tid != 0
            && now > from
            && self.threads.len() < MOST_BARS
        {
            self.threads.push(Bar {
                from: since.max(from),
                to: now,
                what: tid,
            });
        }
    }
}

pub(super) fn collect(trace: &Trace, from: u64, to: u64, threads: &[u32]) -> Lanes {
    let mut lanes = Lanes::default();
    let mut woken: BTreeMap<u32, (u64, u32)> = BTreeMap::new();
    for part in &trace.about.parts {
        lanes.cpus.entry(part.cpu).or_default();
    }
    for (cpu, event) in trace.events().take_while(|(_, event)| event.at <= to) {
        let now = event.at;
        let lane = lanes.cpus.entry(cpu).or_default();
        match event.what {
            What::Switch { to: next, .. } => {
                if lane.current.is_none() {
                    lane.current = Some((event.tid, from));
                }
                lane.leave(now, from);
                lane.current = Some((next, now));
                if let Some((at, from_cpu)) = woken.remove(&next)
                    && now >= from
                {
                    lanes.wake_ups.push(WakeUp {
                        at,
                        from_cpu,
                        runs: now,
                        on_cpu: cpu,
                    });
                }
            }
            What::Waking { thread, .. } if threads.contains(&thread) => {
                woken.entry(thread).or_insert((now, cpu));
            }
            What::Enter(on_top) => lane.open.push((on_top, now)),
            What::Leave(on_top) => {
                let at = lane.open.iter().rposition(|(other, _)| *other == on_top);
                if let Some(at) = at {
                    let (what, since) = lane.open[at];
                    lane.open.truncate(at);
                    if now > from && lane.on_top.len() < MOST_BARS {
                        lane.on_top.push(Bar {
                            from: since.max(from),
                            to: now,
                            what,
                        });
                    }
                }
            }
            _ => {}
        }
    }
    for lane in lanes.cpus.values_mut() {
        lane.leave(to, from);
    }
    lanes
}
