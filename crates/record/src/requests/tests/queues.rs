//! An event loop and its workers, which take work from a queue: whom they wake, and what they wait for.

use tailscope_signals::abi;
use tailscope_signals::slice::{Act, Peer, Role};

use super::{Finished, LOCK, NETWORK, Script, parts};

const SLEEP: u8 = abi::TS_SLEEP as u8;
/// The loop's end of a pair of sockets, and the workers'.
const LOOPS: u64 = 20;
const WORKERS: u64 = 21;

/// A loop (1) that has just received a request on the socket 5, and two workers (2, 3).
fn received() -> Script {
    let mut script = Script::default();
    script
        .block(1, 1, NETWORK)
        .block(1, 2, LOCK)
        .block(1, 3, LOCK);
    for (socket, own, peer) in [(LOOPS, 1, 2), (WORKERS, 2, 1)] {
        script.entry(2, 4, Act::Socket(Role::Internal), |slice| {
            slice.socket = socket;
            slice.peer = Some(Box::new(Peer {
                unix: Some((own, peer)),
                ..Peer::default()
            }));
        });
    }
    script
        .run(1100, 1, NETWORK, 1100)
        .on(1110, 1, Act::Receive(Role::Server), 5, 1100);
    script
}

impl Script {
    /// A worker has a result, of which the loop makes the answer on that socket.
    fn result(&mut self, at: u64, worker: u32, socket: u64) -> &mut Self {
        self.on(at, worker, Act::Send(Role::Internal), WORKERS, 0)
            .run(at + 10, 1, NETWORK, at)
            .on(at + 20, 1, Act::Receive(Role::Internal), LOOPS, at)
            .on(at + 50, 1, Act::Send(Role::Server), socket, 0)
            .block(at + 60, 1, NETWORK)
    }

    fn sleeps(&mut self, from: u64, to: u64, tid: u32) -> &mut Self {
        self.block(from, tid, SLEEP)
            .run_with(to, tid, SLEEP, to - from)
    }
}

fn of_socket_5(finished: &[Finished]) -> &Finished {
    let longest = finished.iter().max_by_key(|of| of.row.wall);
    longest.expect("a request")
}

fn slept(finished: &Finished) -> u64 {
    finished.row.ns[abi::TS_SLEEP as usize] / 1000
}

#[test]
fn a_worker_whose_helper_finds_nothing_has_not_handed_its_work_over() {
    let mut script = received();
    script
        .wake(1115, 1, 2)
        .block(1120, 1, NETWORK)
        .run(1130, 2, LOCK, 1115)
        .wake(1135, 2, 3)
        .run(1140, 3, LOCK, 1135)
        .sleeps(1150, 7150, 2)
        .result(7200, 2, 5)
        .block(7300, 2, LOCK);
    // The helper's wait for something to do goes on before the worker's sleep ends.
    script.entry(1160, 3, Act::Block(LOCK), |slice| slice.since = 0x1000);
    let finished = script.finish();
    assert_eq!(slept(&finished[0]), 6000, "{finished:?}");
    assert_eq!(parts(&finished[0])[3], 0);
}

#[test]
fn a_worker_whose_helper_takes_another_request_has_not_handed_its_work_over() {
    let mut script = received();
    script
        .on(1112, 1, Act::Receive(Role::Server), 6, 1100)
        .wake(1115, 1, 2)
        .block(1120, 1, NETWORK)
        .run(1130, 2, LOCK, 1115)
        .wake(1135, 2, 3)
        .run(1140, 3, LOCK, 1135)
        .result(1200, 3, 6)
        .block(1300, 3, LOCK)
        .sleeps(1310, 7310, 2)
        .result(7400, 2, 5);
    let finished = script.finish();
    assert_eq!(slept(of_socket_5(&finished)), 6000, "{finished:?}");
    assert_eq!(parts(of_socket_5(&finished))[3], 0);
}

