//! Alone in its process: threads of other tests that end would take their waits along.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use tailscope_locality::chase::waiting::Waiting;

#[test]
fn threads_that_share_a_cpu_wait_for_it() {
    let mut cpu = CpuSet::new();
    let allowed = sched_getaffinity(None).expect("own affinity");
    let first = (0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu));
    cpu.set(first.expect("a CPU"));
    let ended = AtomicBool::new(false);
    let share = thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                sched_setaffinity(None, &cpu).expect("an allowed CPU");
                while !ended.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let waiting = Waiting::start(1);
        thread::sleep(Duration::from_millis(300));
        let share = waiting.share();
        ended.store(true, Ordering::Relaxed);
        share
    });
    match share {
        // Two threads want the CPU all the time, and one of them has it at most.
        Some(share) => assert!(share > 0.5, "{share}"),
        None => println!("skipped: this kernel does not count waits (schedstat)"),
    }
}
