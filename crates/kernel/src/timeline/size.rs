//! How large the rings are: as large as the memory allows, in a shape that the kernel's programs can
//! find a place in without a division.

use tailscope_signals::event::abi;

use crate::shared;

/// The fewest events of a CPU's ring, and the most: verifiers follow an offset up to 512 MiB.
const EVENTS: std::ops::RangeInclusive<u64> = 1 << 12..=(1 << 24) - 1;

/// A CPU's ring: `chunks` chunks of `1 << shift` events each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RingSize {
    chunks: u32,
    shift: u32,
}

impl RingSize {
    /// The largest of which each of so many CPUs can have one in so many bytes. With at least 64 chunks
    /// it leaves less than one part in 64 of them.
    pub(super) fn within(memory: u64, cpus: usize) -> Self {
        let each = (memory / cpus.max(1) as u64).saturating_sub(abi::TL_RING_HEAD.into());
        let events = each / u64::from(abi::TL_EVENT_BYTES);
        let events = events.clamp(*EVENTS.start(), *EVENTS.end());
        let shift = (events.ilog2() + 1) - shared::TL_CHUNKS_BITS;
        Self {
            chunks: (events >> shift) as u32,
            shift,
        }
    }

    /// How many events it holds.
    pub(super) fn events(self) -> u32 {
        self.chunks << self.shift
    }

    /// What the programs have to know of it.
    pub(super) fn configure(self, config: &mut shared::tl_config) {
        config.chunks = self.chunks.into();
        config.chunk_mask = (1 << self.shift) - 1;
        config.chunk_shift = self.shift;
        config.reciprocal = (1u64 << shared::TL_FRACTION_BITS).div_ceil(self.chunks.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the programs do (timeline_rings.h), in Rust.
    fn slot_of(config: &shared::tl_config, number: u64) -> u64 {
        let fraction = (number >> config.chunk_shift).wrapping_mul(config.reciprocal);
        let fraction = fraction & ((1 << shared::TL_FRACTION_BITS) - 1);
        let chunk = (fraction * config.chunks) >> shared::TL_FRACTION_BITS;
        assert!(chunk < config.chunks);
        (chunk << config.chunk_shift) + (number & config.chunk_mask)
    }

    #[test]
    fn rings_take_what_was_granted_and_no_more() {
        for (memory, cpus) in [
            (256_000_000, 2),
            (64 << 20, 2),
            (4_000_000, 3),
            (1 << 30, 3),
        ] {
            let size = RingSize::within(memory, cpus);
            let all = (u64::from(size.events()) * 32 + 4096) * cpus as u64;
            assert!(all <= memory, "{all} of {memory}");
            assert!(all * 64 >= memory * 63, "{all} of {memory}");
        }
    }

    #[test]
    fn no_ring_is_too_small_to_be_of_use_or_too_large_for_a_verifier() {
        assert_eq!(RingSize::within(0, 2).events(), 4096);
        let largest = u64::from(RingSize::within(1 << 40, 4).events()) * 32;
        assert!((500 << 20..512 << 20).contains(&largest), "{largest}");
    }

    #[test]
    fn the_place_without_a_division_is_the_remainder() {
        // Numbers from everywhere, up to some centuries of events; and around each lap's end, where a
        // fraction that is rounded wrongly would show.
        let mut random = 88_172_645_463_325_252u64;
        for memory in (0..1 << 31).step_by(7_919_993) {
            let size = RingSize::within(memory, 2);
            let mut config = shared::tl_config::default();
            size.configure(&mut config);
            let events = u64::from(size.events());
            for _ in 0..1000 {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let number = random >> (8 + random % 40);
                let lap = number / events * events;
                for number in [number, lap.saturating_sub(1), lap, lap + 1] {
                    assert_eq!(slot_of(&config, number), number % events);
                }
            }
        }
    }
}
