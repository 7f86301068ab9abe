//! A loop of a known number of instructions, counted by the thread that executes it, in user space.

use std::time::Duration;

use crate::page::{Count, between};
use crate::{Counter, Event, Pmus, Refusal, can_count};

/// What the loop executes; the readings around it add less than a hundred.
pub const INSTRUCTIONS: u64 = 1_000_000;

/// So often it is tried: others may have the counters for a moment, or the thread may be moved.
const TRIES: u32 = 20;

/// What the hardware counted of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    /// Instructions in user space.
    pub instructions: u64,
    /// Cycles of the core meanwhile.
    pub cycles: u64,
}

/// Counts it on the calling thread.
///
/// # Errors
/// Why this machine can't.
pub fn count() -> Result<Counted, Refusal> {
    // perf's own names are known whatever units a machine has.
    let events = ["instructions", "cycles"].map(|name| {
        Event::parse(name, &Pmus::default())
            .expect("a name of perf's")
            .for_threads()
    });
    can_count(&events)?;
    let leader = Counter::open(&events[0], None).map_err(Refusal::Kernel)?;
    let second = Counter::open(&events[1], Some(&leader)).map_err(Refusal::Kernel)?;
    leader.start().map_err(Refusal::Kernel)?;
    for _ in 0..TRIES {
        let begin = [second.read(), leader.read()];
        execute();
        let end = [leader.read(), second.read()];
        let counted = [between(&begin[1], &end[0]), between(&begin[0], &end[1])];
        if let [Count::Exact(instructions), Count::Exact(cycles)] = counted {
            return Ok(Counted {
                instructions,
                cycles,
            });
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Err(Refusal::Crowded)
}

/// Two instructions a round.
#[inline(never)]
fn execute() {
    let mut left = INSTRUCTIONS / 2;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: it changes nothing but its operand and the flags.
    unsafe {
        core::arch::asm!("2: dec {0}", "jnz 2b", inout(reg) left, options(nomem, nostack));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        core::arch::asm!("2: subs {0}, {0}, #1", "b.ne 2b", inout(reg) left, options(nomem, nostack));
    }
    debug_assert_eq!(left, 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_what_was_executed() {
        match count() {
            Ok(counted) => {
                let more = counted.instructions.checked_sub(INSTRUCTIONS);
                assert!(more.is_some_and(|more| more < 1_000), "{counted:?}");
                assert!(counted.cycles > 0);
            }
            Err(why) => println!("skipped: {why}"),
        }
    }
}
