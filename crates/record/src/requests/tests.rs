//! Requests from made-up entries: what threads of well-known kinds of servers do.

use tailscope_signals::abi;
use tailscope_signals::slice::{Act, Role, Share, Shares, Slice};

use super::{Finished, Requests};

mod actors;
mod bounds;
mod confirmations;
mod datagrams;
mod handed;
mod left;
mod losses;
mod pools;
mod pushes;
mod queues;
mod streams;
mod timers;
mod waits;

const LOCK: u8 = abi::TS_LOCK as u8;
const NETWORK: u8 = abi::TS_NETWORK as u8;
const PREEMPTED: u8 = abi::TS_PREEMPTED as u8;

/// Entries of threads, in microseconds.
#[derive(Default)]
struct Script {
    requests: Requests,
    numbers: [u32; 8],
}

impl Script {
    fn entry(&mut self, at: u64, tid: u32, act: Act, with: impl FnOnce(&mut Slice)) -> &mut Self {
        self.numbers[tid as usize] += 1;
        let mut slice = Slice {
            at: at * 1000,
            tid,
            pid: 7,
            number: self.numbers[tid as usize],
            act,
            ..Slice::default()
        };
        with(&mut slice);
        self.requests.take(&slice);
        self
    }

    fn on(&mut self, at: u64, tid: u32, act: Act, socket: u64, since: u64) -> &mut Self {
        self.entry(at, tid, act, |slice| {
            slice.socket = socket;
            slice.length = 10;
            slice.since = since * 1000;
        })
    }

    fn block(&mut self, at: u64, tid: u32, cause: u8) -> &mut Self {
        self.entry(at, tid, Act::Block(cause), |slice| {
            slice.since = if cause == LOCK { 0x1000 } else { 0 };
        })
    }

    fn run(&mut self, at: u64, tid: u32, cause: u8, woken: u64) -> &mut Self {
        self.entry(at, tid, Act::Run(cause), |slice| slice.since = woken * 1000)
    }

    /// The end of a wait of which the meter was charged that much.
    fn run_with(&mut self, at: u64, tid: u32, cause: u8, us: u64) -> &mut Self {
        self.entry(at, tid, Act::Run(cause), |slice| {
            slice.since = at * 1000;
            slice.shares = Shares::from_iter([Share {
                cause,
                ns: us * 1000,
                n: 1,
                ..Share::default()
            }]);
        })
    }

    fn wake(&mut self, at: u64, tid: u32, woken: u32) -> &mut Self {
        self.entry(at, tid, Act::Wake(LOCK), |slice| slice.length = woken)
    }

    fn finish(&mut self) -> Vec<Finished> {
        let mut finished = self.requests.finish();
        finished.sort_by_key(|f| f.row.begin);
        finished
    }
}

/// Wall, queue, downstream and unknown, in microseconds.
fn parts(finished: &Finished) -> [u64; 4] {
    let row = &finished.row;
    [
        row.wall,
        row.queue_ns,
        row.request.downstream_ns,
        row.request.unknown_ns,
    ]
    .map(|ns| ns / 1000)
}

#[test]
fn a_loop_that_asks_a_backend_works_between_its_waits() {
    let mut script = Script::default();
    script
        .block(1, 1, NETWORK)
        .run(100, 1, NETWORK, 100)
        .on(110, 1, Act::Receive(Role::Server), 5, 100)
        .on(150, 1, Act::Send(Role::Client), 9, 0)
        .block(160, 1, NETWORK)
        .run(500, 1, NETWORK, 500)
        .on(510, 1, Act::Receive(Role::Client), 9, 500)
        .on(600, 1, Act::Send(Role::Server), 5, 0);
    let finished = script.finish();
    assert_eq!(finished.len(), 1);
    assert_eq!(parts(&finished[0]), [500, 0, 340, 0]);
    assert!(!finished[0].ambiguous);
}

#[test]
fn requests_that_a_loop_receives_together_wait_for_each_other() {
    let mut script = Script::default();
    script
        .block(1, 1, NETWORK)
        .run(100, 1, NETWORK, 100)
        .on(110, 1, Act::Receive(Role::Server), 5, 100)
        .on(120, 1, Act::Receive(Role::Server), 6, 100)
        .on(220, 1, Act::Send(Role::Client), 9, 0)
        .on(320, 1, Act::Send(Role::Client), 10, 0)
        .block(320, 1, NETWORK)
        .run(1000, 1, NETWORK, 1000)
        .on(1010, 1, Act::Receive(Role::Client), 10, 1000)
        .on(1020, 1, Act::Receive(Role::Client), 9, 1000)
        .on(1120, 1, Act::Send(Role::Server), 6, 0)
        .on(1220, 1, Act::Send(Role::Server), 5, 0);
    let finished = script.finish();
    let mut found: Vec<_> = finished.iter().map(parts).collect();
    found.sort_unstable();
    // The second waits from 100 to 220, and its answer comes first.
    assert_eq!(found[0], [1020, 120, 680, 0]);
    assert_eq!(found[1][0], 1120);
    assert_eq!(found[1][2], 780);
    assert_eq!(found[1][3], 0);
}

