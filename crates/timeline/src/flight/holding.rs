//! How many seconds the memory holds at the present rate of events.

use tailscope_signals::event_ring::EventRings;

use super::Notice;
use super::sdk::Sdk;

/// A rate is told of no less time than this, in ns.
const LEAST_NS: u64 = 900_000_000;

/// One ring: how many events were written to it so far, and how many it holds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Filled {
    pub(super) head: u64,
    pub(super) slots: u64,
}

/// The rings of the CPUs, and that of the SDK's spans.
pub(super) fn filled(rings: &EventRings, sdk: Option<&Sdk>) -> Vec<Filled> {
    let own = sdk.map(|sdk| sdk.ring());
    let cpus = (0..rings.cpus()).map(|cpu| Filled {
        head: rings.head(cpu),
        slots: rings.slots(),
    });
    cpus.chain(own.map(|own| Filled {
        head: own.head(0),
        slots: own.slots(),
    }))
    .collect()
}

/// Looks once a second, says it once, and again where it became too little.
#[derive(Debug)]
pub(super) struct Holding {
    /// When the heads were looked at, in ns, and what they were.
    at: u64,
    heads: Vec<u64>,
    keep_ns: u64,
    /// Whether the first notice was given.
    told: bool,
    /// The fewest ns of which it was warned.
    warned: Option<u64>,
}

impl Holding {
    pub(super) fn new(now: u64, rings: &[Filled], keep_ns: u64) -> Self {
        Self {
            at: now,
            heads: rings.iter().map(|ring| ring.head).collect(),
            keep_ns,
            told: false,
            warned: None,
        }
    }

    /// Nothing was written for some time.
    pub(super) fn resume(&mut self, now: u64, rings: &[Filled]) {
        self.at = now;
        self.heads = rings.iter().map(|ring| ring.head).collect();
    }

    /// To be called about once a second; earlier than that it waits for more. Warns again only where it became half of what it was.
    pub(super) fn check(&mut self, now: u64, rings: &[Filled], bytes: u64) -> Option<Notice> {
        if now - self.at < LEAST_NS {
            return None;
        }
        let passed = now - std::mem::replace(&mut self.at, now);
        let heads = rings.iter().map(|ring| ring.head).collect();
        let before = std::mem::replace(&mut self.heads, heads);
        let written = |(ring, before): (&Filled, &u64)| ring.head - before;
        let events: u64 = rings.iter().zip(&before).map(written).sum();
        // Whichever ring is full first bounds what all of them hold.
        let held_ns = rings
            .iter()
            .zip(&before)
            .map(|(ring, before)| {
                let all = u128::from(ring.slots) * u128::from(passed);
                let of = u128::from((ring.head - before).max(1));
                u64::try_from(all / of).unwrap_or(u64::MAX)
            })
            .min()
            .unwrap_or(u64::MAX);
        let short = held_ns < self.keep_ns;
        let again = self.warned.is_none_or(|warned| held_ns < warned / 2);
        if self.told && !(short && again) {
            return None;
        }
        self.told = true;
        if short {
            self.warned = Some(held_ns);
        }
        let needed = u128::from(bytes) * u128::from(self.keep_ns) / u128::from(held_ns.max(1));
        Some(Notice::Holds {
            held_ns,
            keep_ns: self.keep_ns,
            events_per_second: (u128::from(events) * 1_000_000_000 / u128::from(passed.max(1)))
                as u64,
            needed_bytes: u64::try_from(needed).unwrap_or(u64::MAX),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Looks once a second at two rings of 1,000 events, of which the second fills at these rates. Gives
    /// back, by second, for how long the memory is said to last, in ms.
    fn told(rates: &[u64]) -> Vec<Option<u64>> {
        let mut rings = [Filled {
            head: 70,
            slots: 1000,
        }; 2];
        let mut holding = Holding::new(5 * SECOND, &rings, 10 * SECOND);
        (6..)
            .zip(rates)
            .map(|(at, rate)| {
                rings[0].head += 1;
                rings[1].head += rate;
                let notice = holding.check(at * SECOND, &rings, 64_000)?;
                let Notice::Holds { held_ns, .. } = notice else {
                    panic!("{notice:?}")
                };
                Some(held_ns / 1_000_000)
            })
            .collect()
    }

    #[test]
    fn it_is_said_after_the_first_second_whatever_it_is() {
        assert_eq!(told(&[50, 50, 60, 40]), [Some(20_000), None, None, None]);
    }

    #[test]
    fn it_warns_where_it_is_too_little_and_again_where_it_became_half() {
        let rates = [50, 200, 250, 100, 50, 200, 500, 450];
        let warned = [
            Some(20_000),
            Some(5_000),
            None,
            None,
            None,
            None,
            Some(2_000),
            None,
        ];
        assert_eq!(told(&rates), warned);
    }

    #[test]
    fn it_says_how_much_memory_would_hold_what_is_asked_for() {
        let ring = |head| Filled { head, slots: 1000 };
        let mut holding = Holding::new(0, &[ring(0), ring(0)], 10 * SECOND);
        let notice = holding.check(SECOND, &[ring(10), ring(250)], 64_000);
        let wanted = Notice::Holds {
            held_ns: 4 * SECOND,
            keep_ns: 10 * SECOND,
            events_per_second: 260,
            needed_bytes: 160_000,
        };
        assert_eq!(notice, Some(wanted));
    }
}