#[test]
fn a_request_that_a_worker_takes_without_a_wait_has_queued_until_then() {
    let mut script = received();
    script
        .wake(1115, 1, 2)
        .on(1120, 1, Act::Receive(Role::Server), 6, 1100)
        .block(1130, 1, NETWORK)
        .run(1140, 2, LOCK, 1115)
        .result(4000, 2, 5)
        // The loop has answered, and the worker has gone on at once.
        .sleeps(4100, 9100, 2)
        .result(9200, 2, 6);
    let finished = script.finish();
    let other = of_socket_5(&finished);
    assert_eq!(slept(other), 5000, "{finished:?}");
    let [wall, queue, _, unknown] = parts(other);
    assert_eq!((wall, unknown), (8150, 0), "{other:?}");
    assert!(queue > 2500, "{queue}");
}

#[test]
fn what_a_thread_receives_that_never_answers_waits_for_others() {
    let mut script = received();
    script.block(1120, 1, NETWORK);
    for turn in 1..20 {
        let at = turn * 100_000;
        script
            .run(at, 1, NETWORK, at)
            .on(at + 10, 1, Act::Receive(Role::Server), 6, at)
            .block(at + 20, 1, NETWORK)
            // The worker comes from its own wait for data, to which none came.
            .block(at + 30, 2, NETWORK)
            .run(at + 5030, 2, NETWORK, at + 5030)
            .on(at + 5100, 2, Act::Send(Role::Server), 6, 0);
    }
    let last = script.finish().pop().expect("a request");
    let [wall, queue, _, unknown] = parts(&last);
    assert_eq!((wall, unknown), (5100, 0), "{last:?}");
    assert!(queue > 4900, "{queue}");
}

#[test]
fn of_two_results_at_once_each_is_its_own_requests() {
    let mut script = received();
    script
        .wake(1115, 1, 2)
        .on(1120, 1, Act::Receive(Role::Server), 6, 1100)
        .wake(1125, 1, 3)
        .block(1130, 1, NETWORK)
        .run(1140, 2, LOCK, 1115)
        .run(1145, 3, LOCK, 1125)
        .sleeps(1150, 7150, 2)
        .on(7200, 2, Act::Send(Role::Internal), WORKERS, 0)
        .on(7210, 3, Act::Send(Role::Internal), WORKERS, 0)
        .run(7220, 1, NETWORK, 7200)
        .on(7230, 1, Act::Receive(Role::Internal), LOOPS, 7200)
        // The loop answers in the other order.
        .on(7300, 1, Act::Send(Role::Server), 6, 0)
        .on(7400, 1, Act::Send(Role::Server), 5, 0);
    let finished = script.finish();
    let all: u64 = finished.iter().map(slept).sum();
    assert_eq!(
        (all, slept(of_socket_5(&finished))),
        (6000, 6000),
        "{finished:?}"
    );
}

#[test]
fn a_result_that_the_loop_saw_before_it_was_told_is_the_answered_requests() {
    let mut script = received();
    script
        .wake(1115, 1, 2)
        .block(1120, 1, NETWORK)
        .run(1130, 2, LOCK, 1115)
        .sleeps(1140, 7140, 2)
        .run(7150, 1, NETWORK, 7150)
        .on(7160, 1, Act::Receive(Role::Server), 6, 7150)
        .on(7200, 1, Act::Send(Role::Server), 5, 0)
        .on(7210, 2, Act::Send(Role::Internal), WORKERS, 0)
        .on(7230, 1, Act::Receive(Role::Internal), LOOPS, 7210)
        .on(7300, 1, Act::Send(Role::Server), 6, 0);
    let finished = script.finish();
    assert_eq!(slept(of_socket_5(&finished)), 6000, "{finished:?}");
}

#[test]
fn what_comes_before_a_new_connection_to_another_server_is_work() {
    let mut script = Script::default();
    script
        .block(1, 1, NETWORK)
        .run(100, 1, NETWORK, 100)
        .on(100, 1, Act::Receive(Role::Server), 5, 100)
        .entry(400, 1, Act::Socket(Role::Client), |slice| slice.socket = 9)
        .on(401, 1, Act::Send(Role::Client), 9, 0)
        .block(401, 1, NETWORK)
        .run(900, 1, NETWORK, 900)
        .on(900, 1, Act::Receive(Role::Client), 9, 900)
        .on(1000, 1, Act::Send(Role::Server), 5, 0);
    assert_eq!(parts(&script.finish()[0]), [900, 0, 499, 0]);
}

