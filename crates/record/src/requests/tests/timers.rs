//! Requests that wait for a timer.

use tailscope_kernel::BY_INTERRUPT;
use tailscope_signals::abi;
use tailscope_signals::slice::{Act, Role, Share, Shares};

use super::{LOCK, NETWORK, Script, parts};

mod threads;

/// The number of a thread to blame.
const THREAD: u16 = 0x1000;
const SLEEP: usize = abi::TS_SLEEP as usize;
const TO_CLIENT: Act = Act::Send(Role::Server);
const FROM_CLIENT: Act = Act::Receive(Role::Server);

impl Script {
    /// A wait for sockets since then, which a timer ends.
    pub(super) fn timer(&mut self, since: u64, at: u64, tid: u32) -> &mut Self {
        self.entry(since, tid, Act::Block(NETWORK), |slice| {
            slice.since = (at - since) * 1000
        })
        .interrupt(since, at, tid, true)
    }

    /// The same where the timer is not the wait's own, which would go on up to that time: a timerfd.
    fn timerfd(&mut self, since: u64, at: u64, tid: u32, until: u64) -> &mut Self {
        self.entry(since, tid, Act::Block(NETWORK), |slice| {
            slice.since = (until - since) * 1000
        })
        .interrupt(since, at, tid, true)
    }

    /// The same which was to last at most that long, and which another interrupt ends.
    fn interrupted(&mut self, since: u64, at: u64, tid: u32, most: u64) -> &mut Self {
        self.entry(since, tid, Act::Block(NETWORK), |slice| {
            slice.since = most * 1000
        })
        .interrupt(since, at, tid, false)
    }

    /// A wait for a condition variable since then, which times out.
    fn lock_timer(&mut self, since: u64, at: u64, tid: u32) -> &mut Self {
        self.block(since, tid, LOCK)
            .ended(LOCK, (since, at), tid, true)
    }

    fn interrupt(&mut self, since: u64, at: u64, tid: u32, by_timer: bool) -> &mut Self {
        self.ended(NETWORK, (since, at), tid, by_timer)
    }

    fn ended(&mut self, cause: u8, (since, at): (u64, u64), tid: u32, by_timer: bool) -> &mut Self {
        self.entry(at, tid, Act::Run(cause), |slice| {
            slice.since = at * 1000;
            slice.length = by_timer.into();
            slice.shares = Shares::from_iter([Share {
                cause,
                who: BY_INTERRUPT,
                n: 1,
                ns: (at - since) * 1000,
            }]);
        })
    }
}

/// An event loop that has received a request, which came at 100.
fn begun() -> Script {
    let mut script = Script::default();
    script
        .block(1, 1, NETWORK)
        .run(100, 1, NETWORK, 100)
        .on(110, 1, FROM_CLIENT, 5, 100);
    script
}

/// All of its time asleep, downstream and unknown, of the request that came first.
fn found(script: &mut Script) -> [u64; 3] {
    let first = &script.finish()[0];
    let [_, _, downstream, unknown] = parts(first);
    [first.row.ns[SLEEP] / 1000, downstream, unknown]
}

#[test]
fn a_loop_with_one_request_sleeps_for_it() {
    let mut script = begun();
    script.timer(120, 1000, 1).on(1050, 1, TO_CLIENT, 5, 0);
    assert_eq!(found(&mut script), [880, 0, 0]);
}

/// A loop that answers another request in between.
fn answers_another() -> Script {
    let mut script = begun();
    script
        .block(120, 1, NETWORK)
        .run(500, 1, NETWORK, 500)
        .on(510, 1, FROM_CLIENT, 6, 500)
        .on(550, 1, TO_CLIENT, 6, 0);
    script
}

#[test]
fn an_interrupt_before_the_time_is_over_is_no_timer() {
    // The client has made room, for example.
    for most in [0, 5000] {
        let mut script = begun();
        let last = script
            .interrupted(120, 1000, 1, most)
            .on(1050, 1, TO_CLIENT, 5, 0);
        let first = &last.finish()[0];
        assert_eq!(first.row.ns[SLEEP], 0);
        assert_eq!(first.row.ns[usize::from(NETWORK)] / 1000, 880);
    }
}

#[test]
fn a_request_that_another_may_have_asked_for_has_no_timer() {
    let mut script = begun();
    script
        .on(115, 1, FROM_CLIENT, 6, 100)
        .on(118, 1, Act::Send(Role::Client), 9, 0) // of the first, or of the second
        .timer(120, 1000, 1)
        .on(1050, 1, TO_CLIENT, 5, 0)
        .on(1080, 1, TO_CLIENT, 6, 0);
    let finished = script.finish();
    assert!(finished.iter().all(|of| of.row.ns[SLEEP] == 0));
    assert!(finished.iter().all(|of| of.row.request.downstream_ns == 0));
}

#[test]
fn the_wait_for_a_timer_goes_on_while_the_loop_does_something_else() {
    let mut script = answers_another();
    script.timer(560, 1000, 1).on(1050, 1, TO_CLIENT, 5, 0);
    assert_eq!(found(&mut script), [1000 - 120, 0, 0]);
}

