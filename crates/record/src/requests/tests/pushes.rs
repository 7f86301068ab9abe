//! Messages that a server pushes to clients, and answers that go on, which look the same.

use tailscope_signals::abi;
use tailscope_signals::slice::{Act, Role};

use super::{LOCK, NETWORK, Script, parts};

pub(super) const ASKED: Act = Act::Receive(Role::Server);
pub(super) const SENDS: Act = Act::Send(Role::Server);

/// A loop is woken for a request on this socket, and receives it.
pub(super) fn receives(script: &mut Script, at: u64, socket: u64) -> &mut Script {
    script
        .run(at, 1, NETWORK, at)
        .on(at + 10, 1, ASKED, socket, at)
}

/// A client on this socket asks, and has its answer after 40.
pub(super) fn asks(script: &mut Script, at: u64, socket: u64) -> &mut Script {
    script.block(at - 10, 1, NETWORK);
    receives(script, at, socket)
        .on(at + 40, 1, SENDS, socket, 0)
        .block(at + 50, 1, NETWORK)
}

/// Four rounds, 1000 apart: a client on socket 5 publishes, and all of `sends` follow, 10 apart.
fn publishes<'s>(script: &'s mut Script, from: u64, sends: &[u64]) -> &'s mut Script {
    for at in (0..4).map(|round| from + round * 1000) {
        receives(script, at, 5).on(at + 12, 1, ASKED, 5, at); // in two parts
        for (at, socket) in (at + 20..).step_by(10).zip(sends) {
            script.on(at, 1, SENDS, *socket, 0);
        }
        script.block(at + 100, 1, NETWORK);
    }
    script
}

/// The walls of all requests that began with these two, on sockets 6 and 8: 40 each, and then four rounds.
fn listeners(sends: &[u64]) -> ([u64; 2], Vec<[u64; 4]>) {
    let mut script = Script::default();
    asks(&mut script, 100, 6);
    asks(&mut script, 300, 8);
    publishes(&mut script, 1000, sends);
    let finished = script.finish();
    let walls = [0, 1].map(|of| finished[of].row.wall / 1000);
    (walls, finished[2..].iter().map(parts).collect())
}

#[test]
fn what_is_pushed_to_other_clients_is_no_part_of_their_answers() {
    let (walls, published) = listeners(&[6, 8, 5]);
    assert_eq!(walls, [40, 40]);
    // What the loop does for them is the publisher's, from when that is known on.
    assert_eq!(published[3], [40, 0, 0, 0]);
    assert!(published.iter().all(|parts| parts[0] == 40));
}

#[test]
fn a_client_may_have_its_own_message_back_before_the_others() {
    let (walls, published) = listeners(&[6, 5, 8]);
    assert_eq!(walls, [40, 40]);
    assert!(published.iter().all(|parts| parts[0] == 30));
}

/// The wall of an answer on socket 6 while a client on socket 5 is answered 40 times and something is sent on
/// socket 6 right after that. `between`: what happens between two of these rounds.
fn sent_after_answers(between: impl Fn(&mut Script, u64)) -> u64 {
    let mut script = Script::default();
    asks(&mut script, 100, 6);
    for round in 1..=40 {
        receives(&mut script, round * 1000, 5)
            .on(round * 1000 + 20, 1, SENDS, 5, 0)
            .on(round * 1000 + 30, 1, SENDS, 6, 0)
            .block(round * 1000 + 40, 1, NETWORK);
        between(&mut script, round * 1000 + 500);
    }
    script.finish()[0].row.wall / 1000
}

#[test]
fn what_is_always_sent_right_after_another_answer_is_pushed() {
    assert_eq!(sent_after_answers(|_, _| {}), 40);
}

#[test]
fn what_is_sometimes_sent_for_no_other_request_is_an_answer() {
    let wall = sent_after_answers(|script, at| {
        if at % 10_000 == 500 {
            script
                .run(at, 1, NETWORK, at)
                .on(at + 10, 1, SENDS, 6, 0)
                .block(at + 20, 1, NETWORK);
        }
    });
    assert_eq!(wall, 40_410);
}

#[test]
fn what_is_sent_when_a_timer_has_run_out_may_be_an_answer() {
    let wall = sent_after_answers(|script, at| {
        script
            .run(at, 1, NETWORK, at)
            .entry(at + 10, 1, Act::Block(NETWORK), |slice| {
                slice.since = 500_000
            });
    });
    assert_eq!(wall, 39_930);
}

#[test]
fn what_is_sent_after_a_second_receive_may_be_an_answer() {
    let mut script = Script::default();
    asks(&mut script, 100, 6);
    for round in 1..=40 {
        receives(&mut script, round * 1000, 5)
            .on(round * 1000 + 20, 1, ASKED, 8, round * 1000)
            .on(round * 1000 + 30, 1, SENDS, 5, 0)
            .on(round * 1000 + 40, 1, SENDS, 8, 0)
            .on(round * 1000 + 50, 1, SENDS, 6, 0)
            .block(round * 1000 + 60, 1, NETWORK);
    }
    assert_eq!(script.finish()[0].row.wall / 1000, 39_950);
}