/// What a loop that receives three requests together has done for each is known if it answers each when
/// it is done with it, and not if it answers all of them at the end.
#[test]
fn answers_that_are_sent_together_show_nothing_of_what_was_done_for_which() {
    for (together, sends) in [(false, [500, 900, 1300]), (true, [1300, 1305, 1310])] {
        let mut script = Script::default();
        script.block(1, 1, NETWORK).run(100, 1, NETWORK, 100);
        for (socket, at) in [(5, 110), (6, 112), (7, 114)] {
            script.on(at, 1, Act::Receive(Role::Server), socket, 100);
        }
        for (socket, at) in (5..).zip(sends) {
            script.on(at, 1, Act::Send(Role::Server), socket, 0);
        }
        let finished = script.finish();
        assert!(finished.iter().all(|of| of.ambiguous == together));
    }
}

#[test]
fn an_answer_that_is_sent_after_the_next_request_was_done_waits_for_that() {
    // The loop computes where it receives, and sends when it looks at its sockets again. Where it has only
    // taken note of the first before it receives the second, it computes for the first then.
    for (worked, expected) in [(300, [300, 0]), (20, [0, 300])] {
        let mut script = Script::default();
        let second = 110 + worked;
        let sends = second + 300;
        script
            .block(1, 1, NETWORK)
            .run(100, 1, NETWORK, 100)
            .on(110, 1, Act::Receive(Role::Server), 5, 110)
            .on(second, 1, Act::Receive(Role::Server), 6, second)
            .on(sends, 1, Act::Send(Role::Server), 5, 0)
            .on(sends + 1, 1, Act::Send(Role::Server), 6, 0);
        let finished = script.finish();
        let queued: Vec<_> = finished.iter().map(|of| of.row.queue_ns / 1000).collect();
        assert_eq!(queued, expected);
        assert!(finished[0].ambiguous, "it is a guess");
    }
}

/// A loop works for `first` µs where it receives the first of two requests, for `second` until it answers
/// that, and for `third` until it answers the second.
fn pair(script: &mut Script, from: u64, [first, second, third]: [u64; 3]) -> u64 {
    let received = from + 10;
    let answered = received + first + second;
    script
        .run(from, 1, NETWORK, from)
        .on(received, 1, Act::Receive(Role::Server), 5, received)
        .on(
            received + first,
            1,
            Act::Receive(Role::Server),
            6,
            received + first,
        )
        .on(answered, 1, Act::Send(Role::Server), 5, 0)
        .on(answered + third, 1, Act::Send(Role::Server), 6, 0)
        .block(answered + third + 10, 1, NETWORK);
    answered + third + 1000
}

#[test]
fn a_loop_shows_whether_it_works_where_it_receives() {
    // In the last pair nothing else tells them apart: the time before the first answer is the second's, or
    // the first's.
    for (shown, last, expected, is_sure) in [
        ([300, 300, 5], [20, 300, 5], [(320, 300), (305, 0)], true),
        ([20, 300, 300], [300, 300, 5], [(600, 0), (305, 300)], false),
    ] {
        let mut script = Script::default();
        script.block(1, 1, NETWORK);
        let mut at = 100;
        for _ in 0..4 {
            at = pair(&mut script, at, shown);
        }
        pair(&mut script, at, last);
        let mut finished = script.finish();
        let last = finished.split_off(8);
        let parts = last.iter().map(parts);
        let wall_and_queue: Vec<_> = parts.map(|[wall, queue, ..]| (wall, queue)).collect();
        assert_eq!(wall_and_queue, expected);
        assert!(last.iter().all(|of| of.ambiguous != is_sure));
    }
}
