//! Fibres that move: nothing is lost, nothing runs twice, and everything comes home.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tailscope_fibre::{Cluster, Here, Mode, Runtime, StartError};

/// Two clusters, on two CPUs if this process may use two.
fn two_clusters(patience: Duration) -> Runtime {
    let set = rustix::thread::sched_getaffinity(None).expect("own affinity");
    let allowed = (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu));
    let allowed: Vec<u32> = allowed.map(|cpu| cpu as u32).collect();
    let cluster = |cpu: &u32| Cluster { cpus: vec![*cpu] };
    let pair = [&allowed[0], allowed.get(1).unwrap_or(&allowed[0])];
    Runtime::start_with(&pair.map(cluster), patience, Runtime::STACK).expect("a runtime")
}

thread_local! {
    static THREAD: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// What the thread-local variable holds. Not inlined: its address must be found anew.
#[inline(never)]
fn marked_as() -> usize {
    THREAD.get()
}

#[inline(never)]
fn mark(worker: usize) {
    THREAD.set(worker);
}

/// Sends `fibres` fibres there and back; returns the moves, and the runs of delegated closures.
fn move_often(runtime: &Runtime, fibres: u64, returns: u64) -> (u64, u64) {
    let runs = Arc::new(AtomicU64::new(0));
    let start = |number: u64| {
        let runs = Arc::clone(&runs);
        let body = move |here: &Here<'_>| {
            let home = here.worker();
            let mut moves = 0;
            for turn in 0..returns {
                let away = here.delegate(1 - here.cluster(), |away| {
                    runs.fetch_add(1, Ordering::Relaxed);
                    (turn, away.worker())
                });
                assert_eq!(away.0, turn, "the result is that of this closure");
                assert_ne!(away.1, home);
                assert_eq!(here.worker(), home);
                moves += 2;
            }
            moves
        };
        let cluster = (number % 2) as usize;
        runtime.spawn(cluster, body).expect("a fibre")
    };
    let handles: Vec<_> = (0..fibres).map(start).collect();
    let moves = handles
        .into_iter()
        .map(|h| h.join().expect("no panic"))
        .sum();
    (moves, runs.load(Ordering::Relaxed))
}

/// A million migrations, or as many as the environment says: `make test-more` asks for 10⁸.
#[test]
fn migrations_lose_nothing_and_double_nothing() {
    let wanted = std::env::var("FIBRE_MIGRATIONS").map(|text| text.parse().expect("a number"));
    let returns: u64 = wanted.unwrap_or(1_000_000) / 2 / 50;
    let runtime = two_clusters(Runtime::PATIENCE);
    let moved = move_often(&runtime, 50, returns);
    assert_eq!(moved, (100 * returns, 50 * returns));
}

#[test]
fn workers_that_sleep_at_once_miss_no_fibre() {
    let runtime = two_clusters(Duration::ZERO);
    assert_eq!(move_often(&runtime, 3, 5_000), (30_000, 15_000));
}

#[test]
fn a_thread_local_variable_is_that_of_the_thread_that_runs() {
    let runtime = two_clusters(Runtime::PATIENCE);
    for cluster in 0..2 {
        let marked = runtime.spawn(cluster, |here| mark(here.worker()));
        marked.expect("a fibre").join().expect("no panic");
    }
    let body = |here: &Here<'_>| {
        for _ in 0..50_000 {
            assert_eq!(marked_as(), here.worker());
            // Directly in the closure too: it is a function of its own.
            here.delegate(1, |away| assert_eq!(THREAD.get(), away.worker()));
            assert_eq!(marked_as(), here.worker());
            here.yield_now();
        }
    };
    let fibres = [0, 0, 0].map(|cluster| runtime.spawn(cluster, body).expect("a fibre"));
    for fibre in fibres {
        fibre.join().expect("no panic");
    }
}

