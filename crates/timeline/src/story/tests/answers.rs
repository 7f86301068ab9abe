//! Requests that hang on the answers of other watched servers.

use super::*;

const HELPER: u32 = 8;

/// The server asks the helper, which is in page faults for 5 ms, and answers; what the server does until
/// it blocks is `meanwhile`.
fn asking(meanwhile: &[Raw]) -> Vec<Raw> {
    let (asks, asked) = (4, 5); // the two ends of a connection
    let on = |cpu, event: Raw| Raw { cpu, ..event };
    let mut events = vec![switch(1, 10, 0, 0, SERVER)];
    events.extend(comes(100, 10, false));
    events.extend([
        socket(110, SERVER, abi::TL_RECEIVE, OURS, 10, 0),
        socket(120, SERVER, abi::TL_TRANSMIT, asks, 30, 10),
        raw(1, 121, SERVER, abi::TL_PACKET_IN),
        socket(122, SERVER, abi::TL_TCP_IN, asked, 30, 10),
        socket(123, SERVER, abi::TL_READY, asked, 0, 0),
        waking(1, 124, SERVER, HELPER),
        socket(126, SERVER, abi::TL_SEND, asks, 30, 0),
        switch(0, 130, 0, 0, HELPER),
        on(0, socket(140, HELPER, abi::TL_RECEIVE, asked, 30, 0)),
        raw(0, 200, HELPER, abi::TL_FAULT_IN),
        raw(0, 5_200, HELPER, abi::TL_FAULT_OUT),
        on(0, socket(5_300, HELPER, abi::TL_TRANSMIT, asked, 77, 10)),
        raw(0, 5_301, HELPER, abi::TL_PACKET_IN),
        on(0, socket(5_302, HELPER, abi::TL_TCP_IN, asks, 77, 10)),
        on(0, socket(5_303, HELPER, abi::TL_READY, asks, 0, 0)),
        waking(0, 5_304, HELPER, SERVER),
        on(0, socket(5_310, HELPER, abi::TL_SEND, asked, 77, 0)),
        switch(1, 5_320, 0, 0, SERVER),
        // To a client: this is an answer, and no request.
        Raw {
            flags: 3,
            ..socket(5_330, SERVER, abi::TL_RECEIVE, asks, 77, 0)
        },
        socket(5_350, SERVER, abi::TL_TRANSMIT, OURS, 500, 10),
        socket(5_360, SERVER, abi::TL_SEND, OURS, 500, 0),
    ]);
    events.extend(meanwhile);
    events
}

#[test]
fn what_another_watched_server_was_asked_for_is_told_where_it_happened() {
    let events = asking(&[switch(1, 150, SERVER, 1, 0)]);
    let told = analyze(&trace(&events, |_| ()), None, 10);
    told.stories.iter().for_each(check);
    let sentences: Vec<_> = told.stories.iter().map(|s| s.sentence.as_str()).collect();
    assert_eq!(
        sentences,
        [
            "5.00 ms of 5.25 ms: server/helper: page faults",
            "5.00 ms of 5.21 ms: page faults",
        ]
    );
    let work: Vec<_> = told.stories[0]
        .gaps
        .iter()
        .filter(|gap| gap.stage == Stage::Work && gap.ns >= 10 * US)
        .map(|gap| (gap.tid, gap.kind, gap.ns / US))
        .collect();
    assert_eq!(
        work,
        [
            // From the moment when it was asked, whatever the server does until it blocks.
            (HELPER, Kind::Running, 70),
            (HELPER, Kind::PageFault, 5_000),
            (HELPER, Kind::Running, 100),
            (SERVER, Kind::WakeUp, 16),
            (SERVER, Kind::Running, 30),
        ]
    );
}

#[test]
fn what_a_thread_did_while_an_answer_was_to_come_held_up_nothing() {
    // It waits behind a hog before it waits for the answer, which is not there any sooner.
    let events = asking(&[
        switch(1, 128, SERVER, 0, HOG),
        switch(1, 4_000, HOG, 0, SERVER),
        switch(1, 4_050, SERVER, 1, 0),
    ]);
    let told = analyze(&trace(&events, |_| ()), None, 10);
    told.stories.iter().for_each(check);
    let sentence = told.stories.first().map(|story| story.sentence.as_str());
    let leads = Some("5.00 ms of 5.25 ms: server/helper: page faults");
    assert_eq!(sentence, leads);
}
