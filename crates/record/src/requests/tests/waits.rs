//! Waits of a thread with a request in hand.

use tailscope_signals::abi;
use tailscope_signals::slice::{Act, Role};

use super::{LOCK, NETWORK, PREEMPTED, Script, parts};
use crate::requests::Finished;

const SLEEP: u8 = abi::TS_SLEEP as u8;

/// One that came at 100 and was received at 110.
fn begun() -> Script {
    let mut script = Script::default();
    script.block(1, 1, NETWORK).run(100, 1, NETWORK, 100).on(
        110,
        1,
        Act::Receive(Role::Server),
        5,
        100,
    );
    script
}

/// One that has heard the first part of another server's answer, at 510.
fn answered_in_part() -> Script {
    let mut script = begun();
    script
        .on(150, 1, Act::Send(Role::Client), 9, 0)
        .block(160, 1, NETWORK)
        .run_with(500, 1, NETWORK, 340)
        .on(510, 1, Act::Receive(Role::Client), 9, 500);
    script
}

fn ns_of(script: &mut Script, cause: u32) -> ([u64; 4], u64) {
    let finished = script.finish();
    assert_eq!(finished.len(), 1, "{finished:?}");
    (
        parts(&finished[0]),
        finished[0].row.ns[cause as usize] / 1000,
    )
}

#[test]
fn a_timeout_is_a_wait_of_the_request_that_goes_on_after_it() {
    let mut script = begun();
    script
        .block(120, 1, NETWORK)
        .run_with(1000, 1, NETWORK, 880)
        .on(1050, 1, Act::Send(Role::Server), 5, 0);
    assert_eq!(ns_of(&mut script, abi::TS_NETWORK), ([950, 0, 0, 0], 880));
}

#[test]
fn a_wait_in_which_another_request_came_is_nobodys() {
    let mut script = begun();
    script
        .block(120, 1, NETWORK)
        .run_with(500, 1, NETWORK, 380)
        .on(510, 1, Act::Receive(Role::Server), 6, 500)
        .on(550, 1, Act::Send(Role::Server), 6, 0)
        .block(560, 1, NETWORK)
        .run_with(1000, 1, NETWORK, 440)
        .on(1050, 1, Act::Send(Role::Server), 5, 0);
    let first = &script.finish()[0];
    assert_eq!(first.row.wall / 1000, 950);
    assert_eq!(first.row.ns[abi::TS_NETWORK as usize], 0);
    assert!(parts(first)[3] >= 800, "{first:?}");
}

#[test]
fn the_rest_of_a_request_is_waited_for() {
    let mut script = begun();
    script
        .block(120, 1, NETWORK)
        .run_with(1000, 1, NETWORK, 880)
        .on(1010, 1, Act::Receive(Role::Server), 5, 1000)
        .on(1050, 1, Act::Send(Role::Server), 5, 0);
    assert_eq!(ns_of(&mut script, abi::TS_NETWORK), ([950, 0, 0, 0], 880));
}

#[test]
fn waits_between_the_parts_of_an_answer_are_the_requests() {
    for cause in [SLEEP, LOCK, NETWORK] {
        let mut script = begun();
        script
            .on(150, 1, Act::Send(Role::Server), 5, 0)
            .block(160, 1, cause)
            .run_with(560, 1, cause, 400)
            .on(600, 1, Act::Send(Role::Server), 5, 0)
            .block(610, 1, cause)
            .run_with(910, 1, cause, 300)
            .on(950, 1, Act::Send(Role::Server), 5, 0);
        let found = ns_of(&mut script, cause.into());
        assert_eq!(found, ([850, 0, 0, 0], 700), "cause {cause}");
    }
}

#[test]
fn the_next_request_is_not_the_last_ones_wait() {
    let mut script = begun();
    script
        .on(150, 1, Act::Send(Role::Server), 5, 0)
        .block(160, 1, NETWORK)
        .run_with(560, 1, NETWORK, 400)
        .on(570, 1, Act::Receive(Role::Server), 5, 560)
        .on(600, 1, Act::Send(Role::Server), 5, 0);
    let walls = script
        .finish()
        .iter()
        .map(|f| f.row.wall / 1000)
        .collect::<Vec<_>>();
    assert_eq!(walls, [50, 40]);
}

#[test]
fn more_of_an_answer_is_waited_for_at_the_other_server() {
    let mut script = answered_in_part();
    script
        .block(520, 1, NETWORK)
        .run_with(900, 1, NETWORK, 380)
        .on(910, 1, Act::Receive(Role::Client), 9, 900)
        .on(950, 1, Act::Send(Role::Server), 5, 0);
    let finished = script.finish();
    let row = &finished[0].row;
    assert_eq!(parts(&finished[0]), [850, 0, 340 + 380, 0]);
    assert_eq!(
        (row.request.downstreams, row.ns[abi::TS_NETWORK as usize]),
        (1, 0)
    );
}