#[test]
fn a_pool_of_workers_is_handed_requests_by_wake_ups() {
    let mut script = Script::default();
    script
        .block(1, 1, NETWORK)
        .block(1, 2, LOCK)
        .run(100, 1, NETWORK, 100)
        .on(110, 1, Act::Receive(Role::Server), 5, 100)
        .wake(115, 1, 2)
        .block(120, 1, NETWORK)
        .run(130, 2, LOCK, 115)
        .on(430, 2, Act::Send(Role::Server), 5, 0)
        .block(440, 2, LOCK);
    let finished = script.finish();
    assert_eq!(parts(&finished[0]), [330, 0, 0, 0]);
    assert_eq!(finished[0].row.tid, 2);
}

#[test]
fn a_worker_that_is_busy_lets_the_next_request_queue() {
    let mut script = Script::default();
    script
        .block(1, 1, NETWORK)
        .block(1, 2, LOCK)
        .run(100, 1, NETWORK, 100)
        .on(110, 1, Act::Receive(Role::Server), 5, 100)
        .wake(115, 1, 2)
        .block(120, 1, NETWORK)
        .run(130, 2, LOCK, 115)
        .run(200, 1, NETWORK, 200)
        .on(210, 1, Act::Receive(Role::Server), 6, 200)
        .block(220, 1, NETWORK)
        .on(430, 2, Act::Send(Role::Server), 5, 0)
        .on(730, 2, Act::Send(Role::Server), 6, 0)
        .block(740, 2, LOCK);
    let finished = script.finish();
    assert_eq!(parts(&finished[0]), [330, 0, 0, 0]);
    assert_eq!(parts(&finished[1]), [530, 210, 0, 0]);
}

#[test]
fn a_request_that_another_ones_worker_takes_has_queued_until_then() {
    let mut script = Script::default();
    script
        .block(1, 1, NETWORK)
        .block(1, 2, LOCK)
        .block(1, 3, LOCK)
        .run(100, 1, NETWORK, 100)
        .on(110, 1, Act::Receive(Role::Server), 5, 100)
        .wake(115, 1, 2)
        .block(120, 1, NETWORK)
        .run(800, 1, NETWORK, 800)
        .on(810, 1, Act::Receive(Role::Server), 6, 800)
        .wake(815, 1, 3)
        .block(820, 1, NETWORK)
        .run(830, 3, LOCK, 815)
        .run(850, 2, LOCK, 115)
        .on(1130, 3, Act::Send(Role::Server), 5, 0)
        .on(1150, 2, Act::Send(Role::Server), 6, 0);
    let finished = script.finish();
    assert_eq!(parts(&finished[0]), [1030, 695, 0, 0]);
    assert_eq!(parts(&finished[1])[0], 350);
    assert_eq!(parts(&finished[1])[3], 0);
}

#[test]
fn a_switch_that_is_not_reported_is_known_by_the_causes_of_what_follows() {
    let share = |cause, us: u64| Share {
        cause,
        ns: us * 1000,
        n: 1,
        ..Share::default()
    };
    let mut script = Script::default();
    script
        .block(1, 1, NETWORK)
        .run(100, 1, NETWORK, 100)
        .on(110, 1, Act::Receive(Role::Server), 5, 100)
        .on(150, 1, Act::Send(Role::Client), 9, 0)
        .block(160, 1, NETWORK)
        .entry(510, 1, Act::Receive(Role::Client), |slice| {
            (slice.socket, slice.length, slice.since) = (9, 10, 450_000);
            let runqueue = share(abi::TS_RUNQUEUE as u8, 50);
            slice.shares = Shares::from_iter([runqueue, share(NETWORK, 290)]);
        })
        .on(600, 1, Act::Send(Role::Server), 5, 0);
    let finished = script.finish();
    assert_eq!(parts(&finished[0]), [500, 0, 290, 0]);
    assert_eq!(finished[0].row.ns[abi::TS_NETWORK as usize], 0);
    assert_eq!(finished[0].row.ns[abi::TS_RUNQUEUE as usize], 50_000);
}

#[test]
fn after_a_loss_nothing_is_inferred_across_it() {
    let mut script = Script::default();
    script.block(1, 1, NETWORK).run(100, 1, NETWORK, 100).on(
        110,
        1,
        Act::Receive(Role::Server),
        5,
        100,
    );
    script.numbers[1] += 3;
    script.on(500, 1, Act::Send(Role::Server), 5, 0);
    let finished = script.finish();
    assert_eq!(finished[0].row.wall, 400_000);
    assert_eq!(finished[0].row.request.unknown_ns, 390_000);
}

