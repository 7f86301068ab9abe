//! Collections of a JVM whose probes can't be used: HotSpot's own counters say when each collector
//! last began and ended. They are polled, so a collection is seen up to a ms late.

use tailscope_observe::Signal;
use tailscope_observe::resolve::Resolver;

/// HotSpot has up to three.
const MOST: u32 = 4;

/// The collectors of one JVM: when each began and ended for the last time, in the JVM's own clock.
#[derive(Debug)]
pub struct Collectors(Vec<(Signal, Signal)>);

impl Collectors {
    /// Those of a process. `None`: it is no JVM, or does not share its counters with us.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        let mut resolver = Resolver::default();
        let mut counter = |number: u32, what: &str| {
            let name = format!("hsperf:{pid}:sun.gc.collector.{number}.{what}");
            let signal = resolver.resolve(&name.parse().ok()?).ok()?;
            signal.load().map(|_| signal)
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