#[test]
fn a_loop_that_wakes_a_helper_after_the_timer_has_waited_for_it() {
    let mut script = begun();
    script
        .block(1, 2, LOCK)
        .timer(120, 1000, 1)
        .wake(1010, 1, 2)
        .run(1020, 2, LOCK, 1010)
        .on(1050, 1, TO_CLIENT, 5, 0);
    assert_eq!(found(&mut script), [880, 0, 0]);
}

#[test]
fn a_timer_ends_a_wait_that_others_have_interrupted() {
    let mut script = begun();
    script
        .block(120, 1, NETWORK)
        .run_with(400, 1, NETWORK, 280) // for a client of which another thread has received
        .timer(410, 1000, 1)
        .on(1050, 1, TO_CLIENT, 5, 0);
    assert_eq!(found(&mut script), [870, 0, 0]);
}

#[test]
fn a_worker_that_was_seen_to_sleep_first_waits_for_work_elsewhere() {
    let (sleep, idle) = (0x9000, 0x1000);
    let mut script = Script::default();
    for begin in [0, 20_000, 40_000] {
        script
            .block(begin + 1, 1, NETWORK)
            .run(begin + 100, 1, NETWORK, begin + 100)
            .on(begin + 110, 1, FROM_CLIENT, 5, begin + 100)
            .wake(begin + 120, 1, 2)
            .block(begin + 130, 1, NETWORK);
        if begin > 0 {
            script.run(begin + 140, 2, LOCK, begin + 120); // its first wait began before
        }
        script
            .entry(begin + 200, 2, Act::Block(LOCK), |slice| {
                slice.since = sleep
            })
            .entry(begin + 5200, 2, Act::Run(LOCK), |slice| {
                (slice.since, slice.length) = ((begin + 5190) * 1000, 1);
                slice.shares = Shares::from_iter([Share {
                    cause: SLEEP as u8,
                    who: BY_INTERRUPT,
                    n: 1,
                    ns: 4_990_000,
                }]);
            })
            .entry(begin + 5250, 2, Act::Wake(NETWORK), |slice| {
                slice.length = 1
            })
            .run_with(begin + 5260, 1, NETWORK, 5130)
            .entry(begin + 5270, 2, Act::Block(LOCK), |slice| {
                slice.since = idle
            })
            .on(begin + 5300, 1, TO_CLIENT, 5, 0);
    }
    let last = &script.finish()[2];
    assert_eq!(last.row.ns[SLEEP] / 1000, 4990);
}

#[test]
fn what_another_thread_ended_in_between_was_no_timer() {
    let mut script = begun();
    script
        .block(120, 1, NETWORK)
        .entry(400, 1, Act::Run(NETWORK), |slice| {
            slice.since = 400_000;
            slice.shares = Shares::from_iter([Share {
                cause: NETWORK,
                who: THREAD,
                n: 1,
                ns: 280_000, // a child has written into a pipe
            }]);
        })
        .timer(410, 1000, 1)
        .on(1050, 1, TO_CLIENT, 5, 0);
    let first = &script.finish()[0];
    assert_eq!(first.row.ns[usize::from(NETWORK)] / 1000, 280);
    assert_eq!(first.row.ns[SLEEP] / 1000, 590);
}

#[test]
fn another_timer_leaves_the_next_one_of_the_loop_due() {
    let mut script = begun();
    script
        .timerfd(120, 500, 1, 2120)
        .on(510, 1, FROM_CLIENT, 6, 505)
        .on(2500, 1, TO_CLIENT, 6, 0)
        .on(2550, 1, TO_CLIENT, 5, 0);
    let first = &script.finish()[0];
    assert_eq!(first.row.ns[SLEEP] / 1000, 2000);
}

#[test]
fn a_timer_that_has_ended_a_wait_is_not_due_again() {
    let mut script = begun();
    script
        .timer(120, 1000, 1)
        .on(1010, 1, FROM_CLIENT, 6, 1005)
        .on(1050, 1, TO_CLIENT, 5, 0)
        .on(1100, 1, TO_CLIENT, 6, 0);
    let finished = script.finish();
    assert!(finished.iter().all(|of| of.row.ns[SLEEP] == 0));
}

#[test]
fn one_timer_lets_several_go_on() {
    let mut script = begun();
    script
        .on(120, 1, FROM_CLIENT, 6, 120)
        .timer(130, 1000, 1)
        .on(1050, 1, TO_CLIENT, 6, 0)
        .on(1080, 1, TO_CLIENT, 5, 0);
    assert_eq!(found(&mut script)[2], 0);
}

