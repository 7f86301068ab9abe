//! What a window tells of requests that it holds in part, or that were told of before.

use super::*;

#[test]
fn a_story_says_what_the_trace_lost_in_it_and_where() {
    let mut events = comes(100_000, 10, false);
    events.extend([
        socket(100_110, SERVER, abi::TL_RECEIVE, OURS, 10, 0),
        socket(100_150, SERVER, abi::TL_TRANSMIT, OURS, 500, 0),
        socket(100_160, SERVER, abi::TL_SEND, OURS, 500, 0),
    ]);
    let gap = |from: u64, to: u64| serde_json::json!([{"from_ns": from * US, "to_ns": to * US, "events": 3}]);
    let losses = |change: &dyn Fn(&mut serde_json::Value)| {
        let trace = trace(&events, change);
        analyze(&trace, None, 10).stories.remove(0).losses
    };
    assert!(losses(&|about| about["gaps"] = gap(200_000, 300_000)).is_empty());
    assert_eq!(
        losses(&|about| about["gaps"] = gap(100_100, 300_000)),
        ["the kernel skipped 3 events between 0.100 s and 0.300 s of the window"]
    );
    let short = losses(&|about| about["parts"][1]["from_ns"] = (150_000 * US).into());
    assert!(short[0].contains("complete only from 0.150 s"), "{short:?}");
    let spans = losses(&|about| about["sdk_gaps"] = gap(100_100, 300_000));
    assert!(spans[0].starts_with("3 SDK spans that ended"), "{spans:?}");
    let part = |from: u64| serde_json::json!({"cpu": 0, "offset": 8, "events": 0, "from_ns": from, "overwritten": 0, "unwritten": 0});
    assert!(losses(&|about| about["sdk"] = part(0)).is_empty());
    let short = losses(&|about| about["sdk"] = part(150_000 * US));
    assert!(short[0].contains("complete only from 0.150 s"), "{short:?}");
}

/// Two requests: of 6 ms from 100 µs on, and of 0.1 ms from 20 ms on.
fn two() -> Vec<Raw> {
    let mut events = vec![switch(1, 10, 0, 0, HOG)];
    for (at, took, end) in [(100, 6_000, 10), (20_000, 100, 20)] {
        events.extend(comes(at, end, false));
        events.extend([
            switch(1, at + took, HOG, 0, SERVER),
            socket(at + took + 1, SERVER, abi::TL_RECEIVE, OURS, end, 0),
            socket(at + took + 2, SERVER, abi::TL_TRANSMIT, OURS, 500 + end, 0),
            socket(at + took + 3, SERVER, abi::TL_SEND, OURS, 500 + end, 0),
            switch(1, at + took + 10, SERVER, 1, HOG),
        ]);
    }
    events
}

#[test]
fn a_window_tells_of_the_request_that_it_was_written_for_wherever_that_began() {
    let whole = trace(&two(), |_| ());
    let slow = requests(&whole).0.into_iter().max_by_key(Request::latency);
    let slow = slow.expect("found");
    // The memory held less: what the first one began with was written over.
    let late: Vec<Raw> = two().split_off(8);
    let told = |named: bool| {
        let trace = trace(&late, |about| {
            about["slow_ns"] = (3_000 * US).into();
            about["parts"][1]["from_ns"] = (6_050 * US).into();
            if named {
                about["slow_request"] = serde_json::to_value(&slow).expect("written");
            }
        });
        analyze(&trace, None, 10)
    };
    assert_eq!(told(false).slow, 0);
    let told = told(true);
    assert_eq!((told.slow, told.stories.len()), (1, 1), "{told:?}");
    check(&told.stories[0]);
    assert_eq!(told.stories[0].latency_ns, slow.latency());
    assert!(
        told.stories[0].losses[0].contains("complete only from"),
        "{told:?}"
    );
    // Or the window goes back less far than the request.
    let later = trace(&late, |about| {
        about["from_ns"] = (3_100 * US).into();
        about["slow_request"] = serde_json::to_value(&slow).expect("written");
    });
    let told = analyze(&later, Some(3_000 * US), 10);
    assert_eq!(
        told.stories[0].losses,
        ["it started 0.003 s before the window; earlier events are missing"]
    );
    assert!(told.losses.is_empty(), "{told:?}");
    // Where it is there as a whole it is there once.
    let both = trace(&two(), |about| {
        about["slow_request"] = serde_json::to_value(&slow).expect("written");
    });
    assert_eq!(analyze(&both, None, 10).requests, 2);
}

#[test]
fn a_request_of_an_earlier_window_is_not_told_of_again() {
    let told = |until: u64| {
        let trace = trace(&two(), |about| {
            about["told_until_ns"] = (until * US).into();
            about["slow_ns"] = (50 * US).into();
        });
        let told = analyze(&trace, None, 10);
        (told.requests, told.slow, told.in_earlier_windows)
    };
    assert_eq!(told(0), (2, 2, 0));
    assert_eq!(told(10_000), (1, 1, 1));
}
