//! Which events a timeline writes: a busy server pays for each of them.

use std::fmt;
use std::str::FromStr;

use crate::{Measurement, Mechanisms};

/// Which events are written. Each tier has those of the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Tier {
    /// Which thread runs, who wakes whom, and the receives and sends of the watched.
    Scheduler,
    /// Also when TCP got a request, and when its answer left.
    Requests,
    /// Also clients on this machine, other packets, softirqs, interrupts, system calls, page faults,
    /// disks, and idle CPUs.
    #[default]
    All,
}

/// What is measured by events, but for those that nothing works without.
const MEASURED: &[(Measurement, Tier)] = &[
    (Measurement::Ready, Tier::Scheduler),
    (Measurement::Receive, Tier::Scheduler),
    (Measurement::Send, Tier::Scheduler),
    (Measurement::Tcp, Tier::Requests),
    (Measurement::Transmit, Tier::Requests),
    (Measurement::Block, Tier::All),
    (Measurement::Fault, Tier::All),
    (Measurement::Idle, Tier::All),
    (Measurement::Irq, Tier::All),
    (Measurement::Migrate, Tier::All),
    (Measurement::Packet, Tier::All),
    (Measurement::Softirq, Tier::All),
    (Measurement::Syscall, Tier::All),
];

impl Tier {
    /// All of them, the cheapest first.
    pub const ALL: [Self; 3] = [Self::Scheduler, Self::Requests, Self::All];

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scheduler => "scheduler",
            Self::Requests => "requests",
            Self::All => "all",
        }
    }

    /// Whether it has the events that measure this.
    pub(super) fn has(self, what: Measurement) -> bool {
        let found = MEASURED.iter().find(|(measured, _)| *measured == what);
        found.is_none_or(|(_, first)| *first <= self)
    }

    /// Says of what it has no events of.
    pub(super) fn leave_out(self, mechanisms: &mut Mechanisms) {
        for (what, _) in MEASURED.iter().filter(|(what, _)| !self.has(*what)) {
            mechanisms.set(*what, None, format!("--events {}", self.name()));
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Tier {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|tier| tier.name() == text);
        found.ok_or_else(|| format!("'{text}' is not one of scheduler, requests, all"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tier_has_what_the_one_before_has() {
        for (what, _) in MEASURED {
            let has = Tier::ALL.map(|tier| tier.has(*what));
            assert!(has.is_sorted() && has[2], "{what}: {has:?}");
        }
        // What has no row of its own is there always.
        assert!(Tier::Scheduler.has(Measurement::Runqueue));
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        for tier in Tier::ALL {
            assert_eq!(tier.name().parse(), Ok(tier));
        }
        assert!("some".parse::<Tier>().is_err());
    }

    #[test]
    fn what_is_left_out_says_by_which_option() {
        let mut mechanisms = Mechanisms::default();
        Tier::Requests.leave_out(&mut mechanisms);
        let syscall = mechanisms
            .get(Measurement::Syscall)
            .expect("it is left out");
        assert_eq!(
            (syscall.hook, syscall.why.as_str()),
            (None, "--events requests")
        );
        assert_eq!(mechanisms.get(Measurement::Tcp), None);
    }
}