#[test]
fn what_the_loop_goes_on_with_for_another_reason_is_unknown() {
    let mut script = answers_another();
    script
        .block(560, 1, NETWORK)
        .run(1000, 1, NETWORK, 1000)
        .on(1050, 1, TO_CLIENT, 5, 0);
    assert_eq!(found(&mut script), [0, 0, 1000 - 120]);
    // A timer has let it go on, but for what came in since.
    let mut script = begun();
    script
        .timer(120, 500, 1)
        .on(510, 1, FROM_CLIENT, 6, 505)
        .on(550, 1, TO_CLIENT, 6, 0)
        .on(600, 1, TO_CLIENT, 5, 0);
    assert_eq!(found(&mut script)[0], 0);
}

#[test]
fn a_timer_that_runs_out_while_the_loop_is_busy_is_one() {
    let mut script = begun();
    script
        .entry(120, 1, Act::Block(NETWORK), |slice| slice.since = 2_000_000)
        .run(500, 1, NETWORK, 500)
        .on(510, 1, FROM_CLIENT, 6, 500)
        .on(2500, 1, TO_CLIENT, 6, 0)
        .on(2550, 1, TO_CLIENT, 5, 0);
    let first = &script.finish()[0];
    assert_eq!(parts(first), [2450, 2500 - 2120, 0, 0]);
    assert_eq!(first.row.ns[SLEEP] / 1000, 2000);
}

#[test]
fn a_wait_that_something_else_ended_stays_one_for_sockets() {
    let mut script = begun();
    script
        .interrupted(120, 1000, 1, 5000) // the client has made room
        .on(6500, 1, TO_CLIENT, 5, 0);
    let first = &script.finish()[0];
    assert_eq!(first.row.ns[usize::from(NETWORK)] / 1000, 880);
    assert_eq!(first.row.ns[SLEEP], 0);
}

#[test]
fn a_call_after_a_timer_belongs_to_the_request_that_waited_for_it() {
    let mut script = answers_another();
    script
        .timer(560, 1000, 1)
        .on(1010, 1, Act::Send(Role::Client), 9, 0)
        .block(1020, 1, NETWORK)
        .run(1500, 1, NETWORK, 1500)
        .on(1510, 1, Act::Receive(Role::Client), 9, 1500)
        .on(1550, 1, TO_CLIENT, 5, 0);
    assert_eq!(found(&mut script), [1000 - 120, 1500 - 1020, 0]);
}

#[test]
fn who_gives_up_on_a_server_has_waited_for_that() {
    for gives_up in [true, false] {
        let mut script = begun();
        script
            .on(150, 1, Act::Send(Role::Client), 9, 0)
            .timer(160, 3000, 1);
        if gives_up {
            script.on(3010, 1, Act::Close(Role::Client), 9, 0);
        }
        script.on(3050, 1, TO_CLIENT, 5, 0);
        let [slept, downstream, _] = found(&mut script);
        let waited = if gives_up { 3000 - 160 } else { 0 };
        assert_eq!((slept, downstream), (0, waited));
    }
}

#[test]
fn a_call_that_is_nobodys_may_be_what_a_request_waits_for() {
    let mut script = answers_another();
    script
        .timer(560, 1000, 1)
        .on(1010, 1, Act::Send(Role::Client), 9, 0)
        .timer(1020, 3000, 1)
        .on(3050, 1, TO_CLIENT, 5, 0);
    assert_eq!(found(&mut script)[0], 0);
}

#[test]
fn a_timer_that_was_set_goes_on_while_the_loop_works_for_another_request() {
    // The first one's work from 110 to 330 has set it, unless the second takes far longer.
    for (worked, expected) in [(120, [0, 620]), (5000, [5000, 500])] {
        let (second, waits) = (330, 330 + worked);
        let mut script = begun();
        script
            .on(second, 1, FROM_CLIENT, 6, 320)
            .timer(waits, waits + 500, 1)
            .on(waits + 550, 1, TO_CLIENT, 5, 0);
        let first = &script.finish()[0];
        let found = [first.row.queue_ns, first.row.ns[SLEEP]].map(|ns| ns / 1000);
        assert_eq!(found, expected);
    }
}

#[test]
fn a_loop_that_waits_by_a_condition_variable_has_timers_too() {
    let mut script = Script::default();
    script
        .block(1, 1, LOCK)
        .run(1000, 1, LOCK, 1000)
        .on(1010, 1, FROM_CLIENT, 5, 990)
        .block(1020, 1, LOCK)
        .run(1100, 1, LOCK, 1100)
        .on(1110, 1, FROM_CLIENT, 6, 1090) // before the first has its answer: a loop
        .lock_timer(1120, 6010, 1)
        .on(6050, 1, TO_CLIENT, 5, 0)
        .lock_timer(6060, 6110, 1)
        .on(6150, 1, TO_CLIENT, 6, 0)
        .block(6160, 1, LOCK)
        .run(7000, 1, LOCK, 7000)
        .on(7010, 1, FROM_CLIENT, 5, 6990) // and one that it has alone
        .lock_timer(7020, 12_010, 1)
        .on(12_050, 1, TO_CLIENT, 5, 0);
    let finished = script.finish();
    let asleep = finished.iter().map(|of| of.row.ns[SLEEP] / 1000);
    assert!(asleep.eq([4900, 4990, 4990]), "{finished:?}");
}
