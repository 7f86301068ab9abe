use super::super::perf::{USER_READS, tests::page as made};
use super::*;

fn counted(value: u64, enabled: u64, running: u64, offset: u64) -> Counted {
    let counted = Counted::new();
    counted.value[0].set(value);
    counted.enabled.set(enabled);
    counted.running.set(running);
    counted.offset.set(offset);
    counted.known.set(1);
    counted
}

#[test]
fn what_was_counted_while_the_group_was_on_stands_for_the_whole_span() {
    let mut state = 88172645463325252u64;
    let mut any = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..100_000 {
        let (on, off) = (1 + any() % 1_000_000, any() % 1_000_000);
        let (rate, first, own) = (1 + any() % 100, any(), any() % 50);
        let last = first.wrapping_add(own + rate * on);
        let (begin, end) = (
            counted(first, 7, 3, 0),
            counted(last, 7 + on + off, 3 + on, 0),
        );
        let share = share_of((&begin, 0), (&end, 0));
        assert_eq!(share == 0, off > on);
        assert!(off != 0 || share == WHOLE);
        if share != 0 {
            let found = scaled(less(first, last, own), share);
            // The share has 32 bits.
            let truth = rate * (on + off);
            assert!(
                (truth..=truth + rate + 1).contains(&found),
                "{found} {truth}"
            );
        }
    }
    assert_eq!(less(5, 9, 10), 0); // less than what reading costs
    assert_eq!(less(u64::MAX, 9, 0), 10); // the total wrapped
}

#[test]
fn time_since_the_last_switch_counts() {
    let begin = counted(0, 1000, 1000, -100_000i64 as u64);
    let end = counted(0, 5000, 2000, -300_000i64 as u64);
    // From 100,000 to 310,000 ns: wanted for 210,000 + 4,000 − 200,000, and 3,000 of these off.
    let share = share_of((&begin, 100_000), (&end, 310_000));
    assert_eq!(share, (11_000 << 32) / 14_000);
}

/// The words behind a row.
pub(in super::super) fn put(counters: &Counters, begin: &Counted, end: &Counted) -> Vec<u64> {
    let mut words = Vec::new();
    counters.put((begin, 0), (end, 0), |word| words.push(word));
    words
}

#[test]
fn a_row_has_what_is_known_at_both_ends_less_what_reading_costs() {
    let counters = Counters::none();
    counters.group.set(7);
    counters.count.store(3, Relaxed);
    counters.every.store(0b111, Relaxed);
    counters.own[0].set(11);
    let (begin, end) = (Counted::new(), Counted::new());
    for (number, (first, last)) in [(984, 1495), (1, 2), (100, 400)].into_iter().enumerate() {
        begin.value[number].set(first);
        end.value[number].set(last);
    }
    begin.known.set(0b111);
    end.known.set(0b101); // one is off the CPU
    assert_eq!(put(&counters, &begin, &end), [0b101 << 16 | 7, 500, 300]);
    end.known.set(0b111);
    assert_eq!(put(&counters, &begin, &end), [0b111 << 16 | 7, 500, 1, 300]);
    // Switched out and in again, all together.
    end.known.set(0b111 | MOVED);
    assert_eq!(put(&counters, &begin, &end), [0b111 << 16 | 7, 500, 1, 300]);
    // Off for a while, and nobody tells the time: unknown.
    end.enabled.set(10);
    assert_eq!(put(&counters, &begin, &end), [7]);
    // A turn that began in the span: of other events, or of these from 0 on.
    end.known.set(0b111);
    counters.turn.set(4);
    assert_eq!(put(&counters, &begin, &end), [7]);
}

#[test]
fn events_that_are_off_the_cpu_are_not_known() {
    let page = made(48, 0, 1000);
    let counters = Counters::none();
    let now = Counted::new();
    counters.read(&now, None);
    assert_eq!(now.known.get(), 0);
    // SAFETY: one page, which outlives its use here.
    unsafe { counters.take((&raw const page).cast(), 4096, 7, 1) };
    assert!(page.can(USER_READS) && counters.are_read());
    counters.read(&now, None);
    assert_eq!((now.known.get(), now.value[0].get()), (0, 1000));
    assert_eq!(counters.unused.get(), 16);
    counters.forget();
    assert!(!counters.are_read());
}

#[test]
fn the_least_of_some_empty_spans_is_what_reading_costs() {
    let counters = Counters::none();
    let next = Cell::new(0);
    let counts = [30, 12, 50, 14];
    counters.calibrate(|| {
        assert!(counters.is_calibrating());
        counters.take_least(
            &counted(100, 0, 0, 0),
            &counted(100 + counts[next.get()], 0, 0, 0),
        );
        next.set(next.get() + 1);
    });
    assert_eq!((counters.own[0].get(), counters.own[1].get()), (12, 0));
    assert!(!counters.is_calibrating());
}
