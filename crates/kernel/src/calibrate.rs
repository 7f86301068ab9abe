//! What the tracepoints of page faults and of interrupts can't see: the way into the kernel and
//! back.
//!
//! Goal: the whole time of a fault in `fault` and of an interrupt in `irq`. The hooks lie inside of
//! the kernel's handling. The exception itself would stay in `running`: of a small fault some 0.5
//! of 1.1 µs. Of an interrupt on a virtual machine it is most: the hypervisor takes the CPU, injects
//! the interrupt, and is entered again when it is acknowledged. Rejected: a constant for all
//! machines, as it depends on the processor, its mitigations and the hypervisor. Chosen: a child
//! that lives for some milliseconds is watched while it touches fresh pages, and while its CPU is
//! interrupted by membarrier(2). What that took by the child's own clock, less what its meter was
//! charged, is the unseen part. It is the median of many rounds, so that a neighbour in some of
//! them changes nothing. Other interrupts (a device's, a timer's) are taken to come in by the same
//! way.

mod apart;
mod child;
mod meter;

use std::io;

use libbpf_rs::{MapCore, MapFlags};
use tailscope_signals::abi;

use crate::load::Kernel;
use crate::mechanism::Measurement;
use crate::object::map_of;
use crate::shared::{self, Plain};
use apart::Apart;
use child::{Child, PAGES, Work};
use meter::Meter;

const ROUNDS: usize = 64;
/// Rounds that must count.
const ENOUGH: usize = 16;
/// Interrupts that a round must have to count.
const INTERRUPTS: u64 = 8;

impl Work {
    const fn measurement(self) -> Measurement {
        match self {
            Self::Touch => Measurement::Fault,
            Self::Spin => Measurement::Irq,
        }
    }

    /// What it measures, as `doctor` calls it.
    const fn event(self) -> &'static str {
        match self {
            Self::Touch => "fault",
            Self::Spin => "interrupt",
        }
    }

    /// No way in and out takes longer (ns); what says so was disturbed.
    const fn most_ns(self) -> u64 {
        match self {
            Self::Touch => 5_000,
            Self::Spin => 50_000,
        }
    }

    /// Which cause the events are, and which others lie in the time that the child saw.
    const fn causes(self) -> (u32, &'static [u32]) {
        match self {
            Self::Touch => (abi::TS_FAULT, &[]),
            Self::Spin => (
                abi::TS_IRQ,
                &[
                    abi::TS_SOFTIRQ_NET,
                    abi::TS_SOFTIRQ_TIMER,
                    abi::TS_SOFTIRQ_OTHER,
                ],
            ),
        }
    }

    /// Whether a round counts: by its events, and by how often the child was preempted.
    const fn tells(self, events: u64, preempted: u64) -> bool {
        match self {
            // A huge page, or a fault that was passed over, makes it another measurement.
            Self::Touch => events == PAGES as u64,
            // Another thread's time would count as an interrupt's.
            Self::Spin => events >= INTERRUPTS && preempted == 0,
        }
    }
}

impl Kernel {
    /// Measures the unseen part of a fault and of an interrupt (ns), and has it charged with each
    /// from now on.
    pub(crate) fn calibrate(&mut self) {
        // Both are measured before either is charged.
        let fault_ns = self.unseen_of(Work::Touch);
        let irq_ns = self.unseen_of(Work::Spin);
        let unseen = shared::unseen { fault_ns, irq_ns };
        if let Err(why) = map_of(&self.object, ".bss.unseen").update(
            &0u32.to_ne_bytes(),
            unseen.as_bytes(),
            MapFlags::ANY,
        ) {
            for of in [Measurement::Fault, Measurement::Irq] {
                self.add_reason(of, format!("nothing is added for its entry: {why}"));
            }
        }
    }

    /// Measures one, and says so with its mechanism. 0: not measured, or not known.
    fn unseen_of(&mut self, work: Work) -> u64 {
        if !self.mechanisms.measures(work.measurement()) {
            return 0;
        }
        let found = self.measure_child(work);
        let event = work.event();
        let said = match &found {
            Ok(ns) => {
                format!("{ns} ns are added to each {event} for entering and leaving the kernel")
            }
            Err(why) => format!("the time to enter and leave the kernel stays in running: {why}"),
        };
        self.add_reason(work.measurement(), said);
        found.unwrap_or(0)
    }

    fn add_reason(&mut self, of: Measurement, reason: String) {
        let Some(known) = self.mechanisms.get(of).cloned() else {
            return;
        };
        let why = match known.why.trim() {
            "" => reason,
            before => format!("{before}; {reason}"),
        };
        self.mechanisms.set(of, known.hook, why);
    }

    fn measure_child(&mut self, work: Work) -> io::Result<u64> {
        let mut child = Child::begin()?;
        self.watch(child.pid as u32).map_err(io::Error::other)?;
        let found = self.measure(&mut child, work);
        self.unwatch(child.pid as u32);
        found
    }

    fn measure(&self, child: &mut Child, work: Work) -> io::Result<u64> {
        let meter = Meter::of(&self.own_meters, child.pid as u32)
            .ok_or_else(|| io::Error::other("no meter was free"))?;
        // Under --sample only threads with a selected span are metered.
        meter.open()?;
        let (cause, others) = work.causes();
        let apart = match work {
            Work::Touch => None,
            Work::Spin => Some(Apart::from(child.pid)?),
        };
        let mut unseen = Vec::with_capacity(ROUNDS);
        for turn in 0..ROUNDS {
            if let Some(apart) = &apart {
                apart.take_turn(turn)?;
            }
            let before = meter.totals()?;
            let took = child.round(work)?;
            let after = meter.totals()?;
            let count = |cause: u32| {
                let at = cause as usize;
                u64::from(after.n[at].wrapping_sub(before.n[at]))
            };
            let events = count(cause);
            if !work.tells(events, count(abi::TS_PREEMPTED)) {
                continue;
            }
            let seen: u64 = std::iter::once(&cause)
                .chain(others)
                .map(|&one| after.ns[one as usize] - before.ns[one as usize])
                .sum();
            unseen.push(took.saturating_sub(seen) / events);
        }
        median(unseen, work)
    }
}

fn median(mut rounds: Vec<u64>, work: Work) -> io::Result<u64> {
    if rounds.len() < ENOUGH {
        let event = work.event();
        return Err(io::Error::other(format!("too few {event}s were metered")));
    }
    rounds.sort_unstable();
    let ns = rounds[rounds.len() / 2];
    if ns > work.most_ns() {
        return Err(io::Error::other(format!("{ns} ns is not plausible")));
    }
    Ok(ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_disturbed_rounds_change_nothing() {
        let mut rounds = vec![500; 40];
        rounds.extend([90_000; 10]);
        assert_eq!(median(rounds, Work::Touch).expect("there are enough"), 500);
    }

    #[test]
    fn what_was_hardly_measured_or_can_not_be_is_not_charged() {
        for work in [Work::Touch, Work::Spin] {
            assert!(median(vec![500; ENOUGH - 1], work).is_err());
            assert!(median(vec![work.most_ns() + 1; ENOUGH], work).is_err());
        }
    }
}
