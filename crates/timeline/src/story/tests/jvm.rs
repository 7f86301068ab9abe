//! What a JVM's probes make of a story.

use super::*;

/// A thread of the server's process, as 7 is.
const HELPER: u32 = 8;

fn jvm(us: u64, tid: u32, kind: u32, small: u32) -> Raw {
    Raw {
        small,
        ..raw(1, us, tid, kind)
    }
}

fn loaded(us: u64, tid: u32) -> Raw {
    jvm(us, tid, abi::TL_JVM_OUT, abi::TL_JVM_CLASS)
}

/// The begin of something, and its end.
fn both(from: u64, to: u64, tid: u32, what: u32) -> [Raw; 2] {
    [
        jvm(from, tid, abi::TL_JVM_IN, what),
        jvm(to, tid, abi::TL_JVM_OUT, what),
    ]
}

/// A request that comes at 100 us, is received at 110, and is answered at 9,000, with this meanwhile.
fn request(meanwhile: impl IntoIterator<Item = Raw>) -> Vec<Raw> {
    let mut events = vec![switch(1, 10, 0, 0, SERVER)];
    events.extend(comes(100, 10, false));
    events.push(socket(110, SERVER, abi::TL_RECEIVE, OURS, 10, 0));
    events.extend(meanwhile);
    events.extend([
        socket(9000, SERVER, abi::TL_TRANSMIT, OURS, 500, 0),
        socket(9010, SERVER, abi::TL_SEND, OURS, 500, 0),
    ]);
    events.sort_by_key(|event| event.us);
    events
}

fn work(story: &Story) -> Vec<(Kind, u64)> {
    let of = story.gaps.iter().filter(|gap| gap.stage == Stage::Work);
    of.map(|gap| (gap.kind, gap.ns / US)).collect()
}

#[test]
fn an_initialisation_counts_from_its_begin_to_its_end_and_the_main_class_s_does_not() {
    // The program runs in its main class's initialiser: what it does there is not initialising.
    let main = both(50, 9500, SERVER, abi::TL_JVM_INITIALIZATION);
    let own = both(1000, 6000, SERVER, abi::TL_JVM_INITIALIZATION);
    let inner = both(2000, 3000, SERVER, abi::TL_JVM_INITIALIZATION);
    let all = main.into_iter().chain(own).chain(inner);
    let story = one(&request(all.chain([loaded(2500, SERVER)])));
    assert_eq!(
        work(&story),
        [
            (Kind::Running, 890),
            (Kind::ClassLoading, 5000),
            (Kind::Running, 3000),
        ]
    );
    let jvm = &story.jvms[0];
    assert_eq!((jvm.classes_loaded, jvm.classes_initialized), (1, 2));
    assert_eq!(
        story.sentence,
        "5.00 ms of 8.90 ms: loading or initialising classes"
    );
}

#[test]
fn classes_follow_each_other_by_the_time_that_their_thread_itself_ran() {
    // 250 us of its own and 4 ms without the CPU between two of them; then 500 us of its own.
    let story = one(&request([
        loaded(1000, SERVER),
        switch(1, 1100, SERVER, 0, HOG),
        switch(1, 5100, HOG, 0, SERVER),
        loaded(5250, SERVER),
        loaded(5750, SERVER),
    ]));
    assert_eq!(
        work(&story),
        [
            (Kind::Running, 890),
            (Kind::ClassLoading, 100),
            (Kind::WaitingForCpu, 4000),
            (Kind::ClassLoading, 150),
            (Kind::Running, 3750),
        ]
    );
}

#[test]
fn a_wait_for_a_thread_that_is_at_classes_is_told_so_and_one_for_another_is_not() {
    let waits = |at_classes: bool| {
        let other = both(1500, 7900, HELPER, abi::TL_JVM_INITIALIZATION);
        one(&request(
            [
                call(1000, SERVER, abi::TL_SYSCALL_IN, libc::SYS_futex),
                switch(1, 1010, SERVER, 1, HELPER),
                waking(1, 7910, HELPER, SERVER),
                switch(1, 7920, HELPER, 1, SERVER),
                call(7930, SERVER, abi::TL_SYSCALL_OUT, libc::SYS_futex),
            ]
            .into_iter()
            .chain(other.into_iter().filter(|_| at_classes)),
        ))
    };
    let (at_classes, another) = (waits(true), waits(false));
    assert_eq!(
        at_classes.sentence,
        "6.90 ms of 8.90 ms: waiting for server/helper, which was loading or initialising classes"
    );
    assert_eq!(at_classes.causes[0].kind, Kind::ClassLoading);
    assert_eq!(
        another.sentence,
        "6.90 ms of 8.90 ms: blocked in futex until server/helper woke it"
    );
    assert_eq!(another.causes[0].kind, Kind::Blocked);
}

