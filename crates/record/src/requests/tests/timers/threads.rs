//! Requests whose timers another thread waits for.

use tailscope_signals::slice::{Act, Role};

use super::{FROM_CLIENT, LOCK, NETWORK, SLEEP, Script, TO_CLIENT, found};

/// The futexes of a condition variable, and the mutex behind it.
const HALVES: [u64; 2] = [0x1000, 0x1004];
const MUTEX: u64 = 0x1008;

/// Threads as in the runtime of Haskell: the first answers, the second waits for timers and wakes it, and
/// the third receives.
impl Script {
    fn waits_at(&mut self, at: u64, futex: u64) -> &mut Self {
        self.entry(at, 1, Act::Block(LOCK), |slice| slice.since = futex)
    }

    /// The third receives a request.
    fn comes(&mut self, at: u64, socket: u64) -> &mut Self {
        self.block(at - 10, 3, NETWORK)
            .run(at, 3, NETWORK, at)
            .on(at + 10, 3, FROM_CLIENT, socket, at)
            .block(at + 20, 3, NETWORK)
    }

    /// A timer lets the first go on.
    fn runs_out(&mut self, since: u64, at: u64) -> &mut Self {
        self.timer(since, at, 2).lets_go_on(at)
    }

    /// Then the second lets the first go on.
    fn lets_go_on(&mut self, at: u64) -> &mut Self {
        self.wake(at + 10, 2, 1).run(at + 20, 1, LOCK, at + 10)
    }

    /// The second waits in steps of 100, the last of which ends at that time.
    fn in_steps(&mut self, steps: u64, at: u64) -> &mut Self {
        for step in (0..steps).rev() {
            let to = at - step * 100;
            self.lock_timer(to - 90, to, 2);
        }
        self
    }

    /// Some requests, before the time 66000: with them it is known where the first has nothing to do.
    fn haskell() -> Self {
        let mut script = Self::default();
        script.waits_at(1, MUTEX).run(1000, 1, LOCK, 1000);
        for n in 1..=6 {
            let at = n * 10_000;
            script
                .waits_at(at - 4000, HALVES[n as usize % 2])
                .comes(at, 5)
                .runs_out(at + 30, at + 5000)
                .on(at + 5050, 1, TO_CLIENT, 5, 0);
        }
        script
    }

    /// Of the requests after the first: they sleep, in order.
    fn asleep(&mut self) -> Vec<u64> {
        let asleep = self.finish().into_iter().map(|of| of.row.ns[SLEEP] / 1000);
        asleep.skip(1).collect()
    }
}

#[test]
fn a_condition_variable_is_not_the_mutex_behind_it() {
    // The first request shows where the thread waits for something to do.
    assert_eq!(Script::haskell().asleep(), [4980; 5]);
}

#[test]
fn two_requests_whose_timers_run_out_together_have_both_slept() {
    let mut script = Script::haskell();
    script
        .waits_at(66_000, HALVES[1])
        .comes(70_000, 5)
        .comes(70_100, 6)
        .runs_out(70_030, 75_100)
        .on(75_150, 1, TO_CLIENT, 5, 0)
        .on(75_200, 1, TO_CLIENT, 6, 0);
    assert_eq!(script.asleep()[5..], [5080, 4980]);
}

/// The first has answered one, and received the next itself: no timer is due before that one's.
fn received_by_the_first() -> Script {
    let mut script = Script::haskell();
    script
        .waits_at(66_000, HALVES[1])
        .comes(70_000, 5)
        .runs_out(70_030, 75_000)
        .on(75_050, 1, TO_CLIENT, 5, 0)
        .on(75_060, 1, FROM_CLIENT, 6, 75_055);
    script
}

#[test]
fn who_received_a_request_and_is_woken_by_a_timers_thread_has_slept_for_it() {
    let mut script = received_by_the_first();
    script
        .waits_at(75_070, HALVES[0])
        .runs_out(75_040, 80_060)
        .on(80_100, 1, TO_CLIENT, 6, 0);
    assert_eq!(script.asleep()[6..], [4990]);
}

#[test]
fn who_waits_for_what_a_timers_thread_does_waits_for_a_lock() {
    let mut script = received_by_the_first();
    script
        .waits_at(75_070, HALVES[0])
        .timer(75_040, 76_000, 2)
        .lets_go_on(80_060)
        .on(80_100, 1, TO_CLIENT, 6, 0);
    assert_eq!(script.asleep()[6..], [0]);
}

