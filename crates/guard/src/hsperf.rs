//! HotSpot's own counters, which are polled. They say when each collector last began and ended, where
//! a JVM's probes can't be used, and how full eden is.

use tailscope_observe::Signal;
use tailscope_observe::resolve::Resolver;

/// HotSpot has up to three.
const MOST: u32 = 4;

/// The collectors of one JVM: when each began and ended for the last time, in the JVM's own clock.
#[derive(Debug)]
pub struct Collectors(Vec<(Signal, Signal)>);

/// A counter of 64 bits. `None`: the process is no JVM, or does not share this one with us.
fn counter(resolver: &mut Resolver, pid: u32, name: &str) -> Option<Signal> {
    let name = format!("hsperf:{pid}:sun.gc.{name}");
    let signal = resolver.resolve(&name.parse().ok()?).ok()?;
    signal.load().map(|_| signal)
}

/// How full the part of the heap is in which new objects are made.
#[derive(Debug)]
pub struct Eden {
    used: Signal,
    capacity: Signal,
}

impl Eden {
    /// That of a process. `None`: its collector has none.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        let mut resolver = Resolver::default();
        let mut space = |what| counter(&mut resolver, pid, &format!("generation.0.space.0.{what}"));
        Some(Self {
            used: space("used")?,
            capacity: space("capacity")?,
        })
    }

    /// From 0 to 1.
    #[must_use]
    pub fn fill(&self) -> f64 {
        let part = |signal: &Signal| signal.load().unwrap_or(0) as f64;
        part(&self.used) / part(&self.capacity).max(1.0)
    }
}

impl Collectors {
    /// Those of a process. `None`: it is no JVM, or does not share its counters with us.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        let mut resolver = Resolver::default();
        let mut counter = |number: u32, what: &str| {
            counter(&mut resolver, pid, &format!("collector.{number}.{what}"))
        };
        let all: Vec<_> = (0..MOST)
            .map_while(|n| Some((counter(n, "lastEntryTime")?, counter(n, "lastExitTime")?)))
            .collect();
        (!all.is_empty()).then_some(Self(all))
    }

    /// Whether one of them has begun and not ended.
    #[must_use]
    pub fn are_collecting(&self) -> bool {
        self.0
            .iter()
            .any(|(entry, exit)| entry.load() > exit.load())
    }
}
