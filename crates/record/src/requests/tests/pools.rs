//! Pools of threads that take work from a queue, where a wake-up does not say for which request it is.

use tailscope_signals::slice::{Act, Role};

use super::{LOCK, NETWORK, Script, parts};

const FROM_CLIENT: Act = Act::Receive(Role::Server);
const TO_CLIENT: Act = Act::Send(Role::Server);
const TO_SERVER: Act = Act::Send(Role::Client);
const FROM_SERVER: Act = Act::Receive(Role::Client);

/// Threads as in Mono: the fourth waits for data and wakes some thread of the pool, which receives it.
impl Script {
    /// The pool waits for something to do.
    fn pool() -> Self {
        let mut script = Self::default();
        script.block(1, 1, LOCK).block(1, 2, LOCK).block(1, 3, LOCK);
        script.block(1, 4, NETWORK);
        script
    }

    /// Data is there, and a thread of the pool runs 20 later.
    fn data(&mut self, at: u64, tid: u32) -> &mut Self {
        self.run(at, 4, NETWORK, at)
            .wake(at + 10, 4, tid)
            .block(at + 15, 4, NETWORK)
            .run(at + 20, tid, LOCK, at + 10)
    }

    /// The same, and it receives that right after it has woken another thread.
    fn received(&mut self, at: u64, act: Act, socket: u64, tid: u32, woken: u32) -> &mut Self {
        self.data(at, tid)
            .wake(at + 30, tid, woken)
            .on(at + 40, tid, act, socket, at)
            .block(at + 50, tid, LOCK)
    }

    /// The first thread receives a request and hands it to the main thread, which waits at a new futex each
    /// time. That hands it to the second, which asks another server, and is handed the answer.
    fn by_the_main_thread(&mut self, at: u64, futex: u64) -> &mut Self {
        self.data(at, 1)
            .on(at + 30, 1, FROM_CLIENT, 5, at)
            .wake(at + 40, 1, 5)
            .block(at + 50, 1, LOCK)
            .run(at + 60, 5, LOCK, at + 40)
            .wake(at + 70, 5, 2)
            .entry(at + 80, 5, Act::Block(LOCK), |slice| slice.since = futex)
            .run(at + 90, 2, LOCK, at + 70)
            .on(at + 100, 2, TO_SERVER, 9, 0)
            .block(at + 110, 2, LOCK)
    }

    /// The third receives the answer of that server, and the second answers.
    fn answered(&mut self, at: u64) -> &mut Self {
        self.received(at + 2100, FROM_SERVER, 9, 3, 2)
            .run(at + 2160, 2, LOCK, at + 2130)
            .on(at + 2200, 2, TO_CLIENT, 5, 0)
            .block(at + 2210, 2, LOCK)
    }
}

/// Six requests whose main thread waits at a new futex each time, before the time 70000.
fn with_a_main_thread() -> Script {
    let mut script = Script::pool();
    script.block(1, 5, LOCK);
    for n in 1..=6 {
        let at = n * 10_000;
        script
            .by_the_main_thread(at, 0x2000 + n * 0x70)
            .answered(at);
    }
    script
}

#[test]
fn a_thread_that_waits_at_a_new_event_for_each_request_hands_them_on() {
    // The first few show what it does.
    let last: Vec<_> = with_a_main_thread()
        .finish()
        .iter()
        .skip(4)
        .map(parts)
        .collect();
    assert_eq!(last, [[2200, 0, 1990, 0]; 2]);
}

#[test]
fn a_thread_that_has_asked_and_waits_for_a_lock_is_handed_nothing() {
    let mut script = with_a_main_thread();
    script
        .data(70_000, 1)
        .on(70_030, 1, FROM_CLIENT, 5, 70_000)
        .wake(70_040, 1, 5)
        .block(70_050, 1, LOCK)
        .run(70_060, 5, LOCK, 70_040)
        .on(70_070, 5, TO_SERVER, 9, 0)
        .entry(70_080, 5, Act::Block(LOCK), |slice| slice.since = 0x9000)
        // Another request's thread lets the lock go.
        .data(70_100, 3)
        .on(70_130, 3, FROM_CLIENT, 6, 70_100)
        .wake(70_140, 3, 5)
        .run(70_150, 5, LOCK, 70_140)
        .on(70_160, 5, TO_SERVER, 10, 0)
        .entry(70_170, 5, Act::Block(LOCK), |slice| slice.since = 0x9070)
        .on(70_200, 3, TO_CLIENT, 6, 0)
        .block(70_210, 3, LOCK)
        .data(72_000, 1)
        .on(72_030, 1, FROM_SERVER, 9, 72_000)
        .on(72_040, 1, FROM_SERVER, 10, 72_000)
        .on(72_050, 1, TO_CLIENT, 5, 0);
    let finished = script.finish();
    let asked = finished.iter().skip(6).map(|of| of.row.request.downstreams);
    assert_eq!(asked.collect::<Vec<_>>(), [2, 0]);
}

