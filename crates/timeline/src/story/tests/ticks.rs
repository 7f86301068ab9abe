//! Where ticks met the thread that had the CPU.

use super::*;

/// A thread that is met at this address of its program.
fn tick(us: u64, tid: u32, address: u32, in_kernel: bool) -> Raw {
    Raw {
        flags: u8::from(in_kernel),
        x: address,
        z: if tid == 8 { SERVER } else { tid },
        ..raw(1, us, tid, abi::TL_TICK)
    }
}

fn story(events: &[Raw]) -> Story {
    let functions = serde_json::json!({
        "7": {"16": "parse"}, "99": {"32": "burn\u{1b}[2J", "48": "write"}
    });
    let told = analyze(
        &trace(events, |about| about["functions"] = functions),
        None,
        10,
    );
    check(&told.stories[0]);
    told.stories.into_iter().next().expect("one")
}

/// The server waits behind the hog from 105 to 6,100, and answers at 6,160.
fn behind_the_hog(met: &[Raw]) -> Vec<Raw> {
    let mut events = vec![switch(1, 10, SERVER, 1, HOG)];
    events.extend(comes(100, 10, true));
    events.extend(met);
    events.extend([
        switch(1, 6100, HOG, 0, SERVER),
        socket(6110, SERVER, abi::TL_RECEIVE, OURS, 10, 0),
        socket(6150, SERVER, abi::TL_TRANSMIT, OURS, 500, 0),
        socket(6160, SERVER, abi::TL_SEND, OURS, 500, 0),
    ]);
    events
}

#[test]
fn a_neighbour_is_named_with_its_function() {
    let met = [(50, 48), (1000, 32), (2000, 32), (3000, 16), (6105, 32)];
    let met = met.map(|(us, address)| tick(us, HOG, address, false));
    let story = story(&behind_the_hog(&met));
    // One tick came before the wait and one after it; of one address the name is not known.
    assert_eq!(
        story.sentence,
        "6.00 ms of 6.05 ms: waiting for CPU 1 behind hog?[2J, in burn?[2J (2 of 3 ticks)"
    );
    let waited = story
        .gaps
        .iter()
        .find(|gap| gap.kind == Kind::WaitingForCpu);
    assert_eq!(
        waited.expect("it waited").functions,
        story.causes[0].functions
    );
    let others = story
        .gaps
        .iter()
        .filter(|gap| gap.kind != Kind::WaitingForCpu);
    assert!(others.clone().all(|gap| gap.functions.is_empty()));
}

#[test]
fn what_the_kernel_did_for_a_neighbour_is_said() {
    let story = story(&behind_the_hog(&[tick(1000, HOG, 48, true)]));
    assert!(
        story
            .sentence
            .ends_with("hog?[2J, in write, in the kernel (1 of 1 tick)"),
        "{}",
        story.sentence
    );
}

#[test]
fn a_thread_that_runs_for_its_request_is_named_with_its_function() {
    let mut events = vec![switch(1, 10, 0, 0, SERVER)];
    events.extend(comes(100, 10, false));
    events.push(socket(110, SERVER, abi::TL_RECEIVE, OURS, 10, 0));
    events.extend([1000, 2000, 3000].map(|us| tick(us, SERVER, 16, false)));
    events.extend([
        socket(4000, SERVER, abi::TL_TRANSMIT, OURS, 500, 0),
        socket(4010, SERVER, abi::TL_SEND, OURS, 500, 0),
    ]);
    let story = story(&events);
    assert!(
        story
            .sentence
            .ends_with(": running, in parse (3 of 3 ticks)"),
        "{}",
        story.sentence
    );
}

#[test]
fn a_real_time_neighbour_and_a_yield_are_said() {
    let mut events = behind_the_hog(&[]);
    // It was made to go on by a yield.
    events.insert(
        0,
        call(5, SERVER, abi::TL_SYSCALL_IN, libc::SYS_sched_yield),
    );
    for event in &mut events {
        match (event.kind, event.tid) {
            (abi::TL_SWITCH, SERVER) => event.small = 0,
            (abi::TL_SWITCH, HOG) => event.flags = 2,
            _ => {}
        }
    }
    assert_eq!(
        story(&events).causes[0].name,
        "waiting for CPU 1 behind hog?[2J (real-time), to which it yielded"
    );
}

#[test]
fn a_thread_that_is_woken_on_its_way_off_the_cpu_waits_for_it() {
    let mut events = vec![switch(1, 10, 0, 0, SERVER)];
    events.extend(comes(100, 10, true));
    // The wake-up at 105 came before the switch that says that it blocks.
    events.extend([
        switch(1, 107, SERVER, 1, HOG),
        switch(1, 6100, HOG, 0, SERVER),
        socket(6110, SERVER, abi::TL_RECEIVE, OURS, 10, 0),
        socket(6150, SERVER, abi::TL_TRANSMIT, OURS, 500, 0),
        socket(6160, SERVER, abi::TL_SEND, OURS, 500, 0),
    ]);
    assert_eq!(
        story(&events).causes[0].name,
        "waiting for CPU 1 behind hog?[2J"
    );
    // One that is woken again after it left did wait.
    events.push(waking(0, 5000, CLIENT, SERVER));
    events.sort_by_key(|event| event.us);
    let causes = story(&events).causes;
    assert_eq!((causes[0].kind, causes[0].ns), (Kind::Blocked, 4893 * US));
}
