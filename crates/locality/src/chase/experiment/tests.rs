//! Small experiments to their end. Nothing here depends on how fast the machine is.

use rustix::thread::{CpuSet, sched_getaffinity};

use super::*;
use crate::chase::plan::Spread;

/// Two CPUs, or one twice.
fn cpus() -> Vec<u32> {
    let set = sched_getaffinity(None).expect("own affinity");
    let mut allowed = (0..CpuSet::MAX_CPU as u32).filter(|cpu| set.is_set(*cpu as usize));
    let first = allowed.next().expect("a CPU");
    vec![first, allowed.next().unwrap_or(first)]
}

fn options() -> Options {
    Options {
        cpus: cpus(),
        sessions: 10,
        owners: None,
        start: None,
        modes: vec![Mode::Synchronous, Mode::Yield, Mode::Delegate],
        duration: Duration::from_millis(400),
        segment: Duration::from_millis(2),
        // Other tests run beside it.
        tolerance: 1.0,
        pages: Pages::Small,
        seed: 1,
        timed: false,
    }
}

#[test]
fn each_mode_makes_progress_whatever_the_phases_and_starts() {
    for (phases, start) in [(1, None), (2, Some(1)), (3, None)] {
        let plan = Plan::even(phases, 8192, 0.5, Spread::Zipf(1.0));
        let options = Options { start, ..options() };
        let point = run(&plan, &options, &AtomicBool::new(false)).expect("a point");
        assert!(point.rounds > 0, "{point:?}");
        assert!(
            point.speeds.iter().all(|speed| speed.per_second > 0.0),
            "{point:?}"
        );
        assert!((point.updates - 0.5).abs() < 0.02);
        assert!(point.speeds[0].ratio.is_none());
    }
}

#[test]
fn lines_of_sessions_and_shared_ones_are_walked() {
    let phases = ["3,0.5/20", "0/10,1"].map(|text| text.parse().expect(text));
    let shared = ["2/4:0,0.5,0/1,0,1".parse().expect("shared lines")];
    let plan = Plan::new(&phases, &shared, Spread::Even(2)).expect("a plan");
    let point = run(&plan, &options(), &AtomicBool::new(false)).expect("a point");
    assert_eq!((point.working_set, point.accesses), (39 * 64, 90));
    assert!(point.rounds > 0);
}

#[test]
fn it_ends_when_it_is_interrupted_or_a_cpu_is_missing() {
    let plan = Plan::even(2, 8192, 0.0, Spread::Even(1));
    let stopped = run(&plan, &options(), &AtomicBool::new(true));
    assert!(matches!(stopped, Err(ExperimentError::Interrupted)));
    let cpus = vec![cpus()[0], 1023];
    let missing = run(
        &plan,
        &Options { cpus, ..options() },
        &AtomicBool::new(false),
    );
    assert!(matches!(missing, Err(ExperimentError::Start(_))));
}