#[test]
fn an_answer_may_end_behind_what_is_pushed() {
    let (walls, published) = listeners(&[6, 5, 8, 5]);
    assert_eq!(walls, [40, 40]);
    assert!(published.iter().all(|parts| parts[0] == 50));
}

#[test]
fn what_is_sent_while_several_requests_are_in_hand_says_nothing() {
    let mut script = Script::default();
    asks(&mut script, 100, 6);
    for at in [1000, 2000, 3000, 4000] {
        receives(&mut script, at, 5)
            .on(at + 20, 1, ASKED, 8, at)
            .on(at + 30, 1, SENDS, 6, 0)
            .on(at + 40, 1, SENDS, 5, 0)
            .on(at + 50, 1, SENDS, 8, 0)
            .block(at + 60, 1, NETWORK);
    }
    assert_eq!(script.finish()[0].row.wall / 1000, 3_930);
}

#[test]
fn what_a_loop_that_never_waits_sends_says_nothing() {
    let mut script = Script::default();
    asks(&mut script, 100, 6);
    for at in [1000, 2000, 3000, 4000] {
        receives(&mut script, at, 8)
            .on(at + 20, 1, SENDS, 8, 0)
            .on(at + 30, 1, ASKED, 5, at)
            .on(at + 40, 1, SENDS, 6, 0)
            .on(at + 50, 1, SENDS, 5, 0)
            .block(at + 60, 1, NETWORK);
    }
    assert_eq!(script.finish()[0].row.wall / 1000, 3_940);
}

/// A request on socket 6 is answered at 5140, TCP keeps that back, and four messages follow. `known`: that the
/// process pushes is known by then.
fn answered_and_kept_back(why: u32, known: bool) -> Script {
    let mut script = Script::default();
    if known {
        asks(&mut script, 100, 8);
        publishes(&mut script, 200, &[8, 5]);
    }
    receives(&mut script, 5100, 6)
        .entry(5140, 1, SENDS, |slice| {
            (slice.socket, slice.length, slice.since) = (6, 10, why.into());
        })
        .block(5200, 1, NETWORK);
    publishes(&mut script, 6000, &[6, 5]);
    script
}

#[test]
fn an_answer_that_tcp_keeps_back_ends_with_what_is_pushed_meanwhile() {
    for known in [false, true] {
        let mut script = answered_and_kept_back(abi::TS_HELD_NAGLE, known);
        script.on(10_000, 1, Act::PassedOn, 6, 9_100);
        let finished = script.finish();
        let of = finished
            .iter()
            .find(|of| of.row.begin == 5_100_000)
            .expect("there");
        assert_eq!(of.row.request.tcp_ns, 3_960_000);
        assert_eq!(parts(of)[0], 4_000);
        assert_eq!(script.requests.missed.continued, 0);
    }
}

#[test]
fn the_rest_of_an_answer_for_which_there_was_no_room_is_not_pushed() {
    let mut script = answered_and_kept_back(abi::TS_HELD_WINDOW, true);
    script.on(6_015, 1, Act::PassedOn, 6, 0); // all of it had left before the next send
    let finished = script.finish();
    let of = finished.iter().find(|of| of.row.begin == 5_100_000);
    // The first of the later sends had waited for it.
    assert_eq!(of.expect("there").row.wall / 1000, 920);
}

#[test]
fn the_rest_of_another_answer_does_not_end_the_one_in_hand() {
    let mut script = answered_and_kept_back(abi::TS_HELD_WINDOW, true);
    receives(&mut script, 20_000, 6)
        .entry(20_040, 1, SENDS, |slice| {
            (slice.socket, slice.length, slice.since) = (6, 10, abi::TS_HELD_WINDOW.into());
        })
        .block(20_050, 1, NETWORK);
    receives(&mut script, 30_000, 5)
        .on(30_020, 1, SENDS, 5, 0)
        .on(30_030, 1, SENDS, 6, 0)
        .on(30_040, 1, SENDS, 5, 0);
    let finished = script.finish();
    let last = finished.last().expect("some");
    assert_eq!((last.row.begin, last.row.wall), (30_000_000, 40_000));
}

#[test]
fn another_thread_may_push() {
    let mut script = Script::default();
    asks(&mut script, 100, 6);
    publishes(&mut script, 1000, &[6, 5]);
    script.block(5000, 2, LOCK);
    receives(&mut script, 6000, 5)
        .wake(6020, 1, 2)
        .run(6030, 2, LOCK, 6020)
        .on(6040, 2, SENDS, 6, 0)
        .block(6050, 2, LOCK)
        .on(6060, 1, SENDS, 5, 0);
    assert_eq!(script.finish()[0].row.wall / 1000, 40);
}