#[test]
fn who_has_asked_another_server_does_not_wait_for_a_timers_thread() {
    let mut script = received_by_the_first();
    script
        .on(75_065, 1, Act::Send(Role::Client), 9, 0)
        .waits_at(75_070, HALVES[0])
        .runs_out(75_040, 80_060)
        .on(80_100, 1, TO_CLIENT, 6, 0);
    assert_eq!(script.asleep()[6..], [0]);
}

#[test]
fn a_request_behind_one_that_its_thread_had_in_hand_has_not_slept() {
    let mut script = received_by_the_first();
    script
        .waits_at(75_070, HALVES[0])
        .comes(75_100, 5)
        .runs_out(75_040, 80_060)
        .on(80_100, 1, TO_CLIENT, 6, 0)
        .on(80_200, 1, TO_CLIENT, 5, 0);
    assert_eq!(script.asleep()[6..], [4990, 0]);
}

#[test]
fn a_wait_that_ended_too_early_goes_on_in_small_steps() {
    let mut script = Script::haskell();
    script
        .waits_at(66_000, HALVES[1])
        .block(66_000, 2, LOCK)
        .comes(70_000, 5)
        .wake(70_020, 3, 2)
        .run(70_025, 2, LOCK, 70_020)
        .lock_timer(70_030, 74_400, 2)
        .in_steps(6, 75_000)
        .lets_go_on(75_000)
        .on(75_050, 1, TO_CLIENT, 5, 0);
    assert_eq!(script.asleep()[5..], [4980]);
}

#[test]
fn who_looks_for_work_now_and_then_waits_for_no_timer() {
    let mut script = Script::haskell();
    script
        .waits_at(66_000, HALVES[1])
        .comes(70_000, 5)
        .in_steps(49, 75_000)
        .lets_go_on(75_000)
        .on(75_050, 1, TO_CLIENT, 5, 0);
    assert_eq!(script.asleep()[5..], [0]);
}

#[test]
fn a_timers_thread_that_has_woken_another_for_nothing_waits_for_timers_again() {
    let mut script = Script::haskell();
    script
        .waits_at(66_000, HALVES[1])
        .block(66_000, 2, LOCK)
        .run(66_005, 3, NETWORK, 66_005)
        .wake(66_010, 3, 2)
        .run(66_020, 2, LOCK, 66_010)
        .lock_timer(66_030, 67_000, 2)
        .lets_go_on(67_000)
        .waits_at(67_030, HALVES[0]) // it finds nothing
        .lock_timer(67_050, 75_000, 2)
        .comes(70_000, 5)
        .lets_go_on(75_000)
        .on(75_050, 1, TO_CLIENT, 5, 0);
    assert_eq!(script.asleep()[5..], [4980]);
}

#[test]
fn who_finds_nothing_to_do_in_between_has_slept_before_too() {
    let mut script = received_by_the_first();
    script
        .waits_at(75_070, HALVES[0])
        .run(76_990, 3, NETWORK, 76_990)
        .wake(76_999, 3, 1)
        .run_with(77_000, 1, LOCK, 1930)
        .waits_at(77_020, HALVES[1]) // it finds nothing
        .runs_out(75_040, 80_060)
        .on(80_100, 1, TO_CLIENT, 6, 0);
    assert_eq!(script.asleep()[6..], [4990]);
}

#[test]
fn a_scheduler_of_which_a_worker_once_asked_something_has_its_work_done_by_several() {
    let mut script = Script::default();
    script
        .block(1, 1, NETWORK)
        .block(1, 2, LOCK)
        .block(1, 3, LOCK)
        .block(1, 4, LOCK)
        // A worker sets a timer: it wakes the scheduler.
        .run(1000, 2, LOCK, 1000)
        .wake(1010, 2, 4)
        .block(1015, 2, LOCK)
        .run(1020, 4, LOCK, 1010)
        .lock_timer(1030, 10_080, 4)
        .block(10_090, 4, LOCK)
        .run(11_100, 1, NETWORK, 11_100)
        .on(11_110, 1, FROM_CLIENT, 5, 11_100)
        .block(11_120, 1, NETWORK)
        .ended(LOCK, (10_090, 20_090), 4, true)
        .wake(20_100, 4, 2)
        .block(20_110, 4, LOCK)
        .run(20_120, 2, LOCK, 20_100)
        .wake(20_130, 2, 3)
        .block(20_135, 2, LOCK)
        .run(20_140, 3, LOCK, 20_130)
        .on(20_200, 3, TO_CLIENT, 5, 0)
        .block(20_210, 3, LOCK);
    let [sleep, downstream, unknown] = found(&mut script);
    assert_eq!(downstream, 0);
    assert!(sleep > 8_900 && unknown < 50, "{sleep} {unknown}");
}
