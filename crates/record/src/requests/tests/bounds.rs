//! Where much is under way: what is remembered stays within its bounds, and what still matters stays.

use tailscope_signals::slice::{Act, Role};

use super::super::item::Item;
use super::super::request::Request;
use super::{NETWORK, Script, parts};

const RECEIVES: Act = Act::Receive(Role::Server);
const ANSWERS: Act = Act::Send(Role::Server);

/// In ms and ns.
fn advance(script: &mut Script, ms: u64) -> Vec<u64> {
    let finished = script.requests.advance(ms * 1_000_000);
    finished.iter().map(|one| parts(one)[0]).collect()
}

#[test]
fn connections_to_other_servers_are_forgotten_when_they_are_closed() {
    let mut script = Script::default();
    for socket in 100..200 {
        script
            .on(socket, 1, Act::Send(Role::Client), socket, 0)
            .on(socket, 1, Act::Receive(Role::Client), socket, socket)
            .on(socket, 1, Act::Close(Role::Client), socket, 0);
    }
    advance(&mut script, 4);
    assert!(script.requests.sockets.len() >= 100);
    advance(&mut script, 5000);
    assert_eq!(script.requests.sockets.len(), 0);
}

#[test]
fn too_many_idle_connections_cost_no_request_that_is_under_way() {
    let mut script = Script::default();
    script.on(100, 1, RECEIVES, 5, 90);
    for socket in 1000..100_000 {
        script.on(200, 1, Act::Socket(Role::Client), socket, 0);
    }
    advance(&mut script, 10_000);
    assert!(script.requests.sockets.len() <= 65_536);
    script.on(12_000_090, 1, ANSWERS, 5, 0);
    assert_eq!(advance(&mut script, 20_000), [12_000_000]);
    assert_eq!(script.requests.missed.forgotten, 0);
}

#[test]
fn much_work_of_nobody_costs_no_slow_request() {
    let mut script = Script::default();
    script.on(100, 1, RECEIVES, 5, 90);
    advance(&mut script, 5000);
    for at in 0..80_000 {
        script.requests.works.begin(None, 4_000_000_000 + at);
    }
    advance(&mut script, 6000);
    assert!(script.requests.works.len() <= 65_536);
    script.on(12_000_090, 1, ANSWERS, 5, 0);
    assert_eq!(advance(&mut script, 20_000), [12_000_000]);
    assert_eq!(script.requests.missed.forgotten, 0);
}

#[test]
fn of_too_many_requests_the_oldest_are_lost_and_counted() {
    let mut script = Script::default();
    for at in 0..70_000 {
        script.requests.works.begin(Some(Request::default()), at);
    }
    advance(&mut script, 1000);
    let left = script.requests.works.len();
    assert!(left <= 65_536);
    let lost = script.requests.missed.forgotten;
    assert_eq!(lost + left as u64, 70_000);
}

#[test]
fn what_a_process_had_open_when_it_ended_has_no_answer() {
    let mut script = Script::default();
    script.on(100, 1, RECEIVES, 5, 90).block(200, 1, NETWORK);
    advance(&mut script, 2000);
    script.requests.forget_process(7); // it runs another program, and may still answer
    advance(&mut script, 5000);
    assert_eq!(script.requests.missed.unanswered, 0);
    script.requests.end_process(7);
    advance(&mut script, 7000);
    advance(&mut script, 9000);
    assert_eq!(script.requests.missed.unanswered, 1);
}

#[test]
fn a_held_end_of_an_answer_is_waited_for() {
    let mut script = Script::default();
    script
        .on(100, 1, RECEIVES, 5, 90)
        .entry(200, 1, ANSWERS, |slice| {
            (slice.socket, slice.length, slice.since) = (5, 10, 1);
        });
    assert!(advance(&mut script, 8000).is_empty());
    script.entry(9_000_000, 1, Act::PassedOn, |slice| {
        (slice.socket, slice.since) = (5, 7_000_090_000);
    });
    assert_eq!(advance(&mut script, 10_000), [7_000_000]);
}

#[test]
fn requests_of_too_many_parts_are_forgotten_and_counted() {
    let mut script = Script::default();
    let part = |at| Item::Queue {
        from: at,
        to: at + 1,
        behind: None,
    };
    script.on(100, 1, RECEIVES, 5, 90);
    advance(&mut script, 10);
    for _ in 0..400 {
        let work = script
            .requests
            .works
            .begin(Some(Request::default()), 1_000_000);
        let work = script.requests.works.get_mut(work).expect("it has begun");
        (0..3000).for_each(|at| work.add(part(at)));
    }
    advance(&mut script, 1500);
    let items = script.requests.works.items();
    assert!((370_000..=375_000).contains(&items), "{items}");
    assert!((275..=276).contains(&script.requests.missed.forgotten));
    script.on(2_000_090, 1, ANSWERS, 5, 0);
    assert_eq!(advance(&mut script, 6_000), [2_000_000]);
}
