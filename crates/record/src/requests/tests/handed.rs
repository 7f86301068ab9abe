//! Wake-ups that hand no request over: those of a runtime's helpers, and of workers by workers.

use super::*;
use crate::stacks::Part;

#[test]
fn a_thread_that_waits_for_all_connections_works_for_who_receives() {
    let mut script = Script::default();
    script
        .block(1, 1, NETWORK)
        .block(1, 2, LOCK)
        // Data comes at 100; the first thread has a CPU at 150, and then waits for a turn.
        .run(150, 1, NETWORK, 100)
        .block(160, 1, PREEMPTED)
        .run_with(5160, 1, PREEMPTED, 5000)
        .wake(5200, 1, 2)
        .run(5210, 2, LOCK, 5200)
        .on(5220, 2, Act::Receive(Role::Server), 5, 100)
        .on(5300, 2, Act::Send(Role::Server), 5, 0);
    let finished = script.finish();
    assert_eq!(parts(&finished[0]), [5200, 0, 0, 0]);
    assert_eq!(finished[0].row.ns[abi::TS_PREEMPTED as usize], 5_000_000);
}

#[test]
fn a_helper_of_the_runtime_works_while_the_request_waits_for_another_server() {
    let mut script = Script::default();
    script
        .block(1, 1, NETWORK)
        .block(1, 2, LOCK)
        .run(100, 1, NETWORK, 100)
        .on(110, 1, Act::Receive(Role::Server), 5, 100)
        .wake(120, 1, 2) // a compiler
        .on(150, 1, Act::Send(Role::Client), 9, 0)
        .block(160, 1, NETWORK)
        .run(160, 2, LOCK, 120)
        .run(500, 1, NETWORK, 500)
        .on(510, 1, Act::Receive(Role::Client), 9, 500)
        .on(600, 1, Act::Send(Role::Server), 5, 0)
        .block(700, 2, LOCK);
    assert_eq!(parts(&script.finish()[0]), [500, 0, 340, 0]);
}

/// One thread receives two requests, and wakes a worker for the first. That one wakes another, because
/// there is more in the queue, as Java's queues do.
fn a_queue_that_workers_share() -> Script {
    let mut script = Script::default();
    script
        .block(1, 1, NETWORK)
        .block(1, 2, LOCK)
        .block(1, 3, LOCK)
        .run(100, 1, NETWORK, 100)
        .on(110, 1, Act::Receive(Role::Server), 5, 100)
        .wake(115, 1, 2)
        .on(120, 1, Act::Receive(Role::Server), 6, 100)
        .block(125, 1, NETWORK)
        .run(130, 2, LOCK, 115)
        .wake(135, 2, 3)
        .run(150, 3, LOCK, 135);
    script
}

#[test]
fn a_worker_that_wakes_another_goes_on_with_its_own_request() {
    let mut script = a_queue_that_workers_share();
    script
        .on(230, 2, Act::Send(Role::Client), 9, 0)
        .block(240, 2, NETWORK)
        .on(450, 3, Act::Send(Role::Server), 6, 0)
        .block(460, 3, LOCK)
        .run(1240, 2, NETWORK, 1230)
        .on(1250, 2, Act::Receive(Role::Client), 9, 1230)
        .on(1330, 2, Act::Send(Role::Server), 5, 0);
    let mut found: Vec<_> = script.finish().iter().map(parts).collect();
    found.sort_unstable();
    assert_eq!(found[0][0], 350);
    assert_eq!(found[0][2..], [0, 0]);
    assert_eq!(found[1], [1230, 0, 990, 0]);
}

#[test]
fn a_worker_that_wakes_another_keeps_its_work_though_that_one_answers_first() {
    let mut script = a_queue_that_workers_share();
    script
        .on(450, 3, Act::Send(Role::Server), 6, 0)
        .block(460, 3, LOCK)
        .run(1000, 1, NETWORK, 1000)
        .on(1010, 1, Act::Receive(Role::Server), 6, 1000) // the first request there is complete
        .block(1020, 1, NETWORK)
        .on(1330, 2, Act::Send(Role::Server), 5, 0);
    let finished = script.finish();
    let longer = finished.iter().find(|of| of.row.wall == 1_230_000);
    let longer = longer.expect("the first worker's request");
    assert_eq!(parts(longer), [1230, 0, 0, 0]);
    let ns = |part: &Part| part.to - part.from;
    let worked: u64 = longer.parts.iter().map(ns).sum();
    assert!(worked >= 1_200_000, "{worked}");
}

