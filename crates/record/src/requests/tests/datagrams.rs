//! Requests over UDP: a server has one socket for all clients.

use tailscope_signals::slice::{Act, Role};

use super::{LOCK, NETWORK, Script, parts};

const RECEIVES: Act = Act::Receive(Role::Server);
const ANSWERS: Act = Act::Send(Role::Server);

impl Script {
    /// A server that waits for datagrams on socket 5.
    fn of_udp() -> Self {
        let mut script = Self::default();
        script.block(2, 1, NETWORK);
        script
    }

    fn udp(&mut self, at: u64, tid: u32, act: Act, since: u64) -> &mut Self {
        self.entry(at, tid, act, |slice| {
            (slice.socket, slice.length, slice.datagram) = (5, 10, true);
            slice.since = since * 1000;
        })
    }

    /// How long each request took.
    fn walls(&mut self) -> Vec<u64> {
        self.finish().iter().map(|of| parts(of)[0]).collect()
    }

    /// A datagram lets the first thread go on, and it receives it.
    fn comes_in(&mut self, at: u64) -> &mut Self {
        self.run(at, 1, NETWORK, at).udp(at + 10, 1, RECEIVES, at)
    }

    /// A datagram lets the first thread go on, which asks another server for it.
    fn asks(&mut self, at: u64, server: u64) -> &mut Self {
        self.comes_in(at)
            .on(at + 50, 1, Act::Send(Role::Client), server, 0)
            .block(at + 60, 1, NETWORK)
    }

    /// The first thread receives requests, 1000 apart, and leaves them to the second, which sends this number
    /// of datagrams for each. One more request comes in before the last of these has its answer.
    fn takes_up(&mut self, rounds: u64, datagrams: u64) {
        self.block(50, 2, LOCK);
        for at in (1..=rounds).map(|round| round * 1000) {
            self.comes_in(at)
                .wake(at + 20, 1, 2)
                .block(at + 30, 1, NETWORK)
                .run(at + 40, 2, LOCK, at + 20);
            if at == rounds * 1000 {
                self.comes_in(at + 100).block(at + 120, 1, NETWORK);
            }
            for sent in 0..datagrams {
                self.udp(at + 200 + sent, 2, ANSWERS, 0);
            }
            if at == rounds * 1000 && datagrams == 1 {
                self.udp(at + 300, 2, ANSWERS, 0);
            }
            self.block(at + 400, 2, LOCK);
        }
    }

    /// That server's answer lets it go on, which it passes on.
    fn passes_on(&mut self, at: u64, server: u64) -> &mut Self {
        self.run(at, 1, NETWORK, at)
            .on(at + 10, 1, Act::Receive(Role::Client), server, at)
            .udp(at + 50, 1, ANSWERS, 0)
            .block(at + 60, 1, NETWORK)
    }
}

#[test]
fn each_datagram_is_a_request_and_the_answer_is_its_whose_result_the_thread_has() {
    let mut script = Script::of_udp();
    script
        .asks(100, 9)
        .asks(1000, 10)
        .passes_on(2000, 10)
        .passes_on(4000, 9);
    let finished = script.finish();
    let walls: Vec<_> = finished.iter().map(parts).collect();
    assert_eq!(walls, [[3950, 0, 3840, 0], [1050, 0, 940, 0]]);
    assert!(finished.iter().all(|of| !of.ambiguous));
}

#[test]
fn the_answer_is_its_whose_result_came_in_though_a_request_came_in_before() {
    let mut script = Script::of_udp();
    script
        .asks(100, 9)
        .comes_in(1000)
        .on(1020, 1, Act::Receive(Role::Client), 9, 1000)
        .udp(1050, 1, ANSWERS, 0)
        .on(1100, 1, Act::Send(Role::Client), 10, 0)
        .block(1110, 1, NETWORK)
        .passes_on(3000, 10);
    let found: Vec<_> = script
        .finish()
        .iter()
        .map(|of| parts(of)[..3].to_vec())
        .collect();
    assert_eq!(found, [[950, 20, 840], [2050, 30, 1890]]);
}

