//! Requests over HTTP/2, each on a stream.

use tailscope_signals::slice::{Act, Frame, Role};

use super::super::Missed;
use super::{LOCK, NETWORK, Script, parts};

/// A frame of a connection of HTTP/2, socket 5 as a server's and 9 as a client's.
fn frame(script: &mut Script, at: u64, act: Act, stream: u32, text: &[u8]) {
    let client = matches!(
        act,
        Act::StreamSend(Role::Client, _) | Act::StreamReceive(Role::Client, _)
    );
    script.entry(at, 1, act, |slice| {
        slice.socket = if client { 9 } else { 5 };
        slice.length = stream;
        slice.text = text.to_vec();
        slice.part = stream.div_ceil(2);
    });
}

const BEGINS: Frame = Frame {
    begins: true,
    ends: false,
    resets: false,
    more: false,
    cut: false,
};
const ENDS: Frame = Frame {
    begins: false,
    ends: true,
    ..BEGINS
};
const ASKS: Act = Act::StreamReceive(Role::Server, BEGINS);
const ANSWERS: Act = Act::StreamSend(Role::Server, ENDS);

/// `POST` and this path, which the connection's table then has.
fn headers(path: &str) -> Vec<u8> {
    [&[0x83, 0x44, path.len() as u8], path.as_bytes()].concat()
}

#[test]
fn each_stream_is_a_request_of_its_own_name() {
    let mut script = Script::default();
    frame(&mut script, 100, ASKS, 1, &headers("/shop.Cart/Add"));
    frame(&mut script, 110, ASKS, 3, &[0x83, 0xbe]);
    frame(&mut script, 300, ANSWERS, 3, &[]);
    frame(&mut script, 900, ANSWERS, 1, &[]);
    frame(&mut script, 910, ANSWERS, 7, &[]); // began before the recording
    let finished = script.finish();
    let walls: Vec<_> = finished.iter().map(|of| of.row.wall / 1000).collect();
    assert_eq!(walls, [800, 190]);
    let same = Some("POST /shop.Cart/Add");
    assert!(finished.iter().all(|of| of.name.as_deref() == same));
    assert_eq!(script.requests.missed, Missed::default());
}

#[test]
fn a_stream_waits_for_the_stream_that_it_has_begun() {
    let mut script = Script::default();
    frame(&mut script, 100, ASKS, 1, &[]);
    frame(&mut script, 110, ASKS, 3, &[]);
    frame(
        &mut script,
        120,
        Act::StreamSend(Role::Client, BEGINS),
        1,
        &[],
    );
    frame(
        &mut script,
        121,
        Act::StreamSend(Role::Client, BEGINS),
        3,
        &[],
    );
    script.block(130, 1, NETWORK).run(700, 1, NETWORK, 700);
    frame(
        &mut script,
        700,
        Act::StreamReceive(Role::Client, ENDS),
        3,
        &[],
    );
    frame(&mut script, 710, ANSWERS, 3, &[]);
    script.block(720, 1, NETWORK).run(900, 1, NETWORK, 900);
    frame(
        &mut script,
        900,
        Act::StreamReceive(Role::Client, ENDS),
        1,
        &[],
    );
    frame(&mut script, 910, ANSWERS, 1, &[]);
    let finished = script.finish();
    let waited: Vec<_> = finished.iter().map(|of| parts(of)[2]).collect();
    assert_eq!(waited, [780, 570]);
}

#[test]
fn a_call_is_not_of_a_request_that_ends_before_its_answer() {
    let mut script = Script::default();
    frame(&mut script, 100, ASKS, 1, &[]);
    frame(
        &mut script,
        110,
        Act::StreamSend(Role::Client, BEGINS),
        1,
        &[],
    );
    script.block(120, 1, NETWORK).run(500, 1, NETWORK, 500);
    frame(
        &mut script,
        500,
        Act::StreamReceive(Role::Client, ENDS),
        1,
        &[],
    );
    frame(&mut script, 505, ASKS, 3, &[]);
    frame(
        &mut script,
        510,
        Act::StreamSend(Role::Client, BEGINS),
        3,
        &[],
    ); // the third's
    frame(&mut script, 520, ANSWERS, 1, &[]);
    script.block(530, 1, NETWORK).run(900, 1, NETWORK, 900);
    frame(
        &mut script,
        900,
        Act::StreamReceive(Role::Client, ENDS),
        3,
        &[],
    );
    frame(&mut script, 910, ANSWERS, 3, &[]);
    let finished = script.finish();
    let waited: Vec<_> = finished.iter().map(|of| parts(of)[2]).collect();
    assert_eq!(waited, [380, 390]);
}

#[test]
fn what_is_open_where_frames_can_not_be_followed_is_counted() {
    let mut script = Script::default();
    for stream in [1, 3] {
        frame(&mut script, 100, ASKS, stream, &[]);
    }
    let received = true;
    script.on(150, 1, Act::Unframed { received }, 5, 0);
    frame(&mut script, 200, ASKS, 5, &[]);
    script.on(300, 1, Act::Close(Role::Server), 5, 0);
    assert_eq!(script.finish(), []);
    let missed = script.requests.missed;
    assert_eq!((missed.multiplexed, missed.unanswered), (2, 1));
}