/// A thread with this request in hand waits for a lock, which the third lets go with a request of its own
/// in hand. Then the first asks another server. How many calls has each of both requests, and is that sure?
fn asks_after_a_lock(script: &mut Script, at: u64, tid: u32) -> Vec<(u32, bool)> {
    script
        .entry(at, tid, Act::Block(LOCK), |slice| slice.since = 0x9000)
        .data(at + 100, 3)
        .on(at + 130, 3, FROM_CLIENT, 6, at + 100)
        .wake(at + 140, 3, tid)
        .run(at + 150, tid, LOCK, at + 140)
        .on(at + 160, tid, TO_SERVER, 10, 0)
        .block(at + 170, tid, NETWORK)
        .on(at + 200, 3, TO_CLIENT, 6, 0)
        .block(at + 210, 3, LOCK)
        .data(at + 2000, 1)
        .on(at + 2030, 1, FROM_SERVER, 10, at + 2000)
        .on(at + 2050, 1, TO_CLIENT, 5, 0);
    let finished = script.finish();
    let last = finished.iter().rev().take(2).rev();
    last.map(|of| (of.row.request.downstreams, !of.ambiguous))
        .collect()
}

#[test]
fn a_thread_of_which_little_is_known_is_handed_nothing_with_a_lock() {
    let mut script = Script::pool();
    script
        .data(1000, 1)
        .on(1030, 1, FROM_CLIENT, 5, 1000)
        .wake(1040, 1, 2)
        .block(1050, 1, LOCK)
        .run(1060, 2, LOCK, 1040);
    assert_eq!(
        asks_after_a_lock(&mut script, 1070, 2),
        [(1, true), (0, true)]
    );
}

#[test]
fn a_thread_that_keeps_its_place_now_is_handed_nothing_with_a_lock() {
    let mut script = with_a_main_thread();
    for n in 7..=9 {
        let at = n * 10_000;
        script.by_the_main_thread(at, 0x5000).answered(at);
    }
    script
        .data(100_000, 1)
        .on(100_030, 1, FROM_CLIENT, 5, 100_000)
        .wake(100_040, 1, 5)
        .block(100_050, 1, LOCK)
        .run(100_060, 5, LOCK, 100_040);
    let asked = asks_after_a_lock(&mut script, 100_070, 5);
    assert_eq!(asked, [(1, true), (0, true)]);
}

#[test]
fn a_thread_that_serves_is_handed_nothing_with_a_lock() {
    let mut script = Script::pool();
    script.block(1, 5, NETWORK);
    for n in 1..=6 {
        // After its answer it waits long for some lock.
        let at = n * 10_000;
        script
            .run(at, 5, NETWORK, at)
            .on(at + 10, 5, FROM_CLIENT, 5, at)
            .on(at + 100, 5, TO_CLIENT, 5, 0)
            .entry(at + 110, 5, Act::Block(LOCK), |slice| {
                slice.since = 0x2000 + n * 0x70;
            })
            .run(at + 2000, 5, LOCK, at + 2000)
            .block(at + 2010, 5, NETWORK);
    }
    script
        .run(70_000, 5, NETWORK, 70_000)
        .on(70_010, 5, FROM_CLIENT, 5, 70_000);
    assert_eq!(
        asks_after_a_lock(&mut script, 70_020, 5),
        [(1, true), (0, true)]
    );
}

#[test]
fn a_thread_that_took_a_request_for_which_it_was_not_woken_has_asked_for_it() {
    let mut script = Script::pool();
    script
        .received(1000, FROM_CLIENT, 5, 1, 2)
        .run(1060, 2, LOCK, 1030)
        .on(1100, 2, TO_SERVER, 9, 0)
        .block(1110, 2, LOCK)
        .received(3100, FROM_SERVER, 9, 3, 1)
        .run(3160, 1, LOCK, 3130)
        .on(3200, 1, TO_CLIENT, 5, 0);
    let finished = script.finish();
    assert_eq!(parts(&finished[0])[..3], [2200, 0, 1990]);
    assert!(finished[0].ambiguous);
}

#[test]
fn who_is_woken_before_an_answer_is_received_does_not_take_that_from_whom_it_is_for() {
    let mut script = Script::pool();
    script
        // The second is handed this one.
        .data(1000, 1)
        .on(1030, 1, FROM_CLIENT, 6, 1000)
        .wake(1040, 1, 2)
        .block(1050, 1, LOCK)
        .run(1060, 2, LOCK, 1040)
        .on(1100, 2, TO_SERVER, 9, 0)
        .block(1110, 2, LOCK)
        .received(2000, FROM_CLIENT, 5, 1, 3)
        .run(2060, 3, LOCK, 2030)
        .block(2070, 3, LOCK)
        .data(3100, 3)
        .wake(3130, 3, 1)
        .on(3140, 3, FROM_SERVER, 9, 3100)
        .wake(3145, 3, 2)
        .block(3150, 3, LOCK)
        .run(3160, 1, LOCK, 3130)
        .on(3200, 1, TO_CLIENT, 5, 0)
        .run(3300, 2, LOCK, 3145)
        .on(3340, 2, TO_CLIENT, 6, 0);
    let downstream: Vec<_> = script.finish().iter().map(|of| parts(of)[2]).collect();
    assert_eq!(downstream, [1990, 0]);
}