#[test]
fn a_wait_within_an_initialisation_belongs_to_it_if_it_is_for_a_thread_of_the_jvm() {
    for (by, kind) in [(HELPER, Kind::ClassLoading), (HOG, Kind::Blocked)] {
        let own = both(1000, 8000, SERVER, abi::TL_JVM_INITIALIZATION);
        let story = one(&request(own.into_iter().chain([
            call(1500, SERVER, abi::TL_SYSCALL_IN, libc::SYS_futex),
            switch(1, 1510, SERVER, 1, by),
            waking(1, 7500, by, SERVER),
            switch(1, 7500, by, 1, SERVER),
            call(7510, SERVER, abi::TL_SYSCALL_OUT, libc::SYS_futex),
        ])));
        assert_eq!(story.causes[0].kind, kind, "{story:?}");
    }
}

#[test]
fn a_cpu_that_a_compiler_or_a_loader_has_is_told_with_what_it_does() {
    for (what, word) in [
        (abi::TL_JVM_COMPILE, "compiling methods"),
        (
            abi::TL_JVM_INITIALIZATION,
            "loading or initialising classes",
        ),
    ] {
        let meanwhile = both(1100, 7900, HELPER, what);
        let story = one(&request(meanwhile.into_iter().chain([
            switch(1, 1000, SERVER, 0, HELPER),
            switch(1, 8000, HELPER, 0, SERVER),
        ])));
        let sentence =
            format!("7.00 ms of 8.90 ms: waiting for CPU 1 behind server/helper ({word})");
        assert_eq!(story.sentence, sentence);
        assert_eq!(story.causes[0].kind, Kind::WaitingForCpu);
    }
}

#[test]
fn what_runs_while_its_young_jvm_compiles_is_running_and_the_sentence_says_how_young_that_is() {
    // Two methods, of a thread that is on no CPU of the request's: and not one class.
    let compiled = both(1000, 2000, HELPER, abi::TL_JVM_COMPILE);
    let more = both(2000, 3000, HELPER, abi::TL_JVM_COMPILE);
    let elsewhere = compiled
        .into_iter()
        .chain(more)
        .map(|e| Raw { cpu: 0, ..e });
    let known = Raw {
        cpu: 0,
        ..switch(0, 900, 0, 0, HELPER)
    };
    let events = request(elsewhere.chain([known]));
    let told = |started: serde_json::Value| {
        let trace = trace(&events, |about| about["started"] = started);
        analyze(&trace, None, 10).stories.remove(0)
    };
    let story = told(serde_json::json!({"7": 0}));
    assert_eq!(
        story.sentence,
        "8.90 ms of 8.90 ms: running, in a JVM 0.0 s old that compiled 2 methods meanwhile"
    );
    assert_eq!(story.causes[0].kind, Kind::Running);
    assert_eq!(
        story.jvms[0].words(),
        "server (process 7), 0.0 s old: 2 methods compiled"
    );
    assert_eq!(
        told(serde_json::json!({})).sentence,
        "8.90 ms of 8.90 ms: running, in a JVM that compiled 2 methods meanwhile"
    );
}

#[test]
fn a_server_that_has_ended_when_the_window_is_written_is_told_of_as_any_other() {
    let own = both(1500, 7900, HELPER, abi::TL_JVM_INITIALIZATION);
    let events = request(own.into_iter().chain([
        call(1000, SERVER, abi::TL_SYSCALL_IN, libc::SYS_futex),
        switch(1, 1010, SERVER, 1, HELPER),
        waking(1, 7910, HELPER, SERVER),
        switch(1, 7920, HELPER, 1, SERVER),
        call(7930, SERVER, abi::TL_SYSCALL_OUT, libc::SYS_futex),
    ]));
    let trace = trace(&events, |about| about["watched"] = serde_json::json!([]));
    let story = analyze(&trace, None, 10).stories.remove(0);
    assert_eq!(story.causes[0].kind, Kind::ClassLoading, "{story:?}");
}
