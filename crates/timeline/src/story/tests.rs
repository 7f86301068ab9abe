use tailscope_signals::event::abi;

use super::*;
use events::{Raw, call, comes, raw, socket, switch, trace, waking};

mod answers;
mod any;
pub(crate) mod events;
mod jvm;
mod picture;
mod ticks;
mod windows;

const US: u64 = 1_000;
const SERVER: u32 = 7;
const HOG: u32 = 99;
const CLIENT: u32 = 50;
/// Sockets: the client's, the server's, another of the server's.
const THEIRS: u32 = 1;
const OURS: u32 = 2;
const OTHER: u32 = 3;

fn one(events: &[Raw]) -> Story {
    let told = analyze(&trace(events, |_| ()), None, 10);
    assert_eq!(told.stories.len(), 1, "{told:?}");
    check(&told.stories[0]);
    told.stories.into_iter().next().expect("one")
}

fn check(story: &Story) {
    let mut at = 0;
    for gap in &story.gaps {
        assert_eq!(gap.at_ns, at, "{story:?}");
        at += gap.ns;
    }
    assert_eq!(at, story.latency_ns, "{story:?}");
}

#[test]
fn a_wait_behind_a_neighbour_leads_and_its_name_can_do_no_harm() {
    let mut events = vec![switch(1, 10, SERVER, 1, HOG)];
    events.extend(comes(100, 10, true));
    events.extend([
        switch(1, 6100, HOG, 0, SERVER),
        socket(6110, SERVER, abi::TL_RECEIVE, OURS, 10, 0),
        socket(6150, SERVER, abi::TL_TRANSMIT, OURS, 500, 0),
        socket(6160, SERVER, abi::TL_SEND, OURS, 500, 0),
    ]);
    let story = one(&events);
    assert_eq!(
        story.sentence,
        "6.00 ms of 6.05 ms: waiting for CPU 1 behind hog?[2J"
    );
    let kinds: Vec<_> = story
        .gaps
        .iter()
        .map(|gap| (gap.kind, gap.ns / US))
        .collect();
    assert_eq!(
        kinds,
        [
            (Kind::Wire, 2),
            (Kind::ReceiveSoftirq, 2),
            (Kind::Blocked, 1),
            (Kind::WaitingForCpu, 5995),
            (Kind::Running, 10),
            (Kind::Running, 40),
        ]
    );
}

#[test]
fn a_thread_that_is_moved_waited_in_the_queue_where_it_was() {
    let fault = |us, kind| raw(1, us, 8, kind);
    let move_to = |cpu, us, by, to| Raw {
        x: SERVER,
        y: to,
        ..raw(cpu, us, by, abi::TL_MIGRATE)
    };
    let mut events = vec![switch(1, 10, SERVER, 1, 8), switch(0, 20, CLIENT, 1, 0)];
    events.extend(comes(100, 10, true));
    // Its waker puts it behind the helper, though it may have run elsewhere before.
    events.push(move_to(0, 106, CLIENT, 1));
    events.extend([
        fault(200, abi::TL_FAULT_IN),
        fault(5900, abi::TL_FAULT_OUT),
        // CPU 0 has been idle all the time, and takes it.
        move_to(0, 6000, 0, 0),
        switch(0, 6010, 0, 0, SERVER),
    ]);
    let done = [
        socket(6110, SERVER, abi::TL_RECEIVE, OURS, 10, 0),
        socket(6150, SERVER, abi::TL_TRANSMIT, OURS, 500, 0),
        socket(6160, SERVER, abi::TL_SEND, OURS, 500, 0),
    ];
    events.extend(done.map(|event| Raw { cpu: 0, ..event }));
    let story = one(&events);
    assert_eq!(
        story.sentence,
        "5.89 ms of 6.05 ms: waiting for CPU 1 behind server/helper (page faults)"
    );
    let idle: Vec<_> = story
        .gaps
        .iter()
        .filter(|gap| gap.kind == Kind::WakeUp)
        .collect();
    assert!(matches!(idle[..], [gap] if gap.ns == 10 * US), "{idle:?}");
}

#[test]
fn what_tcp_keeps_back_lasts_until_the_acknowledgement() {
    let mut events = vec![switch(1, 10, SERVER, 1, 0)];
    events.extend(comes(100, 10, true));
    events.extend([
        switch(1, 110, 0, 0, SERVER),
        socket(120, SERVER, abi::TL_RECEIVE, OURS, 10, 0),
        socket(150, SERVER, abi::TL_TRANSMIT, OURS, 500, 0),
        socket(160, SERVER, abi::TL_SEND, OURS, 500, 0),
        socket(170, SERVER, abi::TL_SEND, OURS, 505, abi::TL_HELD_NAGLE),
        socket(40_170, SERVER, abi::TL_TCP_IN, OURS, 10, 0),
        socket(40_180, SERVER, abi::TL_TRANSMIT, OURS, 505, 0),
    ]);
    let story = one(&events);
    assert_eq!(
        story.sentence,
        "40.0 ms of 40.1 ms: kept back by TCP (Nagle) until the client acknowledged"
    );
    assert_eq!(story.gaps.last().map(|gap| gap.kind), Some(Kind::Transmit));
}