#[test]
fn a_worker_that_wakes_a_helper_and_waits_for_a_lock_has_its_request_all_the_same() {
    let mut script = Script::default();
    script
        .block(1, 1, NETWORK)
        .block(1, 2, LOCK)
        .block(1, 3, LOCK)
        .run(1100, 1, NETWORK, 1100)
        .on(1110, 1, Act::Receive(Role::Server), 5, 1100)
        .wake(1115, 1, 2)
        .block(1120, 1, NETWORK)
        .run(1130, 2, LOCK, 1115)
        .on(1230, 2, Act::Send(Role::Client), 9, 0)
        .block(1240, 2, NETWORK)
        .run(2240, 2, NETWORK, 2230)
        .on(2250, 2, Act::Receive(Role::Client), 9, 2230)
        .wake(2260, 2, 3)
        .entry(2270, 2, Act::Block(LOCK), |slice| slice.since = 0x9000) // not where it waits for work
        .run(2290, 2, LOCK, 2280)
        .on(2330, 2, Act::Send(Role::Server), 5, 0);
    assert_eq!(parts(&script.finish()[0]), [1230, 0, 990, 0]);
}

#[test]
fn what_a_worker_asked_is_the_requests_that_a_loop_answers_for_it() {
    let mut script = Script::default();
    script
        .block(1, 1, NETWORK)
        .block(1, 2, LOCK)
        .run(100, 1, NETWORK, 100)
        .on(110, 1, Act::Receive(Role::Server), 5, 100)
        .wake(120, 1, 2)
        .block(125, 1, NETWORK)
        .run(130, 2, LOCK, 120)
        .on(200, 2, Act::Send(Role::Client), 9, 0)
        .block(205, 2, NETWORK)
        .run(805, 2, NETWORK, 800)
        .on(810, 2, Act::Receive(Role::Client), 9, 800)
        .entry(850, 2, Act::Wake(NETWORK), |slice| slice.length = 1)
        .run(870, 1, NETWORK, 850)
        .on(900, 1, Act::Send(Role::Server), 5, 0);
    let finished = script.finish();
    assert_eq!(parts(&finished[0])[0], 800);
    assert_eq!(parts(&finished[0])[2..], [595, 0]);
}

#[test]
fn a_thread_that_waits_for_what_it_woke_waits_for_a_lock() {
    let mut script = Script::default();
    script
        .block(1, 1, NETWORK)
        .block(1, 2, LOCK)
        .block(1, 3, LOCK)
        .run(100, 1, NETWORK, 100)
        .on(110, 1, Act::Receive(Role::Server), 5, 100)
        .wake(200, 1, 2) // a collector of garbage,
        .block(210, 1, LOCK)
        .run(220, 2, LOCK, 200)
        .wake(250, 2, 3) // which has a helper
        .block(260, 2, LOCK)
        .run(260, 3, LOCK, 250)
        .wake(800, 3, 2)
        .block(810, 3, LOCK)
        .run(810, 2, LOCK, 800)
        .wake(900, 2, 1)
        .block(910, 2, LOCK)
        .run_with(920, 1, LOCK, 690)
        .on(1000, 1, Act::Send(Role::Server), 5, 0);
    let finished = script.finish();
    assert_eq!(parts(&finished[0]), [900, 0, 0, 0]);
    assert_eq!(finished[0].row.ns[usize::from(LOCK)], 690_000);
}

#[test]
fn a_thread_that_another_requests_thread_wakes_goes_on_with_its_own() {
    let mut script = Script::default();
    script
        .block(1, 1, NETWORK)
        .block(1, 2, NETWORK)
        .run(100, 1, NETWORK, 100)
        .on(110, 1, Act::Receive(Role::Server), 5, 100)
        .block(200, 1, NETWORK) // for a lock of the database
        .run(700, 2, NETWORK, 700)
        .on(710, 2, Act::Receive(Role::Server), 6, 700)
        .entry(800, 2, Act::Wake(NETWORK), |slice| slice.length = 1)
        .on(850, 2, Act::Send(Role::Server), 6, 0)
        .run_with(810, 1, NETWORK, 600)
        .on(900, 1, Act::Send(Role::Server), 5, 0);
    let finished = script.finish();
    assert_eq!(parts(&finished[0]), [800, 0, 0, 0]);
    assert_eq!(finished[0].row.ns[usize::from(NETWORK)], 600_000);
    assert!(!finished[0].ambiguous);
}