#[test]
fn datagrams_that_come_in_together_are_answered_in_their_order() {
    let mut script = Script::of_udp();
    script
        .comes_in(100)
        .udp(120, 1, RECEIVES, 100)
        .udp(200, 1, ANSWERS, 0)
        .udp(300, 1, ANSWERS, 0)
        .block(310, 1, NETWORK);
    assert_eq!(script.walls(), [100, 200]);
}

#[test]
fn what_has_asked_and_not_heard_is_not_answered_yet() {
    let mut script = Script::of_udp();
    script
        .comes_in(100)
        .udp(120, 1, RECEIVES, 110)
        .on(200, 1, Act::Send(Role::Client), 9, 0)
        .udp(300, 1, ANSWERS, 0)
        .block(310, 1, NETWORK)
        .passes_on(3000, 9);
    assert_eq!(script.walls(), [2950, 190]);
}

#[test]
fn who_wakes_a_helper_answers_itself() {
    let mut script = Script::of_udp();
    script
        .block(3, 2, LOCK)
        .asks(100, 9)
        .comes_in(1000)
        .wake(1020, 1, 2)
        .udp(1100, 1, ANSWERS, 0)
        .block(1110, 1, NETWORK)
        .passes_on(3000, 9);
    assert_eq!(script.walls(), [2950, 100]);
}

#[test]
fn who_waited_with_a_datagram_in_hand_answers_that() {
    let mut script = Script::of_udp();
    script
        .asks(100, 9)
        .comes_in(1000)
        .block(1020, 1, NETWORK)
        .run(2000, 1, NETWORK, 2000)
        .udp(2100, 1, ANSWERS, 0)
        .block(2110, 1, NETWORK)
        .passes_on(3000, 9);
    assert_eq!(script.walls(), [2950, 1100]);
}

#[test]
fn a_worker_answers_the_datagram_that_it_was_handed() {
    let mut script = Script::of_udp();
    script
        .block(3, 2, LOCK)
        .asks(100, 9)
        .comes_in(1000)
        .wake(1020, 1, 2)
        .block(1030, 1, NETWORK)
        .run(1040, 2, LOCK, 1020)
        .udp(1200, 2, ANSWERS, 0)
        .block(1210, 2, LOCK)
        .passes_on(3000, 9);
    assert_eq!(script.walls(), [2950, 200]);
}

#[test]
fn a_second_datagram_of_an_answer_answers_no_other_request() {
    let mut script = Script::of_udp();
    script
        .asks(100, 9)
        .comes_in(1000)
        .udp(1100, 1, ANSWERS, 0)
        .udp(1150, 1, ANSWERS, 0)
        .block(1160, 1, NETWORK)
        .passes_on(3000, 9);
    assert_eq!(script.walls(), [2950, 100]);
    assert_eq!(script.requests.missed.continued, 1);
}

#[test]
fn a_second_datagram_of_an_answer_answers_none_that_its_thread_has_received() {
    let mut script = Script::of_udp();
    script
        .comes_in(100)
        .block(120, 1, NETWORK) // it waits for a timer
        .comes_in(1000)
        .udp(1100, 1, ANSWERS, 0)
        .udp(1150, 1, ANSWERS, 0)
        .block(1160, 1, NETWORK);
    let walls = script.walls();
    assert_eq!((walls, script.requests.missed.continued), (vec![100], 1));
}

#[test]
fn a_worker_may_take_the_next_request_without_a_wait() {
    let mut script = Script::of_udp();
    script.takes_up(10, 1);
    assert_eq!(script.walls(), vec![200; 11]);
}