/// A part of the headers of stream `stream`; `more`: it is not the last.
fn part(script: &mut Script, at: u64, stream: u32, part: u32, text: &[u8], more: bool) {
    let frame = Frame { more, ..BEGINS };
    let act = match more {
        true => Act::StreamReceive(Role::Server, frame),
        false => Act::Headers(Frame::default()),
    };
    script.entry(at, 1, act, |slice| {
        (slice.socket, slice.length, slice.part) = (5, stream, part);
        slice.text = text.to_vec();
    });
}

#[test]
fn headers_of_which_some_were_lost_give_no_name() {
    let block = headers("/a");
    for (parts, expected) in [
        ([1, 2], [Some("POST /a"), Some("POST /a")]),
        ([1, 3], [None, None]),
    ] {
        let mut script = Script::default();
        part(&mut script, 100, 1, parts[0], &block[..2], true);
        part(&mut script, 100, 1, parts[1], &block[2..], false);
        frame(&mut script, 110, ANSWERS, 1, &[]);
        script.entry(120, 1, ASKS, |slice| {
            (slice.socket, slice.length, slice.part) = (5, 3, parts[1] + 1);
            slice.text = vec![0x83, 0xbe];
        });
        frame(&mut script, 130, ANSWERS, 3, &[]);
        let finished = script.finish();
        let names: Vec<_> = finished.iter().map(|of| of.name.as_deref()).collect();
        assert_eq!(names, expected);
    }
}

#[test]
fn a_stream_is_one_request_until_its_answer_is_complete() {
    let mut script = Script::default();
    frame(&mut script, 100, ASKS, 1, &[]);
    frame(
        &mut script,
        110,
        Act::StreamSend(Role::Server, BEGINS),
        1,
        &[],
    );
    frame(
        &mut script,
        120,
        Act::StreamReceive(Role::Server, Frame::default()),
        1,
        &[],
    );
    let requests = &mut script.requests;
    assert_eq!(requests.advance(4_000_000_000), []);
    frame(&mut script, 5_000_000, ANSWERS, 1, &[]);
    frame(&mut script, 5_000_010, ASKS, 1, &[]); // trailers of one that has ended
    let finished = script.finish();
    assert_eq!(finished.len(), 1);
    assert_eq!(finished[0].row.wall, 4_999_900_000);
    assert_eq!(script.requests.missed, Missed::default());
}

#[test]
fn an_answer_whose_end_tcp_keeps_back_ends_when_it_is_passed_on() {
    let mut script = Script::default();
    for stream in [1, 3] {
        frame(&mut script, 100, ASKS, stream, &[]);
        script.entry(200, 1, ANSWERS, |slice| {
            (slice.socket, slice.length, slice.since) = (5, stream, 1);
        });
    }
    script.on(500, 1, Act::PassedOn, 5, 400);
    let walls: Vec<_> = script
        .finish()
        .iter()
        .map(|of| of.row.wall / 1000)
        .collect();
    assert_eq!(
        (walls, script.requests.missed.continued),
        (vec![300, 300], 0)
    );
}

#[test]
fn data_of_a_call_is_of_the_request_that_began_it() {
    let mut script = Script::default();
    for stream in [1, 3] {
        frame(&mut script, 100, ASKS, stream, &[]);
    }
    for stream in [1, 3] {
        frame(
            &mut script,
            110,
            Act::StreamSend(Role::Client, BEGINS),
            stream,
            &[],
        );
        frame(
            &mut script,
            110,
            Act::StreamSend(Role::Client, ENDS),
            stream,
            &[],
        );
    }
    script.block(120, 1, NETWORK).run(500, 1, NETWORK, 500);
    for (at, stream) in [(500, 1), (520, 3)] {
        let answers = Act::StreamReceive(Role::Client, ENDS);
        frame(&mut script, at, answers, stream, &[]);
        frame(&mut script, at + 10, ANSWERS, stream, &[]);
    }
    let finished = script.finish();
    assert!(
        finished
            .iter()
            .all(|of| !of.ambiguous && parts(of)[2] >= 370)
    );
}

#[test]
fn a_loop_that_wakes_a_helper_of_its_runtime_still_asks_for_all_of_its_requests() {
    let mut script = Script::default();
    script.block(50, 2, LOCK);
    for stream in [1, 3] {
        frame(&mut script, 100, ASKS, stream, &[]);
    }
    script.wake(110, 1, 2);
    for stream in [1, 3] {
        frame(
            &mut script,
            120,
            Act::StreamSend(Role::Client, BEGINS),
            stream,
            &[],
        );
    }
    script.block(130, 1, NETWORK).run(500, 1, NETWORK, 500);
    for stream in [1, 3] {
        let answers = Act::StreamReceive(Role::Client, ENDS);
        frame(&mut script, 500, answers, stream, &[]);
        frame(&mut script, 510, ANSWERS, stream, &[]);
    }
    let waited: Vec<_> = script.finish().iter().map(|of| parts(of)[2]).collect();
    assert_eq!(waited, [380, 370]);
}
