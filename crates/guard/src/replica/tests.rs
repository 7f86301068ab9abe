//! A fleet and its leases.

use std::time::Duration;

use tailscope_signals::hazard::Words;

use super::*;

fn fleet(concurrency: usize) -> Arc<Fleet> {
    let words = Words::in_memory(5).expect("memory");
    let board = Arc::new(Board::new(words, 5));
    let addresses: Vec<SocketAddr> = (1..=3).map(|i| ([127, 0, 0, 1], i).into()).collect();
    Arc::new(Fleet::new(&addresses, board, concurrency, true))
}

fn hazard(fleet: &Fleet, replica: usize, kind: Kind) {
    fleet.board().word(replica).begin(kind, Monotonic::now());
}

#[test]
fn the_fewest_outstanding_requests_win() {
    let fleet = fleet(0);
    let leases: Vec<Lease> = (0..30).filter_map(|_| fleet.pick(&[])).collect();
    assert!(fleet.replicas().iter().all(|r| r.outstanding() == 10));
    drop(leases);
    assert!(fleet.replicas().iter().all(|r| r.outstanding() == 0));
}

#[test]
fn one_that_is_about_to_collect_gets_nothing_while_another_is_back_sooner() {
    let fleet = fleet(0);
    let board = fleet.board();
    board.hold(0, Hold::Drains, true);
    hazard(&fleet, 1, Kind::Safepoint);
    hazard(&fleet, 2, Kind::Gone);
    assert_eq!(fleet.pick(&[]).map(|lease| lease.slot()), Some(0));
    board.hold(0, Hold::Collects, true);
    assert_eq!(fleet.pick(&[]).map(|lease| lease.slot()), Some(1));
}

#[test]
fn a_replica_in_a_hazard_gets_nothing_while_another_is_calm() {
    let fleet = fleet(0);
    hazard(&fleet, 0, Kind::Collection);
    hazard(&fleet, 2, Kind::Gone);
    for _ in 0..20 {
        assert_eq!(fleet.pick(&[]).map(|lease| lease.slot()), Some(1));
    }
    assert!(fleet.pick_calm(1, false).is_none());
}

#[test]
fn a_replica_that_is_held_gets_requests_only_where_no_other_can_take_them() {
    let fleet = fleet(0);
    fleet.board().hold(0, Hold::Drains, true);
    hazard(&fleet, 1, Kind::Collection);
    assert_eq!(fleet.pick(&[]).map(|lease| lease.slot()), Some(2));
    hazard(&fleet, 2, Kind::Collection);
    assert_eq!(fleet.pick(&[]).map(|lease| lease.slot()), Some(0));
    assert!(fleet.pick_calm(1, false).is_none());
    fleet.board().hold(0, Hold::Drains, false);
    assert_eq!(fleet.pick_calm(1, false).map(|lease| lease.slot()), Some(0));
}

#[test]
fn where_all_are_in_a_hazard_the_one_that_ends_first_is_taken() {
    let fleet = fleet(0);
    hazard(&fleet, 0, Kind::Stopped);
    hazard(&fleet, 1, Kind::Collection);
    hazard(&fleet, 2, Kind::Gone);
    assert_eq!(fleet.pick(&[]).map(|lease| lease.slot()), Some(1));
    assert_eq!(fleet.pick(&[1]).map(|lease| lease.slot()), Some(0));
    assert_eq!(fleet.pick(&[0, 1]).map(|lease| lease.slot()), Some(2));
    assert!(fleet.pick(&[0, 1, 2]).is_none());
}

#[test]
fn a_full_replica_is_waited_for() {
    let fleet = fleet(1);
    let mut leases: Vec<Lease> = (0..3).filter_map(|_| fleet.pick(&[])).collect();
    assert_eq!(leases.len(), 3);
    assert!(fleet.pick(&[]).is_none());
    let gone = leases.pop().expect("three").slot();
    assert_eq!(fleet.pick(&[]).map(|lease| lease.slot()), Some(gone));
}

#[test]
fn a_replica_that_stays_keeps_its_slot_and_one_that_leaves_keeps_it_while_it_is_used() {
    let first = fleet(0);
    let at = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
    let lease = first.pick(&[1, 2]).expect("room");
    let second = first.next(&[at(9), at(3)], &[], 0, true).expect("slots");
    let slots: Vec<usize> = second.replicas().iter().map(|one| one.slot).collect();
    assert_eq!(slots, [3, 2]);
    assert!(Arc::ptr_eq(&second.replicas()[1], &first.replicas()[2]));
    let third = second.next(&[at(1)], &[Arc::clone(&first)], 0, true);
    assert_eq!(third.expect("slots").replicas()[0].outstanding(), 1);
    drop(lease);
    let many: Vec<SocketAddr> = (100..103).map(at).collect();
    assert!(second.next(&many, &[first], 0, true).is_none(), "full");
}

#[test]
fn a_replica_that_refuses_connections_is_left_out_for_a_while() {
    let fleet = fleet(0);
    fleet.replicas()[0].failed();
    assert!((0..10).all(|_| fleet.pick(&[]).is_some_and(|lease| lease.slot() != 0)));
    fleet.replicas()[0].succeeded();
    assert!((0..10).any(|_| fleet.pick(&[]).is_some_and(|lease| lease.slot() == 0)));
}

#[test]
fn a_replica_that_is_silent_gets_less_until_it_answers() {
    let fleet = fleet(0);
    let [first, second, third] = [0, 1, 2].map(|i| Arc::clone(&fleet.replicas()[i]));
    let _elsewhere = [second.lease(), third.lease(), third.lease()];
    let _here = first.lease();
    let picks = |count: usize| {
        let leases: Vec<Lease> = (0..count).filter_map(|_| fleet.pick(&[])).collect();
        leases.iter().map(Lease::slot).collect::<Vec<_>>()
    };
    // As long as nothing is known of latencies, nobody is silent.
    assert!((0..3).any(|_| picks(1) == [0]));
    let board = fleet.board();
    board.set_slow(Duration::from_secs(1));
    let mut changes = board.subscribe(0);
    // Seen from an hour later, so that the others are not silent by now.
    let later = Monotonic(Monotonic::now().0 + 3_600_000_000_000);
    assert!(board.is_silent(0, later) && board.is_silent(0, Monotonic::now()));
    board.set_slow(Duration::from_secs(36_000));
    assert!(picks(2).iter().all(|slot| *slot != 0));
    assert!(
        changes.has_changed().expect("the board lives"),
        "who waits there is woken"
    );
    changes.mark_unchanged();
    // Even if it has the fewest requests, it is the last that gets an extra one.
    let calm = |lively| fleet.pick_calm(1, lively).map(|lease| lease.slot());
    assert_eq!((calm(true), calm(false)), (Some(2), Some(2)));
    fleet.board().word(2).begin(Kind::Stopped, Monotonic::now());
    assert_eq!(calm(true), None);
    fleet.board().word(2).end(Kind::Stopped);
    first.succeeded();
    fleet.board().set_slow(Duration::from_secs(60));
    assert!((0..3).any(|_| picks(1) == [0]));
}
