//! What perf's page of an event says, and what follows from two readings of it.
//!
//! Pure, so that it can be held against made pages. `sdk/c/tailscope_counters.h` has the same in C.

/// A counter at some moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reading {
    /// The count, modulo 2^64; `None` while the event is not on the CPU.
    pub value: Option<u64>,
    /// For how long it was wanted so far, in ns.
    pub enabled_ns: u64,
    /// For how long it was on the CPU so far, in ns.
    pub running_ns: u64,
}

/// What an event counted between two moments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Count {
    /// All of it.
    Exact(u64),
    /// It was on the CPU for at least half of the time: what it would have counted in all of it.
    Scaled(u64),
    /// It was not on the CPU at one end, or for less than half of the time.
    Unknown,
}

impl Count {
    /// The number, exact or scaled.
    #[must_use]
    pub fn number(self) -> Option<u64> {
        match self {
            Self::Exact(count) | Self::Scaled(count) => Some(count),
            Self::Unknown => None,
        }
    }
}

/// A register of `width` bits as what it adds to the page's offset: it is a signed number, so that
/// one that the kernel has set to count up to its overflow is below zero until then.
#[must_use]
pub fn extended(register: u64, width: u16) -> u64 {
    let unused = match width {
        1..64 => 64 - u32::from(width),
        _ => 0,
    };
    ((register << unused) as i64 >> unused) as u64
}

/// What was counted from one reading to a later one of the same event.
#[must_use]
pub fn between(begin: &Reading, end: &Reading) -> Count {
    let (Some(first), Some(last)) = (begin.value, end.value) else {
        return Count::Unknown;
    };
    let counted = last.wrapping_sub(first);
    let wanted = end.enabled_ns.wrapping_sub(begin.enabled_ns);
    let on = end.running_ns.wrapping_sub(begin.running_ns);
    if wanted == on {
        return Count::Exact(counted);
    }
    if on == 0 || on > wanted || on < wanted - on {
        return Count::Unknown;
    }
    let scaled = u128::from(counted) * u128::from(wanted) / u128::from(on);
    Count::Scaled(u64::try_from(scaled).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A register of `width` bits and the page's offset, as the kernel keeps them: it loads the
    /// register with something, and the offset with what was counted less that.
    struct Hardware {
        width: u16,
        register: u64,
        offset: u64,
    }

    impl Hardware {
        fn mask(width: u16) -> u64 {
            u64::MAX >> (64 - width)
        }

        fn loaded(width: u16, counted: u64, register: u64) -> Self {
            let register = register & Self::mask(width);
            Self {
                width,
                register,
                offset: counted.wrapping_sub(extended(register, width)),
            }
        }

        fn count(&mut self, events: u64) {
            self.register = self.register.wrapping_add(events) & Self::mask(self.width);
        }

        fn value(&self) -> u64 {
            self.offset
                .wrapping_add(extended(self.register, self.width))
        }
    }

    fn always(value: u64) -> Reading {
        Reading {
            value: Some(value),
            enabled_ns: 5,
            running_ns: 5,
        }
    }

    proptest! {
        #[test]
        fn a_register_that_wraps_loses_nothing(
            width in 1u16..=64, counted: u64, register: u64, events: u64,
        ) {
            let mut hardware = Hardware::loaded(width, counted, register);
            let begin = always(hardware.value());
            prop_assert_eq!(begin.value, Some(counted));
            // It may pass zero; half of its range further on it overflows, and the kernel loads it anew.
            let most = Hardware::mask(width) >> 1;
            let room = most.wrapping_sub(extended(hardware.register, width));
            let events = events % room.max(1);
            hardware.count(events);
            prop_assert_eq!(between(&begin, &always(hardware.value())), Count::Exact(events));
        }

        #[test]
        fn a_total_that_wraps_loses_nothing(first: u64, events: u64) {
            let end = always(first.wrapping_add(events));
            prop_assert_eq!(between(&always(first), &end), Count::Exact(events));
        }

        #[test]
        fn what_was_shared_is_scaled_by_its_share(
            first: u64, rate in 1u64..100, on in 1u64..1_000_000, off in 1u64..1_000_000,
        ) {
            let begin = Reading { value: Some(first), enabled_ns: 7, running_ns: 3 };
            let end = Reading {
                value: Some(first.wrapping_add(rate * on)),
                enabled_ns: 7 + on + off,
                running_ns: 3 + on,
            };
            let expected = if on >= off { Count::Scaled(rate * (on + off)) } else { Count::Unknown };
            prop_assert_eq!(between(&begin, &end), expected);
        }

        #[test]
        fn foreign_pages_never_panic(
            a: (Option<u64>, u64, u64), b: (Option<u64>, u64, u64), register: u64, width: u16,
        ) {
            let reading = |(value, enabled_ns, running_ns)| Reading { value, enabled_ns, running_ns };
            let _ = between(&reading(a), &reading(b)).number();
            let _ = extended(register, width);
        }
    }

    #[test]
    fn what_is_not_on_the_cpu_at_one_end_is_unknown() {
        let off = Reading::default();
        assert_eq!(between(&off, &always(7)), Count::Unknown);
        assert_eq!(between(&always(7), &off), Count::Unknown);
    }

    #[test]
    fn registers_are_signed() {
        assert_eq!(extended(0xffff_ffff_fff6, 48), (-10i64) as u64);
        assert_eq!(extended(0x7fff_ffff_ffff, 48), 0x7fff_ffff_ffff);
        assert_eq!(extended(0xffff_fff6, 32), (-10i64) as u64);
        assert_eq!(extended(u64::MAX, 64), u64::MAX);
    }
}
