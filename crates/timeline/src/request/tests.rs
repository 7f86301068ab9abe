use tailscope_signals::event::Held;

use super::*;

mod any;
mod client;
mod connections;

const US: u64 = 1_000;
const CLIENT: Socket = Socket(1);
const SERVER: Socket = Socket(2);

fn all(events: &[(u64, u32, What)]) -> Vec<Request> {
    let mut requests = Requests::default();
    let mut made = Vec::new();
    for (us, tid, what) in events {
        let event = Event {
            at: us * US,
            tid: *tid,
            what: *what,
        };
        requests.take(0, &event, |request| made.push(request));
    }
    requests.finish(|request| made.push(request));
    made
}

fn comes(at: u64, end: u32, bytes: u16) -> [(u64, u32, What); 5] {
    let end = Sequence(end);
    let acknowledges = Sequence(0);
    [
        (
            at,
            9,
            What::Transmit {
                socket: CLIENT,
                end,
                bytes,
                since: 0,
            },
        ),
        (at + 1, 9, What::PacketIn { bytes: 100 }),
        (
            at + 2,
            9,
            What::TcpIn {
                socket: SERVER,
                end,
                acknowledges,
                bytes,
            },
        ),
        (at + 3, 9, What::Ready { socket: SERVER }),
        (at + 4, 9, What::Leave(OnTop::Softirq(3))),
    ]
}

fn receive(at: u64, end: u32) -> (u64, u32, What) {
    let end = Some(Sequence(end));
    (
        at,
        7,
        What::Receive {
            socket: SERVER,
            end,
            bytes: 10,
            connects: false,
        },
    )
}

fn send(at: u64, end: u32, held: Held) -> (u64, u32, What) {
    let end = Some(Sequence(end));
    (
        at,
        7,
        What::Send {
            socket: SERVER,
            end,
            bytes: 20,
            held,
        },
    )
}

fn transmit(at: u64, end: u32) -> (u64, u32, What) {
    (
        at,
        7,
        What::Transmit {
            socket: SERVER,
            end: Sequence(end),
            bytes: 20,
            since: 0,
        },
    )
}

#[test]
fn a_request_goes_from_the_clients_device_to_the_servers() {
    let mut events = comes(100, 10, 10).to_vec();
    events.extend([
        receive(150, 10),
        transmit(180, 520),
        send(190, 520, Held::Not),
    ]);
    let made = all(&events);
    assert_eq!(made.len(), 1);
    let request = &made[0];
    assert_eq!(request.begin(), 100 * US);
    assert_eq!(
        request.arrival.map(|a| (a.packet, a.tcp)),
        Some((101 * US, 102 * US))
    );
    assert_eq!(request.ready, Some(103 * US));
    // It left inside the send, which returned later.
    assert_eq!(
        (request.end(), request.last_send().at),
        (180 * US, 190 * US)
    );
}

#[test]
fn a_request_begins_with_the_call_in_which_a_client_on_this_machine_sent_it() {
    let mut events = comes(100, 10, 10).to_vec();
    if let What::Transmit { since, .. } = &mut events[0].2 {
        *since = 30_000;
    }
    events.extend([
        receive(150, 10),
        transmit(180, 520),
        send(190, 520, Held::Not),
    ]);
    let request = all(&events).remove(0);
    assert_eq!(request.begin(), 70 * US);
    assert_eq!(
        request.arrival.and_then(|a| a.asked),
        Some((70 * US, 9)),
        "the thread whose call it is"
    );
}

#[test]
fn a_small_second_piece_ends_the_request_when_the_acknowledgement_lets_it_go() {
    let mut events = comes(100, 10, 10).to_vec();
    events.extend([
        receive(150, 10),
        transmit(180, 520),
        send(190, 520, Held::Not),
        send(200, 540, Held::Nagle),
        (
            40_200,
            9,
            What::TcpIn {
                socket: SERVER,
                end: Sequence(10),
                acknowledges: Sequence(520),
                bytes: 0,
            },
        ),
        transmit(40_210, 540),
    ]);
    let made = all(&events);
    assert_eq!(made.len(), 1);
    assert_eq!(made[0].end(), 40_210 * US);
    assert_eq!(made[0].last_send().held, Held::Nagle);
    assert_eq!(made[0].acknowledged, Some(40_200 * US));
}

#[test]
fn an_answer_that_tcp_keeps_back_while_the_next_request_comes_is_told_when_it_leaves() {
    let mut events = comes(100, 10, 10).to_vec();
    events.extend([receive(150, 10), send(160, 520, Held::Nagle)]);
    events.extend(comes(200, 20, 10));
    events.extend([receive(250, 20), transmit(300, 520), transmit(310, 540)]);
    events.push(send(320, 540, Held::Not));
    let made = all(&events);
    assert_eq!(
        made.iter()
            .map(|r| (r.begin() / US, r.end() / US))
            .collect::<Vec<_>>(),
        [(100, 300), (200, 310)]
    );
}