#[test]
fn who_waits_for_a_thread_that_gets_no_cpu_is_then_behind_what_it_does_first() {
    let mut script = Script::default();
    script
        .block(1, 1, NETWORK)
        .run(1100, 1, NETWORK, 100)
        .on(1110, 1, Act::Receive(Role::Server), 5, 100)
        .on(1150, 1, Act::Send(Role::Server), 5, 0)
        .on(1160, 1, Act::Receive(Role::Server), 6, 600)
        .on(1200, 1, Act::Send(Role::Server), 6, 0);
    let finished = script.finish();
    // Until 1,100 it is the thread's wait for a CPU, which has no share here.
    assert_eq!(parts(&finished[1]), [600, 60, 0, 0]);
    let behind = finished[1].behind.as_ref().expect("known");
    assert_eq!(behind.ns, 1_050_000);
}

#[test]
fn a_request_that_came_before_its_connection_was_accepted_waited_for_that() {
    let mut script = Script::default();
    script
        .block(1, 1, abi::TS_SLEEP as u8)
        .run(690, 1, abi::TS_SLEEP as u8, 680)
        .entry(700, 1, Act::Receive(Role::Server), |slice| {
            (slice.socket, slice.length, slice.since) = (5, 10, 100_000);
            slice.unaccepted = true;
        })
        .on(800, 1, Act::Send(Role::Server), 5, 0);
    let finished = script.finish();
    assert_eq!(parts(&finished[0]), [700, 0, 0, 0]);
    assert_eq!(finished[0].row.request.accept_ns, 580_000);
}

#[test]
fn a_thread_that_many_requests_threads_wake_goes_on_with_its_own() {
    let mut script = Script::default();
    script
        .block(1, 1, NETWORK)
        .block(1, 2, NETWORK)
        .run(100, 1, NETWORK, 100)
        .on(110, 1, Act::Receive(Role::Server), 5, 100)
        .block(200, 1, NETWORK)
        .run_with(300, 1, NETWORK, 100) // a timer looked for a deadlock
        .block(310, 1, NETWORK)
        .run(700, 2, NETWORK, 700)
        .on(710, 2, Act::Receive(Role::Server), 6, 700)
        .entry(800, 2, Act::Wake(NETWORK), |slice| slice.length = 1)
        .run_with(810, 1, NETWORK, 490)
        .on(820, 2, Act::Send(Role::Server), 6, 0)
        .on(900, 1, Act::Send(Role::Server), 5, 0);
    let finished = script.finish();
    assert_eq!(finished[0].row.ns[usize::from(NETWORK)], 590_000);
    assert_eq!(parts(&finished[0])[1..3], [0, 0]);
}

#[test]
fn a_thread_that_is_woken_with_the_answer_of_another_server_waited_for_that() {
    let mut script = Script::default();
    script
        .block(1, 1, NETWORK)
        .block(1, 2, NETWORK)
        .run(100, 1, NETWORK, 100)
        .on(110, 1, Act::Receive(Role::Server), 5, 100)
        .on(150, 1, Act::Send(Role::Client), 9, 0)
        .block(160, 1, NETWORK)
        .run(500, 2, NETWORK, 500) // it reads what comes in on that connection
        .on(510, 2, Act::Receive(Role::Client), 9, 500)
        .entry(520, 2, Act::Wake(NETWORK), |slice| slice.length = 1)
        .run_with(530, 1, NETWORK, 360)
        .on(600, 1, Act::Send(Role::Server), 5, 0);
    let finished = script.finish();
    assert_eq!(parts(&finished[0])[2], 340);
}

#[test]
fn a_caller_that_blocks_until_another_thread_has_asked_waits_for_the_other_server() {
    let mut script = Script::default();
    script
        .block(1, 1, NETWORK)
        .block(1, 2, LOCK)
        .run(100, 1, NETWORK, 100)
        .on(110, 1, Act::Receive(Role::Server), 5, 100)
        .wake(120, 1, 2)
        .block(130, 1, LOCK)
        .run(140, 2, LOCK, 120)
        .on(150, 2, Act::Send(Role::Client), 9, 0)
        .block(160, 2, NETWORK)
        .run(700, 2, NETWORK, 700)
        .on(710, 2, Act::Receive(Role::Client), 9, 700)
        .wake(720, 2, 1)
        .run_with(730, 1, LOCK, 590)
        .on(800, 1, Act::Send(Role::Server), 5, 0);
    let finished = script.finish();
    assert_eq!(parts(&finished[0])[2], 540);
}

#[test]
fn the_moment_between_data_and_the_wake_up_for_it_is_a_wait_for_the_thread() {
    let mut script = Script::default();
    script
        .block(1, 1, NETWORK)
        .run(100, 1, NETWORK, 95)
        .on(110, 1, Act::Receive(Role::Server), 5, 90)
        .on(150, 1, Act::Send(Role::Server), 5, 0);
    let finished = script.finish();
    assert_eq!(parts(&finished[0]), [60, 5, 0, 0]);
}

