use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

use super::super::counters::Counted;
use super::super::counters::tests::put;
use super::super::perf::tests::page;
use super::*;

/// Faults that were no reading of ours.
static OTHERS: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" fn take_others(_signal: i32) {
    OTHERS.fetch_add(1, Relaxed);
}

/// Where user space may not read counters, or no longer may, a reading faults for real.
#[test]
fn a_reading_that_faults_counts_nothing_and_other_faults_go_where_they_went() {
    let page = page(48, 1, 1000);
    let mine = sigaction {
        sa_sigaction: take_others as unsafe extern "C" fn(i32) as usize,
        ..UNHANDLED
    };
    let mut was = UNHANDLED;
    // SAFETY: handlers of this test, in place while it runs.
    assert_eq!(unsafe { sigaction(FAULT, &mine, &mut was) }, 0);
    set();
    let counted = Counted::new();
    with_thread(0, |thread| {
        // SAFETY: one page, which outlives its use here.
        unsafe { thread.counters.take((&raw const page).cast(), 4096, 7, 1) };
        thread.counters.turn.set(2);
        thread.counters.read(&counted, None);
        assert!(
            !thread.counters.are_read(),
            "no fault: user space may read counters"
        );
        assert_eq!(thread.counters.turn.get(), 2);
        assert!(!thread.counters.is_reading.load(Relaxed));
        thread.counters.read(&counted, None);
        assert_eq!(put(&thread.counters, &counted, &counted), [7]);
        thread.counters.forget();
    });
    assert_eq!(OTHERS.load(Relaxed), 0);
    // SAFETY: sends itself a signal that has a handler.
    assert_eq!(unsafe { raise(FAULT) }, 0);
    assert_eq!(OTHERS.load(Relaxed), 1);
    lift();
    let mut now = UNHANDLED;
    // SAFETY: back to what was there.
    assert_eq!(unsafe { sigaction(FAULT, &was, &mut now) }, 0);
    assert_eq!(now.sa_sigaction, mine.sa_sigaction);
}