#[test]
fn what_had_come_before_is_not_waited_for() {
    let mut script = answered_in_part();
    script
        .on(520, 1, Act::Send(Role::Server), 5, 0)
        .block(530, 1, NETWORK) // for the client, which reads slowly
        .run_with(900, 1, NETWORK, 370)
        .on(910, 1, Act::Receive(Role::Client), 9, 0) // what was left
        .entry(915, 1, Act::Receive(Role::Client), |slice| {
            (slice.socket, slice.since) = (9, 912_000); // the end of that connection
        })
        .on(950, 1, Act::Send(Role::Server), 5, 0);
    let finished = script.finish();
    assert_eq!(parts(&finished[0])[..3], [850, 0, 340]);
}

#[test]
fn a_wait_of_a_request_that_asked_comes_after_the_other_server() {
    let mut script = begun();
    script
        .block(1, 2, NETWORK)
        .on(150, 1, Act::Send(Role::Client), 9, 0)
        .block(160, 1, NETWORK) // a poll with a timeout
        .run(490, 2, NETWORK, 490)
        .on(500, 2, Act::Receive(Role::Client), 9, 490) // another thread hears the answer
        .block(510, 2, NETWORK)
        .run_with(900, 1, NETWORK, 740)
        .on(950, 1, Act::Send(Role::Server), 5, 0);
    let finished = script.finish();
    assert_eq!(parts(&finished[0])[2], 490 - 160, "{finished:?}");
}

#[test]
fn a_thread_that_waits_for_a_lock_before_it_receives_what_woke_it_was_handed_nothing() {
    let mut script = begun(); // thread 1 has a request, and the lock
    script
        .block(1, 2, NETWORK)
        .run(120, 2, NETWORK, 120)
        .block(130, 2, LOCK)
        .wake(5130, 1, 2)
        .run_with(5140, 2, LOCK, 5000)
        .on(5150, 2, Act::Receive(Role::Server), 6, 115)
        .on(5200, 2, Act::Send(Role::Server), 6, 0)
        .on(5300, 1, Act::Send(Role::Server), 5, 0);
    let finished = script.finish();
    assert_eq!(finished.len(), 2);
    let other = finished.iter().find(|of| of.row.begin == 115_000);
    let other = other.expect("the second request");
    assert_eq!(other.row.ns[abi::TS_LOCK as usize], 5_000_000, "{other:?}");
    assert_eq!(parts(other)[3], 0);
    assert!(parts(other)[1] < 20, "{other:?}");
}

/// A thread asks at 200, and is preempted until then. The answer comes at 1000.
fn preempted_after_it_asked(until: u64) -> Finished {
    let mut script = begun();
    script
        .on(200, 1, Act::Send(Role::Client), 9, 0)
        .block(210, 1, PREEMPTED)
        .run_with(until, 1, PREEMPTED, until - 210);
    if until < 1000 {
        script
            .block(until + 10, 1, NETWORK)
            .run(1000, 1, NETWORK, 1000);
    }
    script.on(1250, 1, Act::Receive(Role::Client), 9, 1000).on(
        1300,
        1,
        Act::Send(Role::Server),
        5,
        0,
    );
    script.finish().remove(0)
}

#[test]
fn a_wait_for_a_cpu_delays_nothing_if_it_ends_before_the_answer_comes() {
    let finished = preempted_after_it_asked(710);
    assert_eq!(finished.row.ns[abi::TS_PREEMPTED as usize], 0);
    assert_eq!(parts(&finished)[2], 800 - 20);
}

#[test]
fn a_wait_for_a_cpu_in_which_the_answer_comes_is_one() {
    let finished = preempted_after_it_asked(1200);
    assert_eq!(finished.row.ns[abi::TS_PREEMPTED as usize], 990_000);
    assert_eq!(parts(&finished)[2], 0);
}

#[test]
fn a_wait_before_another_call_has_delayed_that_one() {
    let mut script = begun();
    script
        .on(200, 1, Act::Send(Role::Client), 8, 0)
        .block(210, 1, PREEMPTED)
        .run_with(900, 1, PREEMPTED, 690)
        .on(950, 1, Act::Send(Role::Client), 9, 0)
        .block(960, 1, NETWORK)
        .run(1000, 1, NETWORK, 1000)
        .on(1010, 1, Act::Receive(Role::Client), 8, 1000)
        .block(1020, 1, NETWORK)
        .run(1800, 1, NETWORK, 1800)
        .on(1810, 1, Act::Receive(Role::Client), 9, 1800)
        .on(1850, 1, Act::Send(Role::Server), 5, 0);
    let finished = script.finish();
    assert_eq!(finished[0].row.ns[abi::TS_PREEMPTED as usize], 690_000);
    assert_eq!(parts(&finished[0])[2], 40 + 780);
}

#[test]
fn an_answer_that_the_request_did_not_wait_for_hides_no_wait() {
    let mut script = begun();
    script
        .on(200, 1, Act::Send(Role::Client), 9, 0) // to a log
        .block(210, 1, PREEMPTED)
        .run_with(5210, 1, PREEMPTED, 5000)
        .on(5300, 1, Act::Send(Role::Server), 5, 0)
        .block(5310, 1, NETWORK)
        .run(6000, 1, NETWORK, 6000)
        .on(6010, 1, Act::Receive(Role::Client), 9, 6000);
    let finished = script.finish();
    assert_eq!(finished[0].row.ns[abi::TS_PREEMPTED as usize], 5_000_000);
}