#[test]
fn a_thread_that_wakes_a_helper_and_answers_has_waited_for_its_cpu_itself() {
    let mut script = Script::default();
    script
        .block(1, 1, NETWORK)
        .block(1, 2, LOCK)
        .run(100, 1, NETWORK, 100)
        .on(110, 1, Act::Receive(Role::Server), 5, 100)
        .wake(120, 1, 2) // a compiler
        .block(150, 1, PREEMPTED)
        .run(150, 2, LOCK, 120)
        .run_with(550, 1, PREEMPTED, 400)
        .on(600, 1, Act::Send(Role::Server), 5, 0)
        .block(700, 2, LOCK);
    let finished = script.finish();
    assert_eq!(finished[0].row.ns[abi::TS_PREEMPTED as usize], 400_000);
    assert_eq!(parts(&finished[0]), [500, 0, 0, 0]);
}

#[test]
fn a_thread_that_answers_for_a_worker_that_asked_has_handed_its_work_over() {
    let mut script = Script::default();
    script
        .block(1, 1, NETWORK)
        .block(1, 2, LOCK)
        .run(100, 1, NETWORK, 100)
        .on(110, 1, Act::Receive(Role::Server), 5, 100)
        .wake(120, 1, 2)
        .run(130, 2, LOCK, 120)
        .on(200, 2, Act::Send(Role::Client), 9, 0)
        .block(210, 2, NETWORK)
        .block(300, 1, PREEMPTED)
        .run(1000, 2, NETWORK, 1000)
        .on(1005, 2, Act::Receive(Role::Client), 9, 1000)
        .run_with(1010, 1, PREEMPTED, 710)
        .on(1110, 1, Act::Send(Role::Server), 5, 0);
    let finished = script.finish();
    // It was preempted for so long after the worker had the answer.
    assert_eq!(finished[0].row.ns[abi::TS_PREEMPTED as usize], 5000);
    assert_eq!(parts(&finished[0])[2], 800);
}

#[test]
fn of_two_helpers_the_one_that_is_done_first_makes_no_difference() {
    let mut script = Script::default();
    script
        .block(1, 1, NETWORK)
        .block(1, 2, LOCK)
        .block(1, 3, LOCK)
        .run(100, 1, NETWORK, 100)
        .on(110, 1, Act::Receive(Role::Server), 5, 100)
        .wake(120, 1, 2)
        .block(150, 1, PREEMPTED)
        .run(150, 2, LOCK, 120)
        .run_with(550, 1, PREEMPTED, 400)
        .wake(560, 1, 3)
        .run(565, 3, LOCK, 560)
        .block(570, 2, LOCK)
        .block(580, 3, LOCK)
        .on(600, 1, Act::Send(Role::Server), 5, 0);
    let finished = script.finish();
    assert_eq!(finished[0].row.ns[abi::TS_PREEMPTED as usize], 400_000);
}

#[test]
fn a_worker_waits_where_it_idles_for_threads_that_take_an_answer_for_it() {
    let (worker_at, helper_at) = (0x1000, 0x2000);
    let mut script = Script::default();
    script
        .block(1, 1, NETWORK)
        .entry(2, 2, Act::Block(LOCK), |slice| slice.since = worker_at)
        .block(3, 3, NETWORK)
        .entry(4, 4, Act::Block(LOCK), |slice| slice.since = helper_at)
        .run(100, 1, NETWORK, 100)
        .on(110, 1, Act::Receive(Role::Server), 5, 100)
        .wake(120, 1, 2)
        .run(140, 2, LOCK, 120)
        .block(180, 1, NETWORK)
        .on(1200, 2, Act::Send(Role::Client), 9, 0)
        .entry(1250, 2, Act::Block(LOCK), |slice| slice.since = worker_at)
        .run(6200, 3, NETWORK, 6200)
        .on(6250, 3, Act::Receive(Role::Client), 9, 6200)
        .wake(6300, 3, 4)
        .run(6310, 4, LOCK, 6300)
        .block(6330, 3, NETWORK)
        .wake(6450, 4, 2)
        .entry(6480, 4, Act::Block(LOCK), |slice| slice.since = helper_at)
        .run(6500, 2, LOCK, 6450)
        .on(6700, 2, Act::Send(Role::Server), 5, 0);
    assert_eq!(parts(&script.finish()[0]), [6600, 0, 6200 - 1250, 0]);
}