#[test]
fn a_thread_that_serves_another_first_is_busy_and_then_runs() {
    let mut events = vec![switch(1, 10, 0, 0, SERVER)];
    events.extend(comes(100, 10, false));
    events.extend([
        socket(5000, SERVER, abi::TL_SEND, OTHER, 77, 0),
        socket(5100, SERVER, abi::TL_RECEIVE, OURS, 10, 0),
        socket(5150, SERVER, abi::TL_TRANSMIT, OURS, 500, 0),
        socket(5160, SERVER, abi::TL_SEND, OURS, 500, 0),
    ]);
    let story = one(&events);
    let causes: Vec<_> = story.causes.iter().map(|c| (c.kind, c.ns / US)).collect();
    assert_eq!(causes[..2], [(Kind::Busy, 4896), (Kind::Running, 150)]);
}

#[test]
fn faults_calls_and_interrupts_are_cut_out_of_the_running() {
    let mut events = vec![switch(1, 10, 0, 0, SERVER)];
    events.extend(comes(100, 10, false));
    events.extend([
        socket(110, SERVER, abi::TL_RECEIVE, OURS, 10, 0),
        raw(1, 200, SERVER, abi::TL_FAULT_IN),
        raw(1, 900, SERVER, abi::TL_FAULT_OUT),
        Raw {
            small: 0xec,
            ..raw(1, 950, SERVER, abi::TL_VECTOR_IN)
        },
        Raw {
            small: 0xec,
            ..raw(1, 970, SERVER, abi::TL_VECTOR_OUT)
        },
        call(1000, SERVER, abi::TL_SYSCALL_IN, libc::SYS_fsync),
        switch(1, 1100, SERVER, 2, 0),
        waking(0, 1600, CLIENT, SERVER),
        switch(1, 1650, 0, 0, SERVER),
        call(1700, SERVER, abi::TL_SYSCALL_OUT, libc::SYS_fsync),
        socket(1800, SERVER, abi::TL_TRANSMIT, OURS, 500, 0),
        socket(1810, SERVER, abi::TL_SEND, OURS, 500, 0),
    ]);
    let story = one(&events);
    let causes: Vec<_> = story
        .causes
        .iter()
        .map(|cause| (cause.name.as_str(), cause.ns / US))
        .collect();
    assert_eq!(
        causes[..5],
        [
            ("page faults", 700),
            ("blocked in fsync until thread 50 woke it", 500),
            ("running", 426),
            ("waking up an idle CPU", 50),
            ("interrupted by interrupt 'local timer'", 20),
        ]
    );
}

#[test]
fn classes_that_follow_each_other_are_loading_and_one_alone_is_not() {
    let mut events = vec![switch(1, 10, 0, 0, SERVER)];
    events.extend(comes(100, 10, false));
    events.push(socket(110, SERVER, abi::TL_RECEIVE, OURS, 10, 0));
    let class = |us| Raw {
        small: abi::TL_JVM_CLASS,
        ..raw(1, us, SERVER, abi::TL_JVM_OUT)
    };
    events.push(class(500));
    // An interrupt within the burst stays one.
    for us in [3000, 3200, 3480, 3700] {
        events.push(class(us));
    }
    events.extend([
        Raw {
            small: 0xec,
            ..raw(1, 3300, SERVER, abi::TL_VECTOR_IN)
        },
        Raw {
            small: 0xec,
            ..raw(1, 3320, SERVER, abi::TL_VECTOR_OUT)
        },
        socket(5000, SERVER, abi::TL_TRANSMIT, OURS, 500, 0),
        socket(5010, SERVER, abi::TL_SEND, OURS, 500, 0),
    ]);
    let story = one(&events);
    assert_eq!(story.jvms[0].classes_loaded, 5);
    let work: Vec<_> = story
        .gaps
        .iter()
        .filter(|gap| gap.stage == Stage::Work)
        .map(|gap| (gap.kind, gap.ns / US))
        .collect();
    assert_eq!(
        work,
        [
            (Kind::Running, 2890),
            (Kind::ClassLoading, 300),
            (Kind::Interrupt, 20),
            (Kind::ClassLoading, 380),
            (Kind::Running, 1300),
        ]
    );
}

