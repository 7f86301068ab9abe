use proptest::prelude::*;
use tailscope_signals::slice::{Share, Shares};

use super::*;

fn slice(from: u64, to: u64) -> Item {
    Item::Slice(Segment {
        tid: 1,
        from,
        to,
        shares: Shares::new(),
    })
}

fn downstream(sent: u64, ready: u64, received: u64) -> Item {
    Item::Downstream {
        sent,
        ready,
        received,
        peer: None,
        connection: Some(4),
        guess: false,
        again: false,
    }
}

fn request(ready: u64, ended: u64) -> Request {
    Request {
        ready,
        ended,
        ..Request::default()
    }
}

fn work(items: Vec<Item>) -> Work {
    Work {
        items,
        ..Work::default()
    }
}

#[test]
fn time_between_slices_is_what_it_waited_for() {
    let items = vec![
        slice(100, 200),
        downstream(200, 500, 560),
        slice(560, 600),
        Item::Queue {
            from: 40,
            to: 100,
            behind: None,
        },
    ];
    let row = account(&request(50, 700), &work(items)).row;
    assert_eq!((row.begin, row.wall), (50, 650));
    assert_eq!(row.request.downstream_ns, 300);
    assert_eq!(row.queue_ns, 50 + 60);
    assert_eq!(row.request.unknown_ns, 100);
}

#[test]
fn the_call_that_took_longest_is_remembered() {
    let items = vec![downstream(100, 110, 120), downstream(200, 500, 560)];
    let links = account(&request(50, 700), &work(items)).links;
    let (sent, ready) = (200, 500);
    let connection = 4;
    assert_eq!(
        links.asked,
        Some(Asked {
            connection,
            sent,
            ready
        })
    );
}

#[test]
fn causes_of_a_slice_that_reaches_out_count_in_part() {
    let share = Share {
        cause: 3,
        who: 9,
        n: 1,
        ns: 80,
    };
    let segment = Segment {
        tid: 1,
        from: 0,
        to: 100,
        shares: Shares::from_iter([share]),
    };
    let row = account(&request(50, 100), &work(vec![Item::Slice(segment)])).row;
    assert_eq!((row.ns[3], row.n[3], row.who[3]), (40, 1, 9));
    assert_eq!(row.request.unknown_ns, 0);
}

#[test]
fn of_two_threads_that_have_it_the_one_that_works_counts() {
    let cause = abi::TS_PREEMPTED as u8;
    let (who, n, ns) = (0, 1, 500);
    let waits = Segment {
        tid: 2,
        from: 100,
        to: 600,
        shares: Shares::from_iter([Share { cause, who, n, ns }]),
    };
    let items = vec![Item::Slice(waits), slice(300, 500)];
    let row = account(&request(100, 600), &work(items)).row;
    assert_eq!(row.ns[usize::from(cause)], 300);
}

#[test]
fn a_thread_that_waits_after_it_handed_the_request_on_holds_nothing_up() {
    let tail = |from, to, cause, ns| {
        let (who, n) = (0, 1);
        let shares = Shares::from_iter([Share { cause, who, n, ns }]);
        let tid = 1;
        Item::Tail(Segment {
            tid,
            from,
            to,
            shares,
        })
    };
    let (preempted, irq) = (abi::TS_PREEMPTED as u8, abi::TS_IRQ as u8);
    let items = vec![
        slice(100, 200),
        tail(200, 400, preempted, 190),
        tail(400, 410, irq, 1),
        downstream(200, 500, 500),
        slice(550, 600),
    ];
    let row = account(&request(100, 600), &work(items.clone())).row;
    assert_eq!(row.request.downstream_ns, 290);
    assert_eq!(row.ns[usize::from(preempted)], 0);
    assert_eq!((row.ns[usize::from(irq)], row.request.unknown_ns), (1, 50));
    // If nothing else is known of that time, that is known.
    let items: Vec<_> = items.into_iter().take(3).collect();
    let row = account(&request(100, 600), &work(items)).row;
    assert_eq!(row.ns[usize::from(preempted)], 190);
}

proptest! {
    #[test]
    fn every_moment_counts_once(
        ready in 0u64..1000, wall in 0u64..1000,
        parts in proptest::collection::vec((0u8..4, 0u64..2000, 0u64..500, 0u64..500), 0..20),
    ) {
        let items = parts.iter().map(|&(kind, from, a, b)| match kind {
            0 => slice(from, from + a),
            1 => downstream(from, from + a, from + a + b),
            2 => Item::Timer { from, to: from + a },
            _ => Item::Queue { from, to: from + a, behind: None },
        });
        let items: Vec<_> = items.collect();
        let row = account(&request(ready, ready + wall), &work(items.clone())).row;
        let covered = |at: u64| items.iter().any(|item| match item {
            Item::Slice(s) => s.from <= at && at < s.to,
            _ => false,
        });
        let running = (ready..ready + wall).filter(|at| covered(*at)).count() as u64;
        let request = row.request;
        let slept = row.ns[abi::TS_SLEEP as usize];
        let waited = row.queue_ns + request.downstream_ns + slept + request.unknown_ns;
        prop_assert_eq!(running + waited, wall);
    }
}
