//! Requests over HTTP/2, each on a stream.

use tailscope_signals::slice::{Act, Frame, Role};

use super::super::Missed;
use super::{NETWORK, Script, parts};

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
    script.on(150, 1, Act::Unframed, 5, 0);
    frame(&mut script, 200, ASKS, 5, &[]);
    script.on(300, 1, Act::Close(Role::Server), 5, 0);
    assert_eq!(script.finish(), []);
    let missed = script.requests.missed;
    assert_eq!((missed.multiplexed, missed.unanswered), (2, 1));
}

#[test]
fn headers_of_which_some_were_lost_give_no_name() {
    let mut script = Script::default();
    let more = Frame {
        more: true,
        ..BEGINS
    };
    let block = headers("/a");
    frame(
        &mut script,
        100,
        Act::StreamReceive(Role::Server, more),
        1,
        &block[..2],
    );
    script.numbers[1] += 1; // an entry was lost
    script.entry(101, 1, Act::Headers(Frame::default()), |slice| {
        slice.socket = 5;
        slice.text = block[2..].to_vec();
    });
    frame(&mut script, 110, ANSWERS, 1, &[]);
    frame(&mut script, 120, ASKS, 3, &[0x83, 0xbe]);
    frame(&mut script, 130, ANSWERS, 3, &[]);
    let names: Vec<_> = script.finish().into_iter().map(|of| of.name).collect();
    assert_eq!(names, [None, None]);
}
