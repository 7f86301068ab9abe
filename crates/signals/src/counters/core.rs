//! What the other hardware thread of a core executes, counted from this one: the count of the whole
//! core less this thread's own, as Shim (Yang, Blackburn, McKinley, ISCA 2015) observes a program
//! from beside it.
//!
//! It asks for processors whose counters can count for both hardware threads of their core: Intel's
//! up to Cascade Lake (AnyThread, bit 21 of IA32_PERFEVTSELx; the kernel lists it as `any` among the
//! formats of the unit where there is one). **Untried on such a processor**: held against made readings.

use super::open::{Counter, Refusal};
use super::page::Reading;
use super::{Event, EventError, Pmus};
use crate::abi;

/// An event of a core, and the same of this thread alone.
#[derive(Debug, Clone)]
pub struct CoreEvent {
    whole: abi::ts_event,
    own: abi::ts_event,
}

/// What was asked for can't be counted for a whole core.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CoreEventError {
    /// It is no event.
    #[error(transparent)]
    Event(#[from] EventError),
    /// It is one, but each hardware thread has its own.
    #[error(
        "this processor counts each hardware thread alone (PMU '{0}' has no term 'any', as Intel's \
         have up to Cascade Lake): counter:PID/TID:EVENT reads another thread's"
    )]
    Alone(String),
}

impl CoreEvent {
    /// Reads a name as [`Event::parse`] does.
    ///
    /// # Errors
    /// [`CoreEventError`]: no such event, or not for a whole core.
    pub fn parse(name: &str, pmus: &Pmus) -> Result<Self, CoreEventError> {
        let generic = Event::parse(name, pmus)?;
        // Terms can be added to an event of the unit only: to `cpu/instructions/`, not to the generic.
        let unit = pmus.0.iter().find(|pmu| pmu.can_count_cores());
        let unit = unit.ok_or_else(|| {
            CoreEventError::Alone(pmus.0.first().map_or("none", |pmu| &pmu.name).to_owned())
        })?;
        let terms = match name.strip_suffix('/').and_then(|all| all.split_once('/')) {
            Some((_, terms)) => terms.to_owned(),
            None if generic.kind == unit.kind => format!("config={:#x}", generic.config[0]),
            None => alias(&generic.name).to_owned(),
        };
        let own = Event::parse(&format!("{}/{terms}/", unit.name), pmus)?;
        let whole = Event::parse(&format!("{}/{terms},any=1/", unit.name), pmus)?;
        Ok(Self {
            whole: whole.for_threads(),
            own: own.for_threads(),
        })
    }
}

/// What sysfs calls a generic event.
fn alias(generic: &str) -> &str {
    match generic {
        "cycles" => "cpu-cycles",
        "branches" => "branch-instructions",
        name => name,
    }
}

/// What the other hardware thread executes in user space while the calling thread runs. For the
/// thread that opened it, which must stay on its CPU.
#[derive(Debug)]
pub struct CoreCounter {
    whole: Counter,
    own: Counter,
}

impl CoreCounter {
    /// Counts from now on, both in one group: they are on the CPU together or not at all.
    ///
    /// # Errors
    /// [`Refusal::Kernel`]: it is not allowed (for a whole core it takes CAP_PERFMON), or does not
    /// fit; [`Refusal::NotReadable`]: user space may not read counters here.
    pub fn open(event: &CoreEvent) -> Result<Self, Refusal> {
        let whole = Counter::open(&event.whole, None).map_err(Refusal::Kernel)?;
        let own = Counter::open(&event.own, Some(&whole)).map_err(Refusal::Kernel)?;
        whole.start().map_err(Refusal::Kernel)?;
        if !whole.is_readable() || !own.is_readable() {
            return Err(Refusal::NotReadable);
        }
        Ok(Self { whole, own })
    }

    /// The count now; `None`: others have the counters.
    #[must_use]
    pub fn read(&self) -> Option<u64> {
        others(&self.whole.read(), &self.own.read())
    }
}

/// What is the core's and not ours. What we execute between the two readings is missing from it, each
/// time as much: from one sample to the next it cancels out.
fn others(whole: &Reading, own: &Reading) -> Option<u64> {
    Some(whole.value?.wrapping_sub(own.value?))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;

    fn tree(name: &str) -> Pmus {
        Pmus::read(
            &Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("tests/sysfs")
                .join(name),
        )
    }

    fn configs(name: &str) -> (u64, u64) {
        let event = CoreEvent::parse(name, &tree("intel")).expect("it has `any`");
        assert_eq!((event.whole.type_, event.own.type_), (4, 4));
        (event.whole.config, event.own.config)
    }

    #[test]
    fn the_core_is_the_same_event_with_any() {
        assert_eq!(configs("instructions"), (0x20_00c0, 0xc0));
        assert_eq!(configs("cycles"), (0x20_003c, 0x3c));
        assert_eq!(configs("cpu-cycles"), (0x20_003c, 0x3c));
        assert_eq!(configs("r01c2"), (0x20_01c2, 0x1c2));
        assert_eq!(configs("cpu/event=0xc2,umask=0x1/"), (0x20_01c2, 0x1c2));
    }

    #[test]
    fn a_processor_that_can_not_is_named() {
        let error = CoreEvent::parse("instructions", &tree("arm64")).expect_err("no `any`");
        assert!(matches!(error, CoreEventError::Alone(_)), "{error}");
        assert!(error.to_string().contains("counter:PID/TID:EVENT"));
        let error = CoreEvent::parse("instructionz", &tree("intel")).expect_err("no event");
        assert!(matches!(error, CoreEventError::Event(_)), "{error}");
    }

    fn on_cpu(value: u64) -> Reading {
        Reading {
            value: Some(value),
            ..Reading::default()
        }
    }

    proptest! {
        /// Our own loop is in both counts, and the constant between the two readings as well.
        #[test]
        fn what_the_other_executes_is_left_over(
            begin in any::<(u64, u64)>(), ours in 0u64..1 << 40, theirs in 0u64..1 << 40,
            between in 0u64..1000,
        ) {
            let (whole, own) = begin;
            let first = others(&on_cpu(whole), &on_cpu(own.wrapping_add(between)));
            let whole = whole.wrapping_add(ours).wrapping_add(theirs);
            let own = own.wrapping_add(ours).wrapping_add(between);
            let second = others(&on_cpu(whole), &on_cpu(own));
            let (Some(first), Some(second)) = (first, second) else {
                return Err(TestCaseError::fail("both were on the CPU"));
            };
            prop_assert_eq!(second.wrapping_sub(first), theirs);
        }
    }

    #[test]
    fn without_a_counter_there_is_no_difference() {
        assert_eq!(others(&on_cpu(7), &Reading::default()), None);
        assert_eq!(others(&Reading::default(), &on_cpu(7)), None);
    }
}