#[test]
fn a_worker_whose_answers_have_several_datagrams_answers_no_other_request_with_them() {
    let mut script = Script::of_udp();
    script.takes_up(10, 2);
    assert_eq!(script.walls(), vec![200; 10]);
}

#[test]
fn a_thread_of_which_nothing_is_known_answers_the_oldest_and_says_that_it_is_a_guess() {
    let mut script = Script::of_udp();
    script
        .comes_in(100)
        .block(120, 1, NETWORK)
        .udp(2000, 2, ANSWERS, 0);
    let finished = script.finish();
    assert_eq!(parts(&finished[0])[0], 1900);
    assert!(finished[0].ambiguous);
}

#[test]
fn quic_is_counted_and_no_request() {
    let mut script = Script::of_udp();
    script
        .comes_in(100)
        .entry(120, 1, RECEIVES, |slice| {
            (slice.socket, slice.length) = (5, 1200);
            (slice.datagram, slice.quic) = (true, true);
        })
        .udp(130, 1, ANSWERS, 0);
    assert!(script.finish().is_empty());
    let missed = script.requests.missed;
    assert_eq!((missed.multiplexed, missed.continued), (2, 0));
}

#[test]
fn a_datagram_without_bytes_is_a_request_too() {
    let mut script = Script::of_udp();
    script
        .asks(100, 9)
        .run(1000, 1, NETWORK, 1000)
        .entry(1010, 1, RECEIVES, |slice| {
            (slice.socket, slice.since, slice.datagram) = (5, 1_000_000, true);
        })
        .udp(1100, 1, ANSWERS, 0)
        .block(1110, 1, NETWORK)
        .passes_on(3000, 9);
    assert_eq!(script.walls(), [2950, 100]);
}

#[test]
fn who_works_for_somebody_else_answers_no_datagram() {
    let mut script = Script::of_udp();
    script
        .comes_in(100)
        .block(120, 1, NETWORK)
        .block(130, 2, NETWORK)
        .run(1000, 2, NETWORK, 1000)
        .on(1010, 2, RECEIVES, 6, 1000)
        .udp(1050, 2, ANSWERS, 0)
        .on(1100, 2, ANSWERS, 6, 0);
    assert_eq!(script.walls(), [100]);
}

#[test]
fn what_waits_for_another_server_is_not_taken_for_answered() {
    let mut script = Script::of_udp();
    script
        .asks(100, 9)
        .run(500, 2, NETWORK, 500)
        .udp(550, 2, ANSWERS, 0)
        .passes_on(3000, 9);
    assert_eq!(script.walls(), [2950]);
}

#[test]
fn the_result_that_came_in_last_counts_though_its_call_was_a_guess() {
    let mut script = Script::of_udp();
    script
        .comes_in(100)
        .udp(120, 1, RECEIVES, 110)
        .on(200, 1, Act::Send(Role::Client), 9, 0)
        .on(300, 1, Act::Send(Role::Client), 10, 0)
        .block(310, 1, NETWORK)
        .comes_in(1000)
        .on(1020, 1, Act::Receive(Role::Client), 9, 1000)
        .udp(1050, 1, ANSWERS, 0)
        .udp(1100, 1, ANSWERS, 0)
        .block(1110, 1, NETWORK)
        .passes_on(3000, 10);
    assert_eq!(script.walls(), [950, 2940, 100]);
}

#[test]
fn messages_without_an_answer_are_counted_and_do_not_pile_up() {
    let mut script = Script::of_udp();
    script.run(100, 1, NETWORK, 100);
    for n in 0..3000 {
        script.udp(110 + n, 1, RECEIVES, 100 + n);
    }
    script.requests.advance(100_000_000);
    assert!(script.requests.works.len() <= 1024);
    script.requests.advance(30_000_000_000);
    assert_eq!(script.requests.missed.unanswered, 3000);
    // What is sent much later answers none of them.
    script.udp(31_000_000, 2, ANSWERS, 0);
    assert!(script.finish().is_empty());
}
