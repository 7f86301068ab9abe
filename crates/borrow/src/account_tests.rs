use super::*;

const SECOND: u64 = 1_000_000_000;

fn usage(batch_ns: u64, idle_ns: u64) -> Usage {
    Usage {
        batch_ns,
        idle_ns,
        cpus: vec![0],
        ..Usage::default()
    }
}

fn switched(on: bool, from_ns: u64, usage: Usage) -> Message {
    Message::Switched {
        on,
        from_ns,
        now_ns: from_ns + 1_000_000,
        usage,
    }
}

fn span(start_ns: u64, wall_ns: u64) -> Span {
    Span {
        start_ns,
        wall_ns,
        waited_ns: wall_ns / 10,
    }
}

/// An account of phases of a second, on and off in turns, with a request each millisecond that
/// takes 2 µs with lending and 1 µs without.
fn played(seconds: u64, slo: Option<Slo>) -> Account {
    let mut account = Account::new(slo);
    let mut batch_ns = 0;
    for second in 0..seconds {
        let on = second % 2 == 0;
        let from = second * SECOND;
        account.hear(&switched(on, from, usage(batch_ns, 0)));
        for ms in 0..1000 {
            let wall = if on { 2_000 } else { 1_000 };
            account.enter(span(from + ms * 1_000_000 + 500_000, wall));
        }
        batch_ns += if on { SECOND / 2 } else { 0 };
        account.assign(|_, _| {});
    }
    account
}

#[test]
fn requests_belong_to_the_phase_in_which_they_began() {
    let mut account = played(60, None);
    account.close();
    let [on, off, change] = account.quantiles(&[0.5], Intervals::With)[0];
    assert!((on.value.expect("many") - 2_000.0).abs() < 20.0);
    assert!((off.value.expect("many") - 1_000.0).abs() < 10.0);
    assert!((change.value.expect("many") - 1.0).abs() < 0.02);
    assert!(change.low.is_some_and(|low| low > 0.9));
    // The request in the first ms comes before the batch is known to run: of a switch it is the
    // one during it, and five of the guard.
    assert_eq!(account.lost, 0);
    let counted = account.on.requests + account.off.requests + account.between;
    assert_eq!(counted, account.requests());
    assert!(account.between >= 59 * 6 - 6 && account.between <= 60 * 7);
    assert_eq!(account.on.waited_ns / account.on.requests, 200);
}

#[test]
fn a_request_waits_until_its_phase_is_known() {
    let mut account = Account::new(None);
    account.hear(&switched(true, 0, usage(0, 0)));
    account.enter(span(2 * SECOND, 1_000));
    let mut seen = Vec::new();
    account.assign(|on, span| seen.push((on, span.wall_ns)));
    assert!(seen.is_empty());
    account.hear(&switched(false, SECOND, usage(0, 0)));
    account.hear(&Message::Tick {
        now_ns: 3 * SECOND,
        usage: usage(0, 0),
    });
    account.assign(|on, span| seen.push((on, span.wall_ns)));
    assert_eq!(seen, [(false, 1_000)]);
}

#[test]
fn memory_is_bounded_and_what_is_lost_is_counted() {
    let mut account = Account::new(None);
    (0..MOST_WAITING as u64 + 7).for_each(|ns| account.enter(span(ns, 1)));
    assert_eq!((account.waiting.len(), account.lost), (MOST_WAITING, 7));
    let account = played(3 * MOST_BLOCKS as u64, None);
    assert!(account.blocks.len() < MOST_BLOCKS);
    assert!(account.phases.len() < 30, "{}", account.phases.len());
}

#[test]
fn time_is_charged_to_the_phase_in_which_it_passed() {
    let mut account = Account::new(None);
    account.hear(&switched(true, 0, usage(0, 0)));
    account.hear(&Message::Tick {
        now_ns: SECOND,
        usage: usage(900_000_000, 0),
    });
    account.hear(&switched(false, SECOND, usage(900_000_000, 0)));
    account.hear(&Message::Tick {
        now_ns: 2 * SECOND,
        usage: usage(900_000_000, 700_000_000),
    });
    assert_eq!(
        (account.on.batch_ns, account.off.batch_ns),
        (900_000_000, 0)
    );
    assert_eq!((account.on.idle_ns, account.off.idle_ns), (0, 700_000_000));
    assert!(account.on.time_ns.abs_diff(SECOND) <= 2_000_000);
    assert_eq!(account.elapsed_ns(), 2 * SECOND - 1_000_000);
}

#[test]
fn windows_hold_the_slo_or_not() {
    let slow = Slo {
        quantile: 0.4,
        limit_ns: 1_500,
    };
    let mut account = played(40, Some(slow));
    account.close();
    assert_eq!(account.windows(), [4, 0, 0]);
    let strict = Slo {
        quantile: 0.9,
        ..slow
    };
    let mut account = played(40, Some(strict));
    account.close();
    assert_eq!(account.windows(), [0, 4, 0]);
}

#[test]
fn phases_are_long_beside_the_tail() {
    let mut account = played(2, None);
    assert_eq!(account.shortest_phase_ns(), SHORTEST_NS);
    account.hear(&switched(true, 2 * SECOND, usage(0, 0)));
    account.hear(&Message::Tick {
        now_ns: 4 * SECOND,
        usage: usage(0, 0),
    });
    (0..3000).for_each(|i| account.enter(span(2 * SECOND + i * 1_000, 50_000_000)));
    account.assign(|_, _| {});
    let shortest = account.shortest_phase_ns();
    assert!(
        (990_000_000..1_010_000_000).contains(&shortest),
        "{shortest}"
    );
}
