//! The clock of spans is the invariant cycle counter; it becomes nanoseconds only here.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A reading of the cycle counter: TSC on x86-64, CNTVCT on arm64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cycles(pub u64);

impl Cycles {
    /// The counter now, about 8 ns.
    #[must_use]
    pub fn now() -> Self {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: rdtsc has no precondition; every x86-64 has it, and Linux leaves it enabled.
        let cycles = unsafe { core::arch::x86_64::_rdtsc() };
        #[cfg(target_arch = "aarch64")]
        let cycles = {
            let v: u64;
            // SAFETY: Linux lets user space read the virtual counter.
            unsafe { core::arch::asm!("isb", "mrs {}, cntvct_el0", out(reg) v) };
            v
        };
        Self(cycles)
    }

    /// The counter after every load that came before has its value, and before any that follows
    /// is made.
    #[inline(always)]
    #[must_use]
    pub fn between_loads() -> Self {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: neither instruction has a precondition. One fence waits for the loads, one for
        // the reading.
        let cycles = unsafe {
            core::arch::x86_64::_mm_lfence();
            let cycles = core::arch::x86_64::_rdtsc();
            core::arch::x86_64::_mm_lfence();
            cycles
        };
        #[cfg(target_arch = "aarch64")]
        let cycles = {
            let v: u64;
            // SAFETY: Linux lets user space read the virtual counter; barriers are free to use.
            unsafe { core::arch::asm!("dsb ld", "isb", "mrs {}, cntvct_el0", "isb", out(reg) v) };
            v
        };
        Self(cycles)
    }

    /// The counter before any load that follows is made.
    #[inline(always)]
    #[must_use]
    pub fn before_loads() -> Self {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: neither instruction has a precondition. The fence waits for the reading.
        let cycles = unsafe {
            let cycles = core::arch::x86_64::_rdtsc();
            core::arch::x86_64::_mm_lfence();
            cycles
        };
        #[cfg(target_arch = "aarch64")]
        let cycles = {
            let v: u64;
            // SAFETY: Linux lets user space read the virtual counter; barriers are free to use.
            unsafe { core::arch::asm!("mrs {}, cntvct_el0", "isb", out(reg) v) };
            v
        };
        Self(cycles)
    }

    /// The counter after every load that came before has its value.
    #[inline(always)]
    #[must_use]
    pub fn after_loads() -> Self {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: neither instruction has a precondition. The fence waits for the loads.
        let cycles = unsafe {
            core::arch::x86_64::_mm_lfence();
            core::arch::x86_64::_rdtsc()
        };
        #[cfg(target_arch = "aarch64")]
        let cycles = {
            let v: u64;
            // SAFETY: Linux lets user space read the virtual counter; barriers are free to use.
            unsafe { core::arch::asm!("dsb ld", "isb", "mrs {}, cntvct_el0", out(reg) v) };
            v
        };
        Self(cycles)
    }
}

/// By how many cycles the counter goes on at a time, measured in some 0.4 ms; 1 where it is fine. Some
/// processors (EPYC) make their TSC of a clock of 100 MHz: it goes on by 20 to 40 cycles at once.
#[must_use]
pub fn step() -> u64 {
    let differences = (0..PAIRS).map(|i| {
        let first = Cycles::now().0;
        for pause in 0..i % PAUSES {
            std::hint::black_box(pause);
        }
        Cycles::now().0.wrapping_sub(first)
    });
    step_of(differences.collect())
}

/// How many pairs of readings a step is told from, and how many different pauses are between both.
const PAIRS: u64 = 4_096;
const PAUSES: u64 = 397;

/// What lies between the differences that come: those of a fine clock come next to each other. A step
/// need not be a whole number of cycles, so its multiples are one or two cycles wide.
fn step_of(mut differences: Vec<u64>) -> u64 {
    const WIDE: u64 = 2;
    differences.sort_unstable();
    // Some readings are held up by an interrupt: those say nothing.
    differences.truncate(differences.len() / 10 * 9);
    let mut groups: Vec<(u64, u64)> = Vec::new();
    for difference in differences {
        match groups.last_mut() {
            Some((_, last)) if difference - *last <= WIDE => *last = difference,
            _ => groups.push((difference, difference)),
        }
    }
    let (Some((first, _)), Some((_, last))) = (groups.first(), groups.last()) else {
        return 1;
    };
    let covered: u64 = groups.iter().map(|(first, last)| last - first).sum();
    if groups.len() < 3 || covered * 2 > last - first {
        return 1;
    }
    let middles = groups.iter().map(|(first, last)| first.midpoint(*last));
    let next = middles.clone().skip(1);
    let mut apart: Vec<u64> = next.zip(middles).map(|(next, this)| next - this).collect();
    apart.sort_unstable();
    apart[apart.len() / 2]
}

