//! What a board knows and whom it wakes.

use super::*;

fn change(kind: Kind, since: u64, at: u64, ends: bool) -> Change {
    Change {
        at: Monotonic(at),
        since: Monotonic(since),
        slot: 0,
        pid: 1,
        kind,
        ends,
    }
}

#[test]
fn the_expected_end_is_learned_from_past_hazards() {
    let board = Board::new(Words::in_memory(1).expect("memory"), 1);
    let now = Monotonic(1_000_000_000);
    assert_eq!(board.expected_end(0, now), now.0);
    board.changed(change(Kind::Collection, 0, 0, false));
    board.changed(change(Kind::Collection, 0, 40_000_000, true));
    board.words.word(0).begin(Kind::Collection, now);
    assert_eq!(board.expected_end(0, now), now.0 + 40_000_000);
    let later = Monotonic(now.0 + 30_000_000);
    assert!(board.expected_end(0, later) >= later.0 + 10_000_000);
    assert_eq!(board.counted(0, Kind::Collection), (1, 40_000_000));
}

#[test]
fn a_change_wakes_who_waits_for_that_replica_only() {
    let board = Board::new(Words::in_memory(2).expect("memory"), 2);
    let (mut ours, mut other) = (board.subscribe(0), board.subscribe(1));
    board.changed(change(Kind::Stopped, 5, 5, false));
    assert!(ours.has_changed().expect("the board lives"));
    assert!(!other.has_changed().expect("the board lives"));
    ours.mark_unchanged();
    other.mark_unchanged();
    assert_eq!(board.latest().len(), 1);
}

#[test]
fn replicas_that_one_process_serves_share_a_word() {
    let board = Board::new(Words::in_memory(3).expect("memory"), 3);
    board.set_word(1, 0);
    let now = Monotonic(1_000_000_000);
    board.word(0).begin(Kind::Stopped, now);
    let stopped = |replica| board.active(replica, now).has(Kind::Stopped);
    assert!(stopped(0) && stopped(1) && !stopped(2));
    let (other, third) = (board.subscribe(1), board.subscribe(2));
    board.changed(change(Kind::Stopped, 5, 5, false));
    assert!(other.has_changed().expect("the board lives"));
    assert!(!third.has_changed().expect("the board lives"));
    assert_eq!(board.counted(1, Kind::Stopped), (1, 0));
    board.forget(0);
    assert!(
        stopped(0) && !stopped(1),
        "the slot is another replica's soon"
    );
}
