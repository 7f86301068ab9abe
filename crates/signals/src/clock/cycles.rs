//! The cycle counter, read beside loads as they need it, and how finely it goes on.

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

    /// The counter, and what loads that are to come after the reading need.
    #[inline(always)]
    #[must_use]
    pub fn before_loads() -> (Self, After) {
        #[cfg(target_arch = "x86_64")]
        {
            let cycles = Self::now();
            let mut zero = cycles.0;
            // SAFETY: arithmetic in a register. Two shifts, by 64 together, for one by 64 does nothing; and
            // no processor takes their result for zero before it knows the number, as it does of `xor`.
            unsafe {
                core::arch::asm!(
                    "shr {0}, 32",
                    "shr {0}, 32",
                    inout(reg) zero,
                    options(pure, nomem, nostack),
                );
            }
            (cycles, After(zero as usize))
        }
        #[cfg(target_arch = "aarch64")]
        {
            let v: u64;
            // SAFETY: Linux lets user space read the virtual counter; barriers are free to use. This one
            // has the loads wait for the reading.
            unsafe { core::arch::asm!("mrs {}, cntvct_el0", "isb", out(reg) v) };
            (Self(v), After(0))
        }
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

/// Zero, but not before the clock was read: a load from an address that it is added to comes after the
/// reading, without a fence between both. Where a barrier holds back the loads already, it is just zero.
#[derive(Debug, Clone, Copy)]
pub struct After(usize);

impl After {
    #[inline(always)]
    pub(crate) fn zero(self) -> usize {
        self.0
    }
}

/// Waits until all that came before is done, loads and readings of the clock, and begins nothing that
/// follows before that. Lines that were only asked for are not waited for, nor are stores.
#[inline(always)]
pub fn settle() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the fence has no precondition.
    unsafe {
        core::arch::x86_64::_mm_lfence();
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: barriers are free to use.
    unsafe {
        core::arch::asm!("dsb ld", "isb");
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
    let about = apart[apart.len() / 2];
    // Each of these is off by a cycle at most, and so is their sum, however many there are.
    let steps: u64 = apart.iter().map(|apart| (apart + about / 2) / about).sum();
    let all: u64 = apart.iter().sum();
    (all + steps / 2) / steps.max(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
}