#[test]
fn a_panic_while_away_continues_at_home() {
    let runtime = two_clusters(Runtime::PATIENCE);
    let fibre = runtime.spawn(0, |here| {
        let home = here.worker();
        // Bound to its thread: it must not be touched while away.
        let kept = Rc::new(7);
        let fails = || here.delegate(1, |_| -> u32 { panic!("planted") });
        let outcome = catch_unwind(AssertUnwindSafe(fails));
        assert_eq!(here.worker(), home);
        let message = outcome.expect_err("the panic comes home");
        assert_eq!(message.downcast_ref(), Some(&"planted"));
        // The thread is as good as before.
        here.delegate(1, |_| *Rc::new(1)) + *kept
    });
    assert_eq!(fibre.expect("a fibre").join().expect("no panic"), 8);
    let ends = runtime.spawn(0, |here| here.delegate(1, |_| panic!("planted too")));
    assert!(ends.expect("a fibre").join().is_err());
}

#[test]
fn a_fibre_that_unwinds_stays_where_it_is() {
    struct Moves<'h>(&'h Here<'h>);
    impl Drop for Moves<'_> {
        fn drop(&mut self) {
            let home = self.0.worker();
            self.0.yield_now();
            assert_eq!(self.0.delegate(1, |away| away.worker()), home);
        }
    }
    let runtime = two_clusters(Runtime::PATIENCE);
    let fibre = runtime.spawn(0, |here| {
        let _moves = Moves(here);
        panic!("planted");
    });
    let fibre = fibre.expect("a fibre").join();
    assert_eq!(fibre.expect_err("a panic").downcast_ref(), Some(&"planted"));
}

#[test]
fn delegations_nest_and_each_mode_runs_the_work_where_it_says() {
    let runtime = two_clusters(Runtime::PATIENCE);
    let fibre = runtime.spawn(0, |here| {
        let nested = here.delegate(1, |away| {
            let back = away.delegate(0, |third| third.cluster());
            (back, away.cluster())
        });
        let modes = [Mode::Synchronous, Mode::Yield, Mode::Delegate];
        let ran = modes.map(|mode| here.run(mode, 1, |at| at.cluster()));
        (nested, ran, here.cluster())
    });
    let seen = fibre.expect("a fibre").join().expect("no panic");
    assert_eq!(seen, ((0, 1), [0, 0, 1], 0));
}

#[test]
fn the_fibres_of_a_cluster_spread_over_its_threads() {
    let cpus = two_clusters(Runtime::PATIENCE);
    drop(cpus);
    let wide = Cluster { cpus: vec![0, 0] };
    let Ok(runtime) = Runtime::start(&[wide.clone(), wide]) else {
        println!("skipped: CPU 0 is not allowed here");
        return;
    };
    let at = |_| {
        let body = |here: &Here<'_>| (here.worker(), here.delegate(1, |away| away.worker()));
        runtime
            .spawn(0, body)
            .expect("a fibre")
            .join()
            .expect("no panic")
    };
    let seen: Vec<_> = (0..4).map(at).collect();
    assert_eq!(seen, [(0, 2), (1, 3), (0, 2), (1, 3)]);
}

#[test]
fn dropping_the_runtime_waits_for_every_fibre() {
    let done = Arc::new(AtomicU64::new(0));
    let runtime = two_clusters(Runtime::PATIENCE);
    for _ in 0..20 {
        let done = Arc::clone(&done);
        let body = move |here: &Here<'_>| {
            for _ in 0..10 {
                here.yield_now();
                here.delegate(1, |_| ());
            }
            done.fetch_add(1, Ordering::Relaxed);
        };
        runtime.spawn(0, body).expect("a fibre");
    }
    drop(runtime);
    assert_eq!(done.load(Ordering::Relaxed), 20);
}

#[test]
fn a_cpu_that_is_not_there_is_refused() {
    let none = Runtime::start(&[Cluster { cpus: vec![] }]);
    assert!(matches!(none, Err(StartError::Empty)));
    for cpu in [1023, 5_000_000] {
        let refused = Runtime::start(&[Cluster { cpus: vec![cpu] }]);
        let message = refused.map(|_| ()).expect_err("no such CPU").to_string();
        assert!(message.contains(&format!("CPU {cpu}")), "{message}");
    }
}
