//! What a picture shows of the CPUs.

use proptest::prelude::*;

use super::*;
use crate::picture::picture;

/// A request that waits for CPU 1 behind a hog, from 100 to 6150 µs.
fn behind_a_hog() -> Vec<Raw> {
    let mut events = vec![switch(1, 10, SERVER, 1, HOG), switch(0, 20, 0, 0, CLIENT)];
    events.extend(comes(100, 10, true));
    events.extend([
        switch(1, 6100, HOG, 0, SERVER),
        socket(6110, SERVER, abi::TL_RECEIVE, OURS, 10, 0),
        socket(6150, SERVER, abi::TL_TRANSMIT, OURS, 500, 0),
        socket(6160, SERVER, abi::TL_SEND, OURS, 500, 0),
    ]);
    events
}

#[test]
fn lanes_show_who_had_each_cpu_and_an_arrow_shows_the_wake_up() {
    let trace = trace(&behind_a_hog(), |_| ());
    let told = analyze(&trace, None, 1);
    let seen = picture(&trace, &told.stories[0]);
    // A twenty-fifth of 6.05 ms on both sides, as far as the trace's clock goes back.
    assert_eq!(
        (seen.from_ns, seen.to_ns),
        (-100 * US as i64, 6292 * US as i64)
    );
    assert!(seen.threads.contains(&SERVER), "{seen:?}");
    let [first, second] = seen.cpus.as_slice() else {
        panic!("{seen:?}");
    };
    // The client since a switch before the picture's start, to its end; the softirq on top of it.
    assert_eq!(
        first.threads,
        [(-80 * US as i64, 6372 * US, CLIENT)],
        "{seen:?}"
    );
    assert_eq!(
        first.on_top,
        [(US as i64, 5 * US, "softirq NET_RX".to_owned())]
    );
    assert_eq!(
        second.threads,
        [
            (-100 * US as i64, 10 * US, SERVER),
            (-90 * US as i64, 6090 * US, HOG),
            (6000 * US as i64, 292 * US, SERVER)
        ]
    );
    assert_eq!(seen.wake_ups, [(5 * US as i64, 0, 6000 * US as i64, 1)]);
    assert_eq!(seen.names[&SERVER], "server/worker");
    assert_eq!(seen.names[&HOG], "hog?[2J");
    assert_eq!(seen.left_out, 0);
}

#[test]
fn intervals_too_short_to_be_seen_are_left_out_and_counted() {
    let mut events = behind_a_hog();
    // While the server waits, the hog and a helper take turns, a µs each.
    for us in 0..3000 {
        let (from, to) = if us % 2 == 0 { (HOG, 8) } else { (8, HOG) };
        events.push(switch(1, 200 + us, from, 0, to));
    }
    events.sort_by_key(|event| event.us);
    let trace = trace(&events, |_| ());
    let told = analyze(&trace, None, 1);
    let seen = picture(&trace, &told.stories[0]);
    let bars = seen.cpus[1].threads.len();
    assert!(bars < 1100, "{bars}");
    // 3,000 switches and the two at the ends of the wait cut the time since the start into these.
    assert_eq!(bars as u64 + seen.left_out, 3003);
    let longest = seen.cpus[1].threads.iter().map(|bar| bar.1).max();
    assert!(longest >= Some(2890 * US), "{longest:?}");
}

proptest! {
    #[test]
    fn whatever_a_trace_holds_intervals_lie_inside_the_picture(
        events in proptest::collection::vec(super::any::any_event(), 0..300)
    ) {
        let trace = trace(&events, |_| ());
        for story in &analyze(&trace, Some(0), 100).stories {
            let seen = picture(&trace, story);
            for lane in &seen.cpus {
                let bars = lane.threads.iter().map(|bar| (bar.0, bar.1));
                for (at, ns) in bars.chain(lane.on_top.iter().map(|bar| (bar.0, bar.1))) {
                    prop_assert!(at >= seen.from_ns && at + ns as i64 <= seen.to_ns);
                }
            }
            for woken in &seen.wake_ups {
                prop_assert!(seen.from_ns <= woken.0 && woken.0 <= woken.2 && woken.2 <= seen.to_ns);
            }
        }
    }
}
