//! What holds for every trace.

use proptest::prelude::*;

use super::*;

pub(super) fn any_event() -> impl Strategy<Value = Raw> {
    let small = prop_oneof![Just(0u32), Just(1), Just(3), Just(5)];
    (
        0u32..2,
        0u64..400,
        0u32..3,
        1..abi::TL_KINDS,
        0u8..2,
        small,
        0u32..4,
        0u32..60,
    )
        .prop_map(|(cpu, us, tid, kind, flags, small, x, y)| Raw {
            cpu,
            us,
            tid: [0, SERVER, 8][tid as usize],
            kind,
            flags,
            small,
            x: if kind == abi::TL_SWITCH || kind == abi::TL_WAKING {
                [0, SERVER, 8, HOG][x as usize]
            } else {
                x
            },
            y: if kind == abi::TL_SWITCH { SERVER } else { y },
            z: SERVER,
        })
}

proptest! {
    #[test]
    fn whatever_a_trace_holds_the_gaps_sum_to_the_latency(
        events in proptest::collection::vec(any_event(), 0..400)
    ) {
        let told = analyze(&trace(&events, |_| ()), Some(0), 1000);
        for story in &told.stories {
            check(story);
        }
    }
}