#[test]
fn an_answer_that_goes_on_after_a_message_is_whole() {
    let mut script = Script::default();
    asks(&mut script, 100, 6);
    asks(&mut script, 300, 8);
    receives(&mut script, 1000, 5)
        .on(1020, 1, SENDS, 6, 0)
        .on(1030, 1, SENDS, 5, 0)
        .block(1040, 1, NETWORK)
        .run(2000, 1, NETWORK, 2000)
        .on(2010, 1, SENDS, 6, 0)
        .block(2020, 1, NETWORK);
    publishes(&mut script, 3000, &[8, 5]);
    assert_eq!(script.finish()[0].row.wall / 1000, 1_910);
}

#[test]
fn a_message_that_nobody_answers_is_pushed_and_over() {
    let mut script = Script::default();
    asks(&mut script, 100, 6);
    publishes(&mut script, 1000, &[6, 5]);
    publishes(&mut script, 5000, &[6]);
    receives(&mut script, 9000, 5).on(9030, 1, SENDS, 5, 0);
    let finished = script.finish();
    let walls: Vec<_> = finished.iter().map(|of| of.row.wall / 1000).collect();
    assert_eq!(walls, [40, 30, 30, 30, 30, 30]);
    assert_eq!(script.requests.missed.unanswered, 4);
}

#[test]
fn what_comes_in_while_something_is_sent_elsewhere_is_one_request() {
    let mut script = Script::default();
    asks(&mut script, 100, 6);
    // It comes in four parts, and in between the other client's answer goes on.
    publishes(&mut script, 1000, &[6]);
    script
        .run(4_500, 1, NETWORK, 4_500)
        .on(4_520, 1, SENDS, 5, 0);
    let finished = script.finish();
    let walls: Vec<_> = finished.iter().map(|of| of.row.wall / 1000).collect();
    assert_eq!(walls, [3_920, 3_520]);
}

#[test]
fn a_message_that_nobody_answers_is_not_answered_by_another_one() {
    let mut script = Script::default();
    asks(&mut script, 100, 6);
    publishes(&mut script, 1000, &[6, 5]);
    // Both say something that is pushed to the other: first twice, and then in turn.
    for (at, by, to) in [(5000, 5, 6), (6000, 5, 6), (7000, 6, 5), (8000, 6, 5)] {
        receives(&mut script, at, by)
            .on(at + 20, 1, SENDS, to, 0)
            .block(at + 30, 1, NETWORK);
    }
    for (at, by, to) in [(9000, 5, 6), (10_000, 6, 5), (11_000, 5, 6)] {
        receives(&mut script, at, by)
            .on(at + 20, 1, SENDS, to, 0)
            .block(at + 30, 1, NETWORK);
    }
    let walls: Vec<_> = script
        .finish()
        .iter()
        .map(|of| of.row.wall / 1000)
        .collect();
    assert_eq!(walls, [40, 30, 30, 30, 30]);
}

#[test]
fn an_answer_that_comes_late_is_one_though_another_message_is_in_hand() {
    let mut script = Script::default();
    asks(&mut script, 100, 6);
    publishes(&mut script, 1000, &[6, 5]);
    for at in [5000, 8000] {
        // What client 5 says is pushed, and its answer waits for something that no hook shows.
        receives(&mut script, at, 5)
            .on(at + 20, 1, SENDS, 6, 0)
            .block(at + 30, 1, NETWORK);
        receives(&mut script, at + 1000, 6)
            .on(at + 1020, 1, SENDS, 5, 0)
            .on(at + 1030, 1, SENDS, 6, 0)
            .block(at + 1040, 1, NETWORK);
    }
    let finished = script.finish();
    let late = finished.iter().filter(|of| of.row.wall / 1000 == 1_020);
    assert_eq!(late.count(), 2);
}

#[test]
fn a_request_may_wait_for_the_message_of_another_client() {
    let mut script = Script::default();
    asks(&mut script, 100, 6);
    publishes(&mut script, 1000, &[6, 5]);
    receives(&mut script, 6000, 8).block(6020, 1, NETWORK);
    receives(&mut script, 7000, 5)
        .on(7020, 1, SENDS, 8, 0)
        .on(7030, 1, SENDS, 5, 0);
    let finished = script.finish();
    let waited = finished.iter().find(|of| of.row.begin == 6_000_000);
    assert_eq!(waited.expect("there").row.wall / 1000, 1_020);
}

#[test]
fn what_timers_send_goes_on_with_an_answer() {
    let mut script = Script::default();
    asks(&mut script, 100, 6);
    for at in [1000, 2000, 3000, 4000] {
        script
            .run(at, 1, NETWORK, at)
            .on(at + 10, 1, SENDS, 6, 0)
            .block(at + 20, 1, NETWORK);
    }
    // A request may come in just when its timer is due.
    publishes(&mut script, 5000, &[6, 5]);
    let finished = script.finish();
    assert_eq!(finished[0].row.wall / 1000, 7_920);
}