#[test]
fn an_answer_that_tcp_keeps_back_ends_when_it_was_passed_on() {
    let nagle = abi::TS_HELD_NAGLE as u8;
    let answered = |then: &dyn Fn(&mut Script)| {
        let mut script = Script::default();
        script
            .block(1, 1, NETWORK)
            .run(100, 1, NETWORK, 100)
            .on(110, 1, Act::Receive(Role::Server), 5, 100)
            .on(200, 1, Act::Send(Role::Server), 5, 0)
            .entry(300, 1, Act::Send(Role::Server), |slice| {
                (slice.socket, slice.since) = (5, u64::from(nagle));
            });
        then(&mut script);
        (script.finish(), script.requests.missed.continued)
    };
    let (finished, continued) = answered(&|script| {
        script.on(50_000, 1, Act::PassedOn, 5, 40_300).on(
            50_000,
            1,
            Act::Receive(Role::Server),
            5,
            49_990,
        );
    });
    assert_eq!(parts(&finished[0])[0], 40_200);
    let row = &finished[0].row;
    assert_eq!(row.request.tcp_ns, 40_000_000);
    assert_eq!(row.request.tcp_why, u16::from(nagle));
    assert_eq!(continued, 0);
    // Nothing shows until when: it took longer than its row says.
    assert_eq!(answered(&|_| {}).1, 1);
}

#[test]
fn what_came_while_the_process_was_stopped_waited_for_its_end() {
    let stopped = abi::TS_STOPPED as u8;
    let mut script = Script::default();
    script
        .block(1, 1, NETWORK)
        .block(1, 2, LOCK)
        .run(50, 1, NETWORK, 50)
        .run(50, 2, LOCK, 50)
        .block(51, 1, stopped)
        .block(51, 2, stopped)
        .run_with(450, 1, stopped, 399)
        .run_with(450, 2, stopped, 399)
        .block(455, 2, LOCK)
        .wake(460, 1, 2)
        .run(465, 2, LOCK, 460)
        .on(470, 2, Act::Receive(Role::Server), 5, 100)
        .on(500, 2, Act::Send(Role::Server), 5, 0);
    let finished = script.finish();
    assert_eq!(finished.len(), 1);
    let stopped_us = finished[0].row.ns[abi::TS_STOPPED as usize] / 1000;
    assert_eq!(stopped_us, 350);
    assert!(finished[0].row.queue_ns / 1000 <= 20);
}

/// What a connection with TLS receives: a record of this type.
fn record(script: &mut Script, at: u64, kind: u8) -> &mut Script {
    script.entry(at, 1, Act::Receive(Role::Server), |slice| {
        (slice.socket, slice.length, slice.text) = (5, 5, vec![kind, 3, 3, 0, 9]);
    })
}

fn decrypts<'s>(script: &'s mut Script, at: u64, text: &str) -> &'s mut Script {
    script.entry(at, 1, Act::Plain, |slice| {
        (slice.socket, slice.text) = (5, text.as_bytes().to_vec());
    })
}

#[test]
fn requests_over_tls_are_named_by_what_is_decrypted_and_handshakes_are_none() {
    const HANDSHAKE: u8 = 0x16;
    const DATA: u8 = 0x17;
    let mut script = Script::default();
    for at in [100, 1100] {
        record(&mut script, at, HANDSHAKE).on(at + 10, 1, Act::Send(Role::Server), 5, 0);
        record(&mut script, at + 20, DATA);
        decrypts(&mut script, at + 22, "GET /a HTTP/1.1").on(
            at + 30,
            1,
            Act::Send(Role::Server),
            5,
            0,
        );
    }
    record(&mut script, 1200, DATA); // an alert: nothing is decrypted, and nobody answers
    let finished = script.finish();
    let names: Vec<_> = finished.iter().map(|of| of.name.as_deref()).collect();
    // That there is a handshake is known from the first that is decrypted on.
    assert_eq!(names, [None, Some("GET /a"), Some("GET /a")]);
    let missed = script.requests.missed;
    assert_eq!(
        (missed.encrypted, missed.handshakes, missed.unanswered),
        (1, 2, 0)
    );
}

#[test]
fn requests_that_overlap_inside_of_tls_are_counted() {
    let mut script = Script::default();
    record(&mut script, 100, 0x17);
    decrypts(&mut script, 101, "PRI * HTTP/2.0").on(110, 1, Act::Send(Role::Server), 5, 0);
    record(&mut script, 120, 0x17);
    decrypts(&mut script, 121, "\0\0\x04\x01").on(130, 1, Act::Send(Role::Server), 5, 0);
    assert_eq!(script.finish().len(), 2);
    assert_eq!(script.requests.missed.encrypted, 2);
}

#[test]
fn a_handshake_that_the_client_ends_is_no_part_of_the_request_behind_it() {
    let mut script = Script::default();
    record(&mut script, 100, 0x16);
    script
        .block(150, 1, NETWORK)
        .run(5000, 1, NETWORK, 4990)
        .entry(5010, 1, Act::Receive(Role::Server), |slice| {
            (slice.socket, slice.length, slice.since) = (5, 5, 4_990_000);
        });
    decrypts(&mut script, 5015, "GET /a HTTP/1.1").on(5030, 1, Act::Send(Role::Server), 5, 0);
    let finished = script.finish();
    assert_eq!((finished.len(), finished[0].row.wall), (1, 40_000));
}
