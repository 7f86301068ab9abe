//! Workers that hand on what is left to do, as those of a `ForkJoinPool` that run actors.

use tailscope_signals::abi;
use tailscope_signals::slice::{Act, Role, Share, Shares};

use super::{LOCK, NETWORK, PREEMPTED, Script, parts};

const RUNQUEUE: usize = abi::TS_RUNQUEUE as usize;

const FROM_CLIENT: Act = Act::Receive(Role::Server);
const TO_CLIENT: Act = Act::Send(Role::Server);
const TO_SERVER: Act = Act::Send(Role::Client);
const FROM_SERVER: Act = Act::Receive(Role::Client);

impl Script {
    /// Three workers, and the first thread, which waits for data.
    fn actors() -> Self {
        let mut script = Self::default();
        script.block(1, 1, NETWORK).block(1, 2, LOCK);
        script.block(1, 3, LOCK).block(1, 4, LOCK);
        script
    }

    /// A request comes in, and a worker runs 30 later.
    fn request(&mut self, at: u64, socket: u64, worker: u32) -> &mut Self {
        self.run(at, 1, NETWORK, at)
            .on(at + 10, 1, FROM_CLIENT, socket, at)
            .wake(at + 15, 1, worker)
            .block(at + 20, 1, NETWORK)
            .run(at + 30, worker, LOCK, at + 15)
    }

    /// A worker hands its work to the next one.
    fn hands_on(&mut self, at: u64, by: u32, to: u32) -> &mut Self {
        self.wake(at, by, to)
            .run(at + 5, to, LOCK, at)
            .block(at + 10, by, LOCK)
    }

    /// The second worker makes a thread, and waits for a lock.
    fn makes(&mut self, at: u64, new: u32) -> &mut Self {
        self.entry(at, 2, Act::Spawn, |slice| slice.length = new)
            .parks_at(at + 10, 2, 0x5000)
            .run(at + 50, new, PREEMPTED, 0)
    }

    fn parks_at(&mut self, at: u64, worker: u32, futex: u64) -> &mut Self {
        self.entry(at, worker, Act::Block(LOCK), |slice| slice.since = futex)
    }
}

/// It hands a request to another, waits, is woken by that, and answers.
#[test]
fn a_worker_waits_for_something_to_do_at_either_of_two_condition_variables() {
    let mut script = Script::actors();
    for (at, futex) in [
        (1000, 0x1000),
        (3000, 0x1030),
        (5000, 0x1030),
        (7000, 0x1030),
    ] {
        script
            .request(at, 5, 2)
            .on(at + 100, 2, TO_CLIENT, 5, 0)
            .parks_at(at + 110, 2, futex);
    }
    script
        .request(9000, 5, 2)
        .wake(9100, 2, 3)
        .run(9105, 3, LOCK, 9100)
        .parks_at(9110, 2, 0x1030)
        .wake(9900, 3, 2)
        .run(9905, 2, LOCK, 9900)
        .block(9910, 3, LOCK)
        .on(10_000, 2, TO_CLIENT, 5, 0)
        .block(10_010, 2, LOCK);
    assert_eq!(parts(&script.finish()[4]), [1000, 0, 0, 0]);
}

#[test]
fn what_a_worker_did_before_it_handed_on_was_for_the_request() {
    let mut script = Script::actors();
    script
        .request(100, 5, 2)
        .hands_on(200, 2, 3)
        .on(300, 3, TO_SERVER, 9, 0)
        .block(310, 3, LOCK)
        .run(1300, 1, NETWORK, 1300)
        .on(1310, 1, FROM_SERVER, 9, 1300)
        .wake(1315, 1, 3)
        .block(1320, 1, NETWORK)
        .run(1320, 3, LOCK, 1315)
        .hands_on(1400, 3, 4)
        .hands_on(1500, 4, 2)
        .on(1600, 2, TO_CLIENT, 5, 0)
        .block(1610, 2, LOCK);
    assert_eq!(parts(&script.finish()[0]), [1500, 0, 990, 0]);
}

#[test]
fn a_thread_that_a_worker_makes_goes_on_with_its_work() {
    let mut script = Script::actors();
    script
        .request(100, 5, 2)
        .makes(200, 6)
        .on(300, 6, TO_SERVER, 9, 0)
        .block(310, 6, NETWORK)
        .run(1300, 6, NETWORK, 1300)
        .on(1310, 6, FROM_SERVER, 9, 1300)
        .wake(1410, 6, 2)
        .run_with(1411, 2, LOCK, 1201)
        .on(1500, 2, TO_CLIENT, 5, 0)
        .block(1510, 2, LOCK);
    let first = &script.finish()[0];
    assert_eq!(parts(first), [1400, 0, 990, 1]);
    assert_eq!(first.row.ns[RUNQUEUE], 50_000);
}

#[test]
fn a_thread_that_is_made_for_something_else_leaves_the_request_to_its_maker() {
    let lock = Share {
        cause: LOCK,
        ns: 900_000,
        n: 1,
        ..Share::default()
    };
    let mut script = Script::actors();
    script
        .request(100, 5, 2)
        .makes(200, 6)
        .entry(1110, 2, Act::Run(LOCK), |slice| {
            slice.since = 1_110_000;
            slice.shares = Shares::from_iter([lock]);
        })
        .on(1200, 2, TO_CLIENT, 5, 0)
        .block(1210, 2, LOCK);
    let first = &script.finish()[0];
    assert_eq!(parts(first), [1100, 0, 0, 0]);
    assert_eq!(first.row.ns[usize::from(LOCK)], 900_000);
}

#[test]
fn what_a_thread_did_that_ended_after_it_had_handed_on_was_for_the_request() {
    let mut script = Script::actors();
    script
        .request(100, 5, 2)
        .entry(200, 2, Act::Spawn, |slice| slice.length = 6)
        .block(210, 2, LOCK)
        .wake(900, 6, 3) // its last entry
        .run(905, 3, LOCK, 900)
        .on(1500, 3, TO_CLIENT, 5, 0)
        .block(1510, 3, LOCK);
    assert_eq!(parts(&script.finish()[0])[3], 0);
}

/// A worker that was woken for one request works. One that was woken for another answers the first, and then
/// the first worker answers `socket`.
fn taken_by_another(socket: u64) -> Script {
    let mut script = Script::actors();
    script
        .request(100, 5, 2)
        .request(2000, 6, 3)
        .on(2100, 3, TO_CLIENT, 5, 0)
        .block(2110, 3, LOCK)
        .on(2300, 2, TO_CLIENT, socket, 0)
        .block(2310, 2, LOCK);
    script
}

#[test]
fn a_request_that_was_under_way_has_not_queued() {
    let first = parts(&taken_by_another(9).finish()[0]);
    assert_eq!((first[0], first[1]), (2000, 0));
    assert!(first[3] > 1000, "{first:?}");
}

#[test]
fn a_request_has_queued_if_its_worker_turns_out_to_have_worked_for_another() {
    let first = parts(&taken_by_another(6).finish()[0]);
    assert!(first[1] > 1500, "{first:?}");
}
