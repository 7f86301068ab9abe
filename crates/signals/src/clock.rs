//! The clock of spans is the invariant cycle counter; it becomes nanoseconds only here.

mod cycles;
mod gap;
mod pair;
mod pairs;

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

pub use cycles::{After, Cycles, settle, step};
use pair::Pair;
use pairs::Pairs;

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

/// CPU time of a process, in ns: of all its threads, those that have ended included. `None`: it is gone.
#[must_use]
pub fn cpu_ns_of(pid: u32) -> Option<u64> {
    /// The process's clock of the time that it ran (include/linux/posix-timers_types.h).
    const CPUCLOCK_SCHED: i32 = 2;
    if pid == 0 {
        return None; // that would be our own
    }
    let clock = (!pid.cast_signed() << 3) | CPUCLOCK_SCHED;
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call writes to `time` alone, and refuses a clock of a process that is not there.
    let done = unsafe { libc::clock_gettime(clock, &raw mut time) };
    (done == 0).then(|| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Unix time now, in ns.
#[must_use]
pub fn unix_ns() -> i64 {
    nanos(ClockId::Realtime) as i64
}

/// Unix time when `CLOCK_MONOTONIC` was 0, in ns: by the closest of some readings of both, as this
/// thread may be put off between two of them.
#[must_use]
pub fn unix_at_0() -> i64 {
    const READINGS: usize = 4;
    let read = |_| {
        let (before, unix, after) = (Monotonic::now().0, unix_ns(), Monotonic::now().0);
        let apart = after.saturating_sub(before);
        (apart, unix - (before + apart / 2) as i64)
    };
    (0..READINGS)
        .map(read)
        .min()
        .map_or(0, |(_, unix_at_0)| unix_at_0)
}

/// Converts cycles and the monotonic clock to Unix nanoseconds.
///
/// The kernel's clock is no even one: NTP slews it, by up to 500 millionths, so that a rate of hours, or
/// of a second ago, names other moments than the kernel does. So both clocks are read together again and
/// again ([`refine`](Clock::refine)), the readings of the last minute are kept, and a moment lies between
/// the two around it. Whoever refines right before converting never looks beyond the latest.
///
/// The distance to Unix time is read once: a clock that is stepped in mid-recording bends nothing. Who
/// records for weeks looks at [`step_ns`](Clock::step_ns) and [`restart`](Clock::restart)s it between two
/// ledgers.
///
/// While the machine is suspended the monotonic clock stands still, and most cycle counters don't. So that
/// time is no part of the rate, nor of a length that it lies in: spans lose it, whichever clock they are of.
#[derive(Debug)]
pub struct Clock {
    pairs: Pairs,
    monotonic_to_unix: i64,
    /// ns that the machine was suspended since its boot, when it was last looked.
    suspended_ns: u64,
}

/// ns that the machine was suspended since its boot: never more, and less by what lies between the two
/// readings, where this thread may have been put off.
fn suspended_ns() -> u64 {
    let told = || nanos(ClockId::Boottime).saturating_sub(Monotonic::now().0);
    told().max(told()).max(told())
}

/// More than two readings of clocks lie apart, less than any machine is suspended for.
const SUSPENDED_NS: u64 = 10_000_000;

impl Clock {
    /// Reads the clocks for 20 ms, which gives their rate to a few millionths.
    #[must_use]
    pub fn calibrate() -> Self {
        let first = Pair::read();
        std::thread::sleep(Duration::from_millis(20));
        Self {
            pairs: Pairs::begin(first, Pair::read()),
            monotonic_to_unix: unix_at_0(),
            suspended_ns: suspended_ns(),
        }
    }

    /// Takes another pair of readings, unless the latest has just been taken. To be called before what
    /// came since is converted.
    pub fn refine(&mut self) {
        let suspended_ns = suspended_ns();
        if suspended_ns.saturating_sub(self.suspended_ns) > SUSPENDED_NS {
            self.suspended_ns = suspended_ns;
            self.pairs.resume(Pair::read());
        } else if Monotonic::now().0.saturating_sub(self.pairs.latest().ns) >= pairs::APART_NS {
            self.pairs.take(Pair::read());
        }
    }

    /// Takes another pair where this moment, which has passed, may lie behind a suspension that is not known
    /// of yet. To be called before what ended since the last [`refine`](Clock::refine) is converted: a machine
    /// can be suspended in the middle of a look.
    pub fn reach(&mut self, at: Cycles) {
        if self.pairs.is_beyond(at.0) {
            self.refine();
        }
    }

    /// How wrong, in ns, the latest conversions since this moment were at most: how far the readings of
    /// both clocks lay from where the ones before them had led to expect them. What was converted between
    /// two readings is right to a quarter of that.
    #[must_use]
    pub fn off_ns(&self, since: Monotonic) -> u64 {
        self.pairs.off_ns(since.0)
    }

    /// How far Unix time has moved since the start against the clock of the kernel's programs, in
    /// ns: by a step of the wall clock, or while the machine was suspended.
    #[must_use]
    pub fn step_ns(&self) -> i64 {
        unix_at_0().saturating_sub(self.monotonic_to_unix)
    }

    /// Reads both distances anew, to Unix time and to the cycles, which a suspended machine may
    /// have set back. The rate stays until it is measured again.
    pub fn restart(&mut self) {
        // Of a suspension since the last look the spans that are open still have to know.
        self.refine();
        self.pairs.restart(Pair::read());
        self.monotonic_to_unix = unix_at_0();
    }

    /// Cycles in a second, in the mean since the start.
    #[must_use]
    pub fn hz(&self) -> u64 {
        (1e9 / self.pairs.ns_per_cycle()).round() as u64
    }

    /// A length in cycles from a moment on, in ns, without the time that the machine was suspended in it.
    #[must_use]
    pub fn length_ns(&self, begin: Cycles, cycles: u64) -> i64 {
        self.pairs.length_ns(begin.0, cycles).round() as i64
    }

    /// A moment in cycles, as Unix ns.
    #[must_use]
    pub fn cycles_to_unix(&self, at: Cycles) -> i64 {
        let ns = self.pairs.cycles_to_ns(at.0);
        ns.saturating_add(self.monotonic_to_unix)
    }

    /// A moment in cycles, on the clock of the kernel's programs.
    #[must_use]
    pub fn cycles_to_monotonic(&self, at: Cycles) -> Monotonic {
        Monotonic(u64::try_from(self.pairs.cycles_to_ns(at.0)).unwrap_or_default())
    }

    /// A moment of the kernel's clock, as Unix ns.
    #[must_use]
    pub fn monotonic_to_unix(&self, at: Monotonic) -> i64 {
        (at.0 as i64).saturating_add(self.monotonic_to_unix)
    }
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn the_rate_is_that_of_a_real_counter() {
        let hz = Clock::calibrate().hz();
        assert!((1_000_000..20_000_000_000).contains(&hz), "{hz}");
    }
}
