//! Connections that follow each other in a socket's place, or lie beside each other: which packet is
//! whose.

use super::*;

#[test]
fn a_connection_in_the_place_of_another_begins_anew() {
    let far = 3_000_000_000;
    let mut events = comes(100, 10, 10).to_vec();
    events.extend([
        receive(150, 10),
        transmit(180, 520),
        send(190, 520, Held::Not),
    ]);
    // What came in last was never received.
    events.extend(comes(300, 30, 20));
    events.extend(comes(900, far + 10, 10));
    events.extend([
        receive(950, far + 10),
        transmit(980, far + 520),
        send(990, far + 520, Held::Not),
    ]);
    let made = all(&events);
    let times: Vec<_> = made
        .iter()
        .map(|r| (r.begin() / US, r.end() / US))
        .collect();
    assert_eq!(times, [(100, 180), (900, 980)]);
}

#[test]
fn a_connection_whose_numbers_are_near_those_before_it_in_one_direction_loses_no_request() {
    let mut events = Vec::new();
    // The ends of what came in and of what was sent, of one short connection after the other.
    for (n, (came, sent)) in [
        (10, 520),
        (5_000_010, 3_000_000_520),
        (900_000_010, 2_000_000_520),
    ]
    .into_iter()
    .enumerate()
    {
        let at = 1_000 * (n as u64 + 1);
        events.extend(comes(at, came, 10));
        events.extend([
            receive(at + 50, came),
            transmit(at + 80, sent),
            send(at + 90, sent, Held::Not),
        ]);
    }
    let made = all(&events);
    let times: Vec<_> = made
        .iter()
        .map(|r| (r.begin() / US, r.end() / US))
        .collect();
    assert_eq!(times, [(1_000, 1_080), (2_000, 2_080), (3_000, 3_080)]);
}

#[test]
fn the_last_byte_of_a_connection_has_its_packet_though_the_end_counts_as_one() {
    let mut events = comes(100, 10, 1).to_vec();
    let all_and_the_end = What::Receive {
        socket: SERVER,
        end: Some(Sequence(11)),
        bytes: 1,
        connects: false,
    };
    events.extend([
        (150, 7, all_and_the_end),
        transmit(180, 520),
        send(190, 520, Held::Not),
    ]);
    assert_eq!(all(&events)[0].begin(), 100 * US);
}

#[test]
fn a_packet_that_nobody_took_begins_no_request_of_the_next_connection() {
    // Of a process that is not recorded, so its receive is no event.
    let events = comes(100, 10, 10).to_vec();
    // By chance the numbers of the connection in its place go on near there, or right there.
    for end in [5_000_010, 20] {
        let mut events = events.clone();
        events.extend(comes(900, end, 10));
        events.extend([
            receive(950, end),
            transmit(980, 520),
            send(990, 520, Held::Not),
        ]);
        let made = all(&events);
        let times: Vec<_> = made
            .iter()
            .map(|r| (r.begin() / US, r.end() / US))
            .collect();
        assert_eq!(times, [(900, 980)]);
    }
}

#[test]
fn a_connection_whose_numbers_are_before_those_of_the_one_before_it_has_its_packet() {
    let far = 1 << 25; // not so far that the socket is known to be another connection's
    let mut events = comes(100, far, 10).to_vec();
    events.extend([
        receive(150, far),
        transmit(180, 520),
        send(190, 520, Held::Not),
    ]);
    events.extend(comes(400, 10, 10));
    events.extend([
        receive(450, 10),
        transmit(480, 540),
        send(490, 540, Held::Not),
    ]);
    let begins: Vec<u64> = all(&events).iter().map(Request::begin).collect();
    assert_eq!(begins, [100 * US, 400 * US]);
}

#[test]
fn a_packet_that_made_its_connection_is_known_by_when_it_left_its_client() {
    // TCP tells nothing of its arrival: there is no established connection yet.
    let [leaves, packet, _, ready, softirq] = comes(100, 10, 10);
    let events = [
        leaves,
        packet,
        ready,
        softirq,
        receive(5_150, 10),
        transmit(5_180, 520),
        send(5_190, 520, Held::Not),
    ];
    let request = all(&events).remove(0);
    assert_eq!((request.begin(), request.end()), (100 * US, 5_180 * US));
    assert_eq!(request.arrival.and_then(|a| a.ready), Some(103 * US));
}

#[test]
fn one_servers_answer_is_not_taken_for_the_packet_of_anothers_client() {
    const ANOTHER: Socket = Socket(3);
    let on = |socket, (at, tid, what): (u64, u32, What)| {
        let what = match what {
            What::Receive {
                end,
                bytes,
                connects,
                ..
            } => What::Receive {
                socket,
                end,
                bytes,
                connects,
            },
            What::Transmit {
                end, bytes, since, ..
            } => What::Transmit {
                socket,
                end,
                bytes,
                since,
            },
            What::TcpIn {
                end,
                acknowledges,
                bytes,
                ..
            } => What::TcpIn {
                socket,
                end,
                acknowledges,
                bytes,
            },
            What::Send {
                end, bytes, held, ..
            } => What::Send {
                socket,
                end,
                bytes,
                held,
            },
            other => other,
        };
        (at, tid, what)
    };
    let mut events = comes(100, 10, 10).to_vec();
    events.extend([
        receive(150, 10),
        transmit(180, 520),
        send(190, 520, Held::Not),
    ]);
    // Of clients on other machines no packet leaves here, and one has the answer's number by chance.
    for (at, end) in [(300, 100), (90_000, 520)] {
        let came = comes(at, end, 10);
        events.extend(came[1..].iter().map(|event| on(ANOTHER, *event)));
        let answer = [
            receive(at + 50, end),
            transmit(at + 80, 900 + end),
            send(at + 90, 900 + end, Held::Not),
        ];
        events.extend(answer.map(|event| on(ANOTHER, event)));
    }
    let times: Vec<_> = all(&events)
        .iter()
        .map(|r| (r.socket, r.begin() / US))
        .filter(|(socket, _)| *socket == ANOTHER)
        .collect();
    assert_eq!(times, [(ANOTHER, 301), (ANOTHER, 90_001)]);
}