#[test]
fn an_answer_of_another_thread_is_followed_back_to_the_one_that_received() {
    let mut events = vec![switch(1, 10, 8, 1, SERVER)];
    events.extend(comes(100, 10, false));
    events.extend([
        socket(110, SERVER, abi::TL_RECEIVE, OURS, 10, 0),
        waking(1, 400, SERVER, 8),
        switch(1, 500, SERVER, 1, HOG),
        switch(1, 3000, HOG, 0, 8),
        socket(3500, 8, abi::TL_TRANSMIT, OURS, 500, 0),
        socket(3510, 8, abi::TL_SEND, OURS, 500, 0),
    ]);
    let story = one(&events);
    let work: Vec<_> = story
        .gaps
        .iter()
        .filter(|gap| gap.stage == Stage::Work)
        .map(|gap| (gap.tid, gap.kind, gap.ns / US))
        .collect();
    assert_eq!(
        work,
        [
            (SERVER, Kind::Running, 290),
            (8, Kind::WaitingForCpu, 2600),
            (8, Kind::Running, 500),
        ]
    );
}

#[test]
fn the_way_back_ends_when_a_client_on_this_machine_received_the_answer() {
    let mut events = vec![switch(1, 10, 0, 0, SERVER)];
    events.extend(comes(100, 10, false));
    events.extend([
        switch(0, 110, CLIENT, 1, HOG),
        socket(110, SERVER, abi::TL_RECEIVE, OURS, 10, 0),
        socket(150, SERVER, abi::TL_TRANSMIT, OURS, 500, 0),
        raw(1, 151, SERVER, abi::TL_PACKET_IN),
        socket(152, SERVER, abi::TL_TCP_IN, THEIRS, 500, 10),
        socket(153, SERVER, abi::TL_READY, THEIRS, 0, 0),
        waking(1, 154, SERVER, CLIENT),
        socket(160, SERVER, abi::TL_SEND, OURS, 500, 0),
        switch(0, 5_154, HOG, 0, CLIENT),
        Raw {
            cpu: 0,
            ..socket(5_160, CLIENT, abi::TL_TAKEN, THEIRS, 500, 0)
        },
    ]);
    let story = one(&events);
    assert_eq!(
        story.sentence,
        "5.00 ms of 5.06 ms: the client: waiting for CPU 0 behind hog?[2J"
    );
    assert!(story.to_client);
    assert_eq!(story.left_ns, 50 * US);
    let back: Vec<_> = story
        .gaps
        .iter()
        .filter(|gap| gap.stage == Stage::Return)
        .map(|gap| (gap.tid, gap.kind, gap.ns / US))
        .collect();
    assert_eq!(
        back,
        [
            (0, Kind::Wire, 1),
            (0, Kind::ReceiveSoftirq, 2),
            (CLIENT, Kind::Blocked, 1),
            (CLIENT, Kind::WaitingForCpu, 5_000),
            (CLIENT, Kind::Running, 6),
        ]
    );
}

#[test]
fn a_wait_for_the_cpu_that_a_collection_has_is_told_with_it() {
    const COLLECTS: u32 = 8; // a thread of the server's process, as 7 is
    let jvm = |us, kind, small| Raw {
        small,
        ..raw(1, us, COLLECTS, kind)
    };
    // While it lasts nobody of its process can run; somebody of another one waits for the CPU alone.
    for (process, sentence) in [
        (SERVER, "5.70 ms of 6.15 ms: stop-the-world collection"),
        (
            60,
            "5.70 ms of 6.15 ms: waiting for CPU 1 behind server/helper (stop-the-world collection)",
        ),
    ] {
        let of = |thread| if thread == COLLECTS { SERVER } else { process };
        let switch = |us, from, to| Raw {
            y: of(to),
            z: of(from),
            ..switch(1, us, from, 0, to)
        };
        let mut events = vec![switch(10, 0, SERVER)];
        events.extend(comes(100, 10, false));
        events.extend([
            socket(110, SERVER, abi::TL_RECEIVE, OURS, 10, 0),
            switch(400, SERVER, COLLECTS),
            jvm(401, abi::TL_JVM_IN, abi::TL_JVM_COLLECTION),
            jvm(6_000, abi::TL_JVM_OUT, abi::TL_JVM_COLLECTION),
            switch(6_100, COLLECTS, SERVER),
            socket(6_250, SERVER, abi::TL_TRANSMIT, OURS, 500, 0),
            socket(6_260, SERVER, abi::TL_SEND, OURS, 500, 0),
        ]);
        let trace = trace(&events, |about| {
            about["watched"] = serde_json::json!([SERVER, 60]);
        });
        assert_eq!(analyze(&trace, None, 1).stories[0].sentence, sentence);
    }
}

#[test]
fn a_thread_that_nobody_wakes_and_that_then_runs_has_waited_since_the_trace_began() {
    let mut events = vec![switch(1, 10, 0, 0, HOG)];
    events.extend(comes(100, 10, false));
    events.extend([
        switch(1, 6100, HOG, 0, SERVER),
        socket(6110, SERVER, abi::TL_RECEIVE, OURS, 10, 0),
        socket(6150, SERVER, abi::TL_TRANSMIT, OURS, 500, 0),
        socket(6160, SERVER, abi::TL_SEND, OURS, 500, 0),
    ]);
    let sentence = one(&events).sentence;
    assert_eq!(
        sentence,
        "6.00 ms of 6.05 ms: waiting for CPU 1 behind hog?[2J"
    );
}
