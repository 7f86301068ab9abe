//! Requests whose client is on this machine too.

use super::*;

/// The answer up to `end` comes in to the client, which receives it as thread 9.
fn taken(at: u64, end: u32) -> [(u64, u32, What); 4] {
    let end = Sequence(end);
    [
        (at, 7, What::PacketIn { bytes: 100 }),
        (
            at + 1,
            7,
            What::TcpIn {
                socket: CLIENT,
                end,
                acknowledges: Sequence(0),
                bytes: 20,
            },
        ),
        (at + 2, 7, What::Ready { socket: CLIENT }),
        (
            at + 500,
            9,
            What::Taken {
                socket: CLIENT,
                end,
                bytes: 20,
            },
        ),
    ]
}

#[test]
fn where_the_client_is_here_a_request_ends_when_it_received_the_answer() {
    let mut events = comes(100, 10, 10).to_vec();
    events.extend([receive(150, 10), transmit(180, 520)]);
    events.extend(taken(181, 520));
    events.insert(9, send(190, 520, Held::Not));
    // It has ended before the next one comes.
    events.extend(comes(900, 20, 10));
    events.push(receive(950, 20));
    let made = all(&events);
    assert_eq!(made.len(), 1);
    assert_eq!((made[0].transmitted, made[0].end()), (180 * US, 681 * US));
    let delivery = made[0].delivery.expect("the client took it");
    assert_eq!((delivery.tid, delivery.arrival.ready), (9, Some(183 * US)));
}

#[test]
fn a_client_may_have_its_answer_before_the_servers_send_returns() {
    let mut events = comes(100, 10, 10).to_vec();
    events.extend([receive(150, 10), transmit(180, 520)]);
    events.extend(taken(181, 520));
    events.push(send(700, 520, Held::Not));
    events.extend(comes(900, 20, 10));
    events.push(receive(950, 20));
    let made = all(&events);
    assert_eq!((made.len(), made[0].end()), (1, 681 * US));
}

#[test]
fn an_answer_whose_packet_was_not_seen_has_left_by_when_the_client_has_it() {
    let mut events = Vec::new();
    for (at, asks, answers) in [(1_000, 10, 520), (2_000, 20, 540), (3_000, 30, 560)] {
        events.extend(comes(at, asks, 10));
        events.push(receive(at + 50, asks));
        if answers != 540 {
            events.push(transmit(at + 60, answers));
            events.extend(taken(at + 61, answers).into_iter().take(3));
        }
        events.push(send(at + 70, answers, Held::Nagle));
        events.push(taken(at + 61, answers)[3]);
    }
    let ends: Vec<u64> = all(&events).iter().map(|r| r.end() / US).collect();
    assert_eq!(ends, [1_561, 2_561, 3_561]);
}

#[test]
fn a_connection_of_which_no_packet_was_seen_to_come_in_has_its_two_ends() {
    let mut events = comes(100, 10, 10)[..1].to_vec();
    events.extend([receive(150, 10), send(170, 520, Held::Not)]);
    events.push(taken(100, 520)[3]);
    let request = all(&events).remove(0);
    assert!(request.arrival.is_some() && request.delivery.is_some());
    assert_eq!((request.begin(), request.end()), (100 * US, 600 * US));
}

#[test]
fn answers_that_the_client_takes_in_one_end_together_and_each_has_its_own_packet() {
    let mut events = Vec::new();
    for (at, asks, answers) in [(100, 10, 520), (200, 20, 540)] {
        events.extend(comes(at, asks, 10));
        events.extend([receive(at + 50, asks), transmit(at + 60, answers)]);
        events.extend(taken(at + 61, answers).into_iter().take(3));
        events.push(send(at + 70, answers, Held::Not));
    }
    events.push(taken(300, 540)[3]);
    let made = all(&events);
    let ends: Vec<_> = made
        .iter()
        .map(|r| (r.end() / US, r.delivery.map(|d| d.arrival.packet / US)))
        .collect();
    assert_eq!(ends, [(800, Some(161)), (800, Some(261))]);
}

#[test]
fn what_comes_in_to_a_client_is_an_answer_and_no_request() {
    let mut events = comes(100, 10, 10).to_vec();
    events.extend([
        receive(150, 10),
        transmit(180, 520),
        send(190, 520, Held::Not),
    ]);
    assert_eq!(all(&events).len(), 1);
    if let What::Receive { connects, .. } = &mut events[5].2 {
        *connects = true;
    }
    assert_eq!(all(&events).len(), 0);
}