#[test]
fn a_request_in_pieces_begins_with_its_first_packet() {
    let mut events = comes(100, 10, 10).to_vec();
    events.push(receive(150, 10));
    events.extend(comes(5_000, 30, 20));
    events.extend([
        receive(5_050, 30),
        transmit(5_100, 99),
        send(5_110, 99, Held::Not),
    ]);
    let made = all(&events);
    assert_eq!(made.len(), 1);
    assert_eq!((made[0].begin(), made[0].bytes), (100 * US, 20));
}

#[test]
fn a_socket_without_packets_begins_when_its_data_was_ready() {
    let events = [
        (10, 9, What::Ready { socket: SERVER }),
        (
            50,
            7,
            What::Receive {
                socket: SERVER,
                end: None,
                bytes: 5,
                connects: false,
            },
        ),
        (
            70,
            7,
            What::Send {
                socket: SERVER,
                end: None,
                bytes: 5,
                held: Held::Not,
            },
        ),
    ];
    let made = all(&events);
    assert_eq!((made[0].begin(), made[0].end()), (10 * US, 70 * US));
}

#[test]
fn an_answer_counts_as_whole_after_a_silence() {
    let mut requests = Requests::default();
    let mut made = 0;
    let mut events = comes(100, 10, 10).to_vec();
    events.extend([
        receive(150, 10),
        transmit(180, 520),
        send(190, 520, Held::Not),
    ]);
    events.push((1_500_000, 0, What::PacketIn { bytes: 1 }));
    for (us, tid, what) in events {
        let at = us * US;
        requests.take(0, &Event { at, tid, what }, |_| made += 1);
    }
    assert_eq!(made, 1);
}

#[test]
fn a_packet_that_was_lost_left_when_it_left_first() {
    let mut events = vec![comes(100, 10, 10)[0]];
    events.extend(comes(200_100, 10, 10));
    events.extend([
        receive(200_150, 10),
        transmit(200_180, 520),
        send(200_190, 520, Held::Not),
    ]);
    let made = all(&events);
    assert_eq!((made.len(), made[0].begin()), (1, 100 * US));
}

#[test]
fn a_packet_that_comes_again_is_no_part_of_the_next_request() {
    let mut events = comes(100, 10, 10).to_vec();
    events.extend([
        receive(150, 10),
        transmit(180, 520),
        send(190, 520, Held::Not),
    ]);
    events.extend(comes(400, 10, 10)); // its client has seen no acknowledgement
    events.extend(comes(700, 20, 10));
    events.extend([
        receive(750, 20),
        transmit(780, 540),
        send(790, 540, Held::Not),
    ]);
    let begins: Vec<u64> = all(&events).iter().map(Request::begin).collect();
    assert_eq!(begins, [100 * US, 700 * US]);
}

#[test]
fn an_answer_that_is_sent_again_left_when_it_left_first() {
    let mut events = comes(100, 10, 10).to_vec();
    events.extend([receive(150, 10), send(160, 520, Held::Not)]);
    // Given to TCP alone, and lost once on its way from the device.
    events.extend([transmit(180, 520), transmit(200_000, 520)]);
    assert_eq!(all(&events)[0].end(), 180 * US);
}

/// A request, whose answer goes on after these silences, in µs, while a recorder looks on.
fn with_silences(silences: &[u64]) -> Vec<Request> {
    let mut events = comes(100, 10, 10).to_vec();
    events.push(receive(150, 10));
    let (mut at, mut end) = (200, 520);
    for silence in [&[0], silences].concat() {
        let ticks = (at..at + silence).step_by(40_000);
        events.extend(ticks.map(|at| (at, 0, What::PacketIn { bytes: 1 })));
        at += silence;
        events.extend([transmit(at, end), send(at, end, Held::Not)]);
        (at, end) = (at + 10, end + 100);
    }
    // Without a client on this machine that has to take it.
    events.remove(0);
    all(&events)
}

#[test]
fn an_answer_that_goes_on_after_a_silence_is_amended() {
    let made = with_silences(&[500_000]);
    let told: Vec<_> = made.iter().map(|r| (r.end() / US, r.amends)).collect();
    assert_eq!(told, [(200, None), (500_210, Some(99 * US))]);
    assert!(made[1].is(&made[0]));
}

#[test]
fn a_server_that_sends_by_itself_is_said_to_and_its_answer_stays_as_it_is() {
    let made = with_silences(&[3_000_000, 2_000_000]);
    let told: Vec<_> = made.iter().map(|r| (r.end() / US, r.sent_again)).collect();
    assert_eq!(told, [(200, None), (200, Some(3_000_010 * US))]);
}

#[test]
fn a_request_is_the_same_after_it_was_written_and_read() {
    let mut events = comes(100, 10, 10).to_vec();
    events.extend([
        receive(150, 10),
        transmit(180, 520),
        send(190, 520, Held::Nagle),
    ]);
    let request = all(&events).remove(0);
    let text = serde_json::to_string(&request).expect("written");
    assert_eq!(
        serde_json::from_str::<Request>(&text).expect("read"),
        request
    );
}