/// Nanoseconds of `CLOCK_MONOTONIC`, the clock of the kernel's programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Monotonic(pub u64);

impl Monotonic {
    /// The clock now.
    #[must_use]
    pub fn now() -> Self {
        Self(nanos(ClockId::Monotonic))
    }
}

fn nanos(clock: ClockId) -> u64 {
    let t = clock_gettime(clock);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// CPU time of this process, in ns.
#[must_use]
pub fn own_cpu_ns() -> u64 {
    nanos(ClockId::ProcessCPUTime)
}

/// Unix time now, in ns.
#[must_use]
pub fn unix_ns() -> i64 {
    nanos(ClockId::Realtime) as i64
}

/// Both clocks at one moment, as nearly as user space can tell.
#[derive(Debug, Clone, Copy)]
struct Pair {
    cycles: u64,
    ns: u64,
}

impl Pair {
    /// The best of a few tries: the one whose clock call took the fewest cycles.
    fn read() -> Self {
        (0..8)
            .map(|_| {
                let before = Cycles::now().0;
                let ns = Monotonic::now().0;
                let after = Cycles::now().0;
                (
                    after - before,
                    Pair {
                        cycles: before + (after - before) / 2,
                        ns,
                    },
                )
            })
            .min_by_key(|(took, _)| *took)
            .map(|(_, pair)| pair)
            .expect("eight tries")
    }
}

/// Converts cycles and the monotonic clock to Unix nanoseconds.
///
/// The rate is measured from the first pair of readings to the latest, so it sharpens as the
/// recording goes on: 20 ms give it to a few millionths. The distance to Unix time is read once:
/// a clock that is stepped in mid-recording bends nothing. Who records for weeks looks at
/// [`step_ns`](Clock::step_ns) and [`restart`](Clock::restart)s it between two ledgers.
///
/// While the machine is suspended the monotonic clock stands still, and most cycle counters don't. So that
/// time is no part of the rate, nor of a length that it lies in: spans lose it, whichever clock they are of.
#[derive(Debug)]
pub struct Clock {
    first: Pair,
    latest: Pair,
    ns_per_cycle: f64,
    monotonic_to_unix: i64,
    /// ns that the machine was suspended since its boot, at the first pair.
    suspended_ns: u64,
    gap: Gap,
}

/// The last time that the machine was suspended, as the cycle counter saw it.
#[derive(Debug, Clone, Copy, Default)]
struct Gap {
    /// What is below comes before it.
    at: u64,
    /// How far the counter ran on meanwhile; 0: no gap.
    cycles: u64,
}

impl Gap {
    /// Between two pairs around it. Where it began is not known better than to the time between them that was
    /// not in it; that is little, and taken as before it. A counter that was set back tells nothing.
    fn between(before: Pair, after: Pair, ns_per_cycle: f64) -> Self {
        let awake = (after.ns.saturating_sub(before.ns) as f64 / ns_per_cycle) as u64;
        let passed = after.cycles.saturating_sub(before.cycles);
        Self {
            at: before.cycles.saturating_add(awake),
            cycles: passed.saturating_sub(awake),
        }
    }

    fn is_within(self, begin: Cycles, cycles: u64) -> bool {
        begin.0 < self.at && begin.0.saturating_add(cycles) >= self.at.saturating_add(self.cycles)
    }
}

/// ns that the machine was suspended since its boot.
fn suspended_ns() -> u64 {
    nanos(ClockId::Boottime).saturating_sub(Monotonic::now().0)
}

/// More than two readings of clocks lie apart, less than any machine is suspended for.
const SUSPENDED_NS: u64 = 10_000_000;

impl Clock {
    /// Reads the clocks for 20 ms.
    #[must_use]
    pub fn calibrate() -> Self {
        let first = Pair::read();
        std::thread::sleep(Duration::from_millis(20));
        let mut clock = Self {
            first,
            latest: first,
            ns_per_cycle: 1.0,
            monotonic_to_unix: unix_ns() - Monotonic::now().0 as i64,
            suspended_ns: suspended_ns(),
            gap: Gap::default(),
        };
        clock.refine();
        clock
    }

    /// Takes another pair of readings.
    pub fn refine(&mut self) {
        self.take(Pair::read(), suspended_ns());
    }

    /// Before anything is converted that came after a machine was suspended.
    pub fn look_for_suspension(&mut self) {
        if suspended_ns().saturating_sub(self.suspended_ns) > SUSPENDED_NS {
            self.refine();
        }
    }

    fn take(&mut self, latest: Pair, suspended_ns: u64) {
        if suspended_ns.saturating_sub(self.suspended_ns) > SUSPENDED_NS {
            self.gap = Gap::between(self.latest, latest, self.ns_per_cycle);
            self.suspended_ns = suspended_ns;
            self.first = latest;
            self.latest = latest;
            return; // the rate stays until it is measured again
        }
        let cycles = latest.cycles.saturating_sub(self.first.cycles);
        // Two readings that lie close together say nothing of the rate.
        if latest.ns.saturating_sub(self.first.ns) >= 10_000_000 && cycles > 0 {
            self.ns_per_cycle = (latest.ns - self.first.ns) as f64 / cycles as f64;
            self.latest = latest;
        }
    }

    /// How far Unix time has moved since the start against the clock of the kernel's programs, in
    /// ns: by a step of the wall clock, or while the machine was suspended.
    #[must_use]
    pub fn step_ns(&self) -> i64 {
        (unix_ns() - Monotonic::now().0 as i64).saturating_sub(self.monotonic_to_unix)
    }

    /// Reads both distances anew, to Unix time and to the cycles, which a suspended machine may
    /// have set back. The rate stays until it is measured again.
    pub fn restart(&mut self) {
        self.first = Pair::read();
        self.latest = self.first;
        self.suspended_ns = suspended_ns();
        self.monotonic_to_unix = unix_ns() - Monotonic::now().0 as i64;
    }

    /// Cycles in a second.
    #[must_use]
    pub fn hz(&self) -> u64 {
        (1e9 / self.ns_per_cycle).round() as u64
    }

    /// A length in cycles, in ns.
    #[must_use]
    pub fn length_ns(&self, cycles: u64) -> i64 {
        (cycles as f64 * self.ns_per_cycle).round() as i64
    }

    /// The same from this moment on, without the time that the machine was suspended in it.
    #[must_use]
    pub fn length_from_ns(&self, begin: Cycles, cycles: u64) -> i64 {
        let awake = if self.gap.is_within(begin, cycles) {
            cycles.saturating_sub(self.gap.cycles)
        } else {
            cycles
        };
        self.length_ns(awake)
    }

    /// A moment in cycles, as Unix ns.
    #[must_use]
    pub fn cycles_to_unix(&self, at: Cycles) -> i64 {
        self.cycles_to_ns(at).saturating_add(self.monotonic_to_unix)
    }

    /// A moment in cycles, on the clock of the kernel's programs.
    #[must_use]
    pub fn cycles_to_monotonic(&self, at: Cycles) -> Monotonic {
        Monotonic(u64::try_from(self.cycles_to_ns(at)).unwrap_or_default())
    }

    fn cycles_to_ns(&self, at: Cycles) -> i64 {
        // The moment may be foreign: any number is some time, and none may panic.
        let mut distance = at.0.wrapping_sub(self.latest.cycles) as i64;
        if at.0 < self.gap.at {
            distance = distance.saturating_add_unsigned(self.gap.cycles);
        }
        let since = (distance as f64 * self.ns_per_cycle) as i64;
        (self.latest.ns as i64).saturating_add(since)
    }

    /// A moment of the kernel's clock, as Unix ns.
    #[must_use]
    pub fn monotonic_to_unix(&self, at: Monotonic) -> i64 {
        (at.0 as i64).saturating_add(self.monotonic_to_unix)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn cycles_and_monotonic_name_the_same_moment() {
        let clock = Clock::calibrate();
        let pair = Pair::read();
        let by_cycles = clock.cycles_to_unix(Cycles(pair.cycles));
        let by_monotonic = clock.monotonic_to_unix(Monotonic(pair.ns));
        let on_it = clock.cycles_to_monotonic(Cycles(pair.cycles));
        assert!(on_it.0.abs_diff(pair.ns) < 100_000, "{on_it:?} {pair:?}");
        assert!(
            (by_cycles - by_monotonic).abs() < 100_000,
            "{by_cycles} {by_monotonic}"
        );
    }

    proptest! {
        #[test]
        fn a_clock_that_goes_on_in_steps_is_known_by_them(
            step in 10.0f64..200.0, offset: u32, seed in 1u64..1 << 40,
        ) {
            // Readings of a fine clock at any time, each as the coarse one shows it.
            let shown = |time: f64| ((time / step).floor() * step + f64::from(offset)) as u64;
            let differences: Vec<u64> = (0..4_000u64)
                .map(|i| {
                    let begin = (i * 7_919 + seed) as f64 * 1.37;
                    let length = 30.0 + (i % 397) as f64 * 1.7;
                    let held_up = if i % 500 == 3 { 12_345.6 } else { 0.0 };
                    shown(begin + length + held_up) - shown(begin)
                })
                .collect();
            let told = step_of(differences) as f64;
            prop_assert!((told - step).abs() <= 1.0, "{told} rather than {step}");
        }

        #[test]
        fn a_fine_clock_has_no_steps(cost in 10u64..60, by in 1u64..3, seed in 1u64..1 << 40) {
            let differences: Vec<u64> = (0..4_000u64)
                .map(|i| (cost + (i * 7_919 + seed) % 397) / by * by)
                .collect();
            prop_assert_eq!(step_of(differences), 1);
        }
    }

    #[test]
    fn two_readings_of_this_clock_are_steps_apart() {
        let step = step();
        assert!((1..10_000).contains(&step), "{step}");
        assert_eq!(step_of(vec![]), 1);
        assert_eq!(step_of(vec![0, 0, 1]), 1);
    }

    /// One that ran for a second, of two cycles a ns, on a machine that was never suspended.
    fn at_two_cycles_a_ns() -> Clock {
        let mut clock = Clock {
            first: Pair { cycles: 0, ns: 0 },
            latest: Pair { cycles: 0, ns: 0 },
            ns_per_cycle: 1.0,
            monotonic_to_unix: 0,
            suspended_ns: 0,
            gap: Gap::default(),
        };
        clock.take(second(1, 0), 0);
        clock
    }

    /// Both clocks so many seconds after the begin, of which the machine was suspended for some.
    fn second(after: u64, suspended: u64) -> Pair {
        Pair {
            cycles: after * 2_000_000_000,
            ns: (after - suspended) * 1_000_000_000,
        }
    }

    #[test]
    fn time_suspended_bends_no_length_and_no_moment() {
        let mut clock = at_two_cycles_a_ns();
        clock.take(second(12, 10), 10_000_000_000);
        clock.take(second(14, 10), 10_000_000_000);
        assert_eq!(clock.hz(), 2_000_000_000);
        // The second between the two looks around it is taken as before it.
        let moment = |after| clock.cycles_to_monotonic(Cycles(second(after, 0).cycles)).0;
        assert_eq!(moment(1), 1_000_000_000);
        assert_eq!(moment(13), 3_000_000_000);
        let length = |begin, cycles| clock.length_from_ns(Cycles(begin), cycles);
        assert_eq!(length(1_000_000_000, 1000), 500);
        assert_eq!(length(24_000_000_000, 1000), 500);
        assert_eq!(length(1_000_000_000, 24_000_000_000), 2_000_000_000);
    }

    #[test]
    fn a_counter_that_a_suspended_machine_set_back_keeps_its_rate() {
        let mut clock = at_two_cycles_a_ns();
        let set_back = Pair {
            cycles: 7,
            ns: 1_000_000_100,
        };
        clock.take(set_back, 10_000_000_000);
        assert_eq!(clock.hz(), 2_000_000_000);
        assert_eq!(clock.cycles_to_monotonic(Cycles(207)).0, 1_000_000_200);
        assert_eq!(clock.length_from_ns(Cycles(100), 100), 50);
    }

    #[test]
    fn the_rate_is_that_of_a_real_counter() {
        let hz = Clock::calibrate().hz();
        assert!((1_000_000..20_000_000_000).contains(&hz), "{hz}");
    }
}
