//! Requests that a thread leaves where they are although it has nothing to do, as a server that slows down
//! its clients does. They wait for no thread.

use tailscope_signals::abi;
use tailscope_signals::slice::{Act, Role};

use super::{Finished, NETWORK, Script, parts};

const ASKED: Act = Act::Receive(Role::Server);
const ANSWERS: Act = Act::Send(Role::Server);

/// A loop that has answered a request on socket 5, and waits since 200 or later.
fn answered(at: u64) -> Script {
    let mut script = Script::default();
    script
        .block(1, 1, NETWORK)
        .run(100, 1, NETWORK, 100)
        .on(110, 1, ASKED, 5, 100)
        .on(at, 1, ANSWERS, 5, 0);
    script
}

/// The next request on socket 5: it could be received from 1000 on.
fn received(script: &mut Script, at: u64, tid: u32) -> Finished {
    script
        .on(at, tid, ASKED, 5, 1000)
        .on(at + 20, tid, ANSWERS, 5, 0);
    let finished = script.finish();
    let of = finished.into_iter().find(|of| of.row.begin == 1_000_000);
    of.expect("there")
}

fn slept(of: &Finished) -> u64 {
    of.row.ns[abi::TS_SLEEP as usize] / 1000
}

#[test]
fn what_a_thread_leaves_while_it_is_idle_waits_for_no_thread() {
    let mut script = answered(150);
    script
        .block(200, 1, NETWORK)
        .run(5000, 1, NETWORK, 5000)
        .on(5010, 1, ASKED, 6, 5000)
        .on(5510, 1, ANSWERS, 6, 0)
        .timer(5520, 9000, 1);
    let of = received(&mut script, 9020, 1);
    // Until 5000 nothing shows for what it waits; then for socket 6, and for the timer of the loop.
    assert_eq!(parts(&of)[..2], [8040, 520]);
    assert_eq!((slept(&of), parts(&of)[3]), (3480, 4000));
}

#[test]
fn what_another_thread_received_before_may_have_waited_for_that_one() {
    let mut script = answered(150);
    script
        .block(200, 1, NETWORK)
        .block(300, 2, NETWORK)
        .run(5000, 2, NETWORK, 5000);
    let of = received(&mut script, 5010, 2);
    assert_eq!(parts(&of), [4030, 4000, 0, 0]);
}

#[test]
fn a_thread_that_has_asked_another_server_has_something_to_do() {
    let mut script = answered(150);
    script
        .on(160, 1, ASKED, 6, 150)
        .on(180, 1, Act::Send(Role::Client), 9, 0)
        .block(200, 1, NETWORK)
        .run(5000, 1, NETWORK, 5000)
        .on(5010, 1, Act::Receive(Role::Client), 9, 5000)
        .on(5020, 1, ANSWERS, 6, 0);
    let of = received(&mut script, 5030, 1);
    assert_eq!(parts(&of)[1], 4030);
}

#[test]
fn a_request_waits_for_the_one_before_it_on_its_connection() {
    let mut script = answered(150);
    script
        .on(200, 1, ASKED, 5, 190)
        .timer(210, 4000, 1)
        .on(4010, 1, ANSWERS, 5, 0)
        .block(4020, 1, NETWORK)
        .run(9000, 1, NETWORK, 9000);
    let of = received(&mut script, 9010, 1);
    let [wall, queue, _, unknown] = parts(&of);
    assert_eq!((wall, queue, unknown), (8030, 3020, 4980));
}
