//! Requests over UDP: a server has one socket for all clients.

use tailscope_signals::slice::{Act, Peer, Role};

use super::{LOCK, NETWORK, Script, parts};

const RECEIVES: Act = Act::Receive(Role::Server);
const ANSWERS: Act = Act::Send(Role::Server);

impl Script {
    /// A server that waits for datagrams on socket 5.
    fn of_udp() -> Self {
        let mut script = Self::default();
        script.entry(1, 1, Act::Socket(Role::Server), |slice| {
            slice.socket = 5;
            slice.peer = Some(Box::new(Peer {
                udp: true,
                ..Peer::default()
            }));
        });
        script.block(2, 1, NETWORK);
        script
    }

    /// A datagram lets the first thread go on, which asks another server for it.
    fn asks(&mut self, at: u64, server: u64) -> &mut Self {
        self.run(at, 1, NETWORK, at)
            .on(at + 10, 1, RECEIVES, 5, at)
            .on(at + 50, 1, Act::Send(Role::Client), server, 0)
            .block(at + 60, 1, NETWORK)
    }

    /// That server's answer lets it go on, which it passes on.
    fn passes_on(&mut self, at: u64, server: u64) -> &mut Self {
        self.run(at, 1, NETWORK, at)
            .on(at + 10, 1, Act::Receive(Role::Client), server, at)
            .on(at + 50, 1, ANSWERS, 5, 0)
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
        .run(1000, 1, NETWORK, 1000)
        .on(1010, 1, RECEIVES, 5, 1000)
        .on(1020, 1, Act::Receive(Role::Client), 9, 1000)
        .on(1050, 1, ANSWERS, 5, 0)
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
        .run(100, 1, NETWORK, 100)
        .on(110, 1, RECEIVES, 5, 100)
        .on(120, 1, RECEIVES, 5, 100)
        .on(200, 1, ANSWERS, 5, 0)
        .on(300, 1, ANSWERS, 5, 0)
        .block(310, 1, NETWORK);
    let walls: Vec<_> = script.finish().iter().map(|of| parts(of)[0]).collect();
    assert_eq!(walls, [100, 200]);
}

#[test]
fn what_has_asked_and_not_heard_is_not_answered_yet() {
    let mut script = Script::of_udp();
    script
        .run(100, 1, NETWORK, 100)
        .on(110, 1, RECEIVES, 5, 100)
        .on(120, 1, RECEIVES, 5, 110)
        .on(200, 1, Act::Send(Role::Client), 9, 0)
        .on(300, 1, ANSWERS, 5, 0)
        .block(310, 1, NETWORK)
        .passes_on(3000, 9);
    let walls: Vec<_> = script.finish().iter().map(|of| parts(of)[0]).collect();
    assert_eq!(walls, [2950, 190]);
}

#[test]
fn who_wakes_a_helper_answers_itself() {
    let mut script = Script::of_udp();
    script
        .block(3, 2, LOCK)
        .asks(100, 9)
        .run(1000, 1, NETWORK, 1000)
        .on(1010, 1, RECEIVES, 5, 1000)
        .wake(1020, 1, 2)
        .on(1100, 1, ANSWERS, 5, 0)
        .block(1110, 1, NETWORK)
        .passes_on(3000, 9);
    let walls: Vec<_> = script.finish().iter().map(|of| parts(of)[0]).collect();
    assert_eq!(walls, [2950, 100]);
}

#[test]
fn who_waited_with_a_datagram_in_hand_answers_that() {
    let mut script = Script::of_udp();
    script
        .asks(100, 9)
        .run(1000, 1, NETWORK, 1000)
        .on(1010, 1, RECEIVES, 5, 1000)
        .block(1020, 1, NETWORK)
        .run(2000, 1, NETWORK, 2000)
        .on(2100, 1, ANSWERS, 5, 0)
        .block(2110, 1, NETWORK)
        .passes_on(3000, 9);
    let walls: Vec<_> = script.finish().iter().map(|of| parts(of)[0]).collect();
    assert_eq!(walls, [2950, 1100]);
}

#[test]
fn a_worker_answers_the_datagram_that_it_was_handed() {
    let mut script = Script::of_udp();
    script
        .block(3, 2, LOCK)
        .asks(100, 9)
        .run(1000, 1, NETWORK, 1000)
        .on(1010, 1, RECEIVES, 5, 1000)
        .wake(1020, 1, 2)
        .block(1030, 1, NETWORK)
        .run(1040, 2, LOCK, 1020)
        .on(1200, 2, ANSWERS, 5, 0)
        .block(1210, 2, LOCK)
        .passes_on(3000, 9);
    let walls: Vec<_> = script.finish().iter().map(|of| parts(of)[0]).collect();
    assert_eq!(walls, [2950, 200]);
}

#[test]
fn a_second_datagram_of_an_answer_answers_no_other_request() {
    let mut script = Script::of_udp();
    script
        .asks(100, 9)
        .run(1000, 1, NETWORK, 1000)
        .on(1010, 1, RECEIVES, 5, 1000)
        .on(1100, 1, ANSWERS, 5, 0)
        .on(1150, 1, ANSWERS, 5, 0)
        .block(1160, 1, NETWORK)
        .passes_on(3000, 9);
    let finished = script.finish();
    let walls: Vec<_> = finished.iter().map(|of| parts(of)[0]).collect();
    assert_eq!(walls, [2950, 100]);
    assert_eq!(script.requests.missed.continued, 1);
}

#[test]
fn a_thread_of_which_nothing_is_known_answers_the_oldest_and_says_that_it_is_a_guess() {
    let mut script = Script::of_udp();
    script
        .asks(100, 9)
        .asks(1000, 10)
        .on(2000, 2, ANSWERS, 5, 0)
        .passes_on(3000, 10);
    let finished = script.finish();
    let walls: Vec<_> = finished.iter().map(|of| parts(of)[0]).collect();
    assert_eq!(walls, [1900, 2050]);
    assert!(finished[0].ambiguous);
}

#[test]
fn quic_is_counted_and_no_request() {
    let first = |script: &mut Script, at, length, text: [u8; 5]| {
        script.entry(at, 1, RECEIVES, |slice| {
            (slice.socket, slice.length, slice.text) = (5, length, text.to_vec());
        });
    };
    let rows = |length, text| {
        let mut script = Script::of_udp();
        script
            .run(100, 1, NETWORK, 100)
            .on(105, 1, RECEIVES, 5, 100);
        first(&mut script, 110, length, text);
        script
            .on(120, 1, ANSWERS, 5, 0)
            .on(130, 1, RECEIVES, 5, 130)
            .on(140, 1, ANSWERS, 5, 0);
        let rows = script.finish().len();
        (
            rows,
            script.requests.missed.multiplexed,
            script.requests.missed.continued,
        )
    };
    assert_eq!(rows(1200, [0xc3, 0, 0, 0, 1]), (0, 3, 0));
    assert_eq!(rows(1252, [0xd0, 0x6b, 0x33, 0x43, 0xcf]), (0, 3, 0));
    // Too short, another version, and a short header.
    for (length, text) in [
        (1199, [0xc3, 0, 0, 0, 1]),
        (1200, [0xc3, 1, 0, 0, 1]),
        (1200, [0x43, 0, 0, 0, 1]),
    ] {
        assert_eq!(rows(length, text), (2, 0, 0), "{length} {text:?}");
    }
}

#[test]
fn messages_without_an_answer_are_counted_and_do_not_pile_up() {
    let mut script = Script::of_udp();
    script.run(100, 1, NETWORK, 100);
    for n in 0..3000 {
        script.on(110 + n, 1, RECEIVES, 5, 100 + n);
    }
    script.requests.advance(100_000_000);
    assert!(script.requests.works.len() <= 1024);
    script.entry(200_000, 1, Act::Close(Role::Server), |slice| {
        slice.socket = 5
    });
    assert!(script.finish().is_empty());
    assert_eq!(script.requests.missed.unanswered, 3000);
}
