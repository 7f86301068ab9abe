//! Messages that a server pushes, and that their clients confirm: nobody answers that.

use super::pushes::{ASKED, SENDS, asks, receives};
use super::{NETWORK, Script};

/// MQTT's PUBACK.
const PUBACK: &[u8] = &[0x40, 2, 0, 9];
/// AMQP's basic.ack, in a frame.
const BASIC_ACK: &[u8] = &[1, 0, 1, 0, 0, 0, 13, 0, 60, 0, 80, 0, 0];

/// From this moment on, 1000 apart, client 5 publishes and has its answer first. The message goes to a client
/// on socket 6, which confirms it with these bytes; nobody answers that.
fn confirms_by(
    script: &mut Script,
    from: u64,
    bytes: &[u8],
    mut between: impl FnMut(&mut Script, u64),
) {
    for at in (0..40).map(|round| from + round * 1000) {
        receives(script, at, 5)
            .on(at + 20, 1, SENDS, 5, 0)
            .on(at + 30, 1, SENDS, 6, 0)
            .block(at + 40, 1, NETWORK);
        script
            .run(at + 100, 1, NETWORK, at + 100)
            .entry(at + 110, 1, ASKED, |slice| {
                (slice.socket, slice.length, slice.since) = (6, 10, (at + 100) * 1000);
                slice.text = bytes.to_vec();
            })
            .block(at + 120, 1, NETWORK);
        between(script, at + 200);
    }
}

/// The same with bytes of a protocol that is not known.
fn confirms(script: &mut Script, from: u64, between: impl FnMut(&mut Script, u64)) {
    confirms_by(script, from, &[], between);
}

#[test]
fn nobody_answers_when_a_client_confirms_what_was_pushed() {
    let mut script = Script::default();
    asks(&mut script, 100, 6);
    confirms(&mut script, 1000, |_, _| ());
    asks(&mut script, 200_100, 6);
    let finished = script.finish();
    let (published, walls): (Vec<_>, Vec<_>) = finished
        .iter()
        .map(|of| (of.row.begin / 1000 % 1000, of.row.wall / 1000))
        .partition(|(begin, _)| *begin == 0);
    assert!(published.iter().all(|(_, wall)| *wall == 20));
    let walls: Vec<_> = walls.into_iter().map(|(_, wall)| wall).collect();
    // Up to when it is known, the next message looks like the answer.
    assert_eq!(walls.len(), 24);
    assert_eq!(walls[..2], [930, 930]);
    assert_eq!(walls[23], 40);
}

#[test]
fn a_client_with_messages_may_also_have_answers_that_come_late() {
    let mut script = Script::default();
    asks(&mut script, 100, 6);
    confirms(&mut script, 1000, |script, at| {
        script
            .run(at, 1, NETWORK, at)
            .on(at + 10, 1, SENDS, 6, 0)
            .block(at + 20, 1, NETWORK);
    });
    assert_eq!(script.finish().len(), 81);
}

/// How many rows the client on socket 6 has that confirms.
fn rows_of_client(script: &mut Script) -> usize {
    let of_client = |begin: u64| begin / 1000 % 1000 == 100;
    let finished = script.finish();
    let rows = finished.iter().filter(|of| of_client(of.row.begin));
    rows.count()
}

#[test]
fn the_first_message_may_come_long_after_what_its_client_asked_for() {
    let mut script = Script::default();
    asks(&mut script, 100, 6);
    assert_eq!(script.requests.advance(2_900_000_000).len(), 1);
    confirms(&mut script, 3_000_000, |_, _| ());
    // What it confirms, up to when it is known that nobody answers that.
    assert_eq!(rows_of_client(&mut script), 23);
}

#[test]
fn known_bytes_say_that_a_client_confirms_also_where_it_is_older_than_the_recording() {
    for bytes in [PUBACK, &PUBACK[..1], BASIC_ACK, b"ACK\nid:7\n"] {
        let mut script = Script::default();
        confirms_by(&mut script, 1000, bytes, |_, _| ());
        assert_eq!(rows_of_client(&mut script), 23);
    }
}

#[test]
fn a_long_poll_may_have_begun_before_the_recording() {
    // Its client asks again at once, and has each message as its answer.
    let mut script = Script::default();
    confirms(&mut script, 1000, |_, _| ());
    assert_eq!(rows_of_client(&mut script), 39);
}
