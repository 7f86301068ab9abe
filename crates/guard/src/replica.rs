//! The replicas, and which of them gets a request.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};

use tailscope_signals::clock::Monotonic;
use tailscope_signals::hazard::Kind;
use tokio::sync::Notify;

use crate::board::Board;

/// After a failed connection a replica gets no request for so long, and twice that after the next.
const FIRST_BACKOFF_NS: u64 = 50_000_000;
const LONGEST_BACKOFF_NS: u64 = 2_000_000_000;

/// One server that answers.
#[derive(Debug)]
pub struct Replica {
    /// Where it listens.
    pub address: SocketAddr,
    outstanding: AtomicUsize,
    failures: AtomicU32,
    down_until: AtomicU64,
    /// What health checks say.
    is_well: AtomicBool,
    /// Requests that were sent to it, extra ones too.
    pub requests: AtomicU64,
    /// Connections to it that failed, and requests that it left without an answer.
    pub errors: AtomicU64,
}

impl Replica {
    /// Requests that it has not answered yet.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.outstanding.load(Relaxed)
    }

    /// Whether no connection to it could be made a moment ago, or a health check failed.
    #[must_use]
    pub fn is_down(&self, now: Monotonic) -> bool {
        self.down_until.load(Relaxed) > now.0 || !self.is_well.load(Relaxed)
    }

    /// What a health check found.
    pub fn set_well(&self, is_well: bool) {
        self.is_well.store(is_well, Relaxed);
    }

    /// No connection could be made.
    pub fn failed(&self) {
        self.errors.fetch_add(1, Relaxed);
        let before = self.failures.fetch_add(1, Relaxed);
        let backoff = (FIRST_BACKOFF_NS << before.min(10)).min(LONGEST_BACKOFF_NS);
        self.down_until.store(Monotonic::now().0 + backoff, Relaxed);
    }

    /// A connection was made, or a request was answered.
    pub fn succeeded(&self) {
        if self.failures.load(Relaxed) != 0 {
            self.failures.store(0, Relaxed);
            self.down_until.store(0, Relaxed);
        }
    }
}

/// How good a replica is for a request now: the least is the best.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// No hazard: the fewest outstanding requests.
    Calm(usize),
    /// A hazard: when it is expected to end.
    Hazard(u64),
    /// It can't be reached.
    Down(u64),
}

/// All replicas.
#[derive(Debug)]
pub struct Fleet {
    replicas: Vec<Replica>,
    board: Arc<Board>,
    /// 0: no limit.
    concurrency: usize,
    /// Whether hazards count.
    steers: bool,
    turn: AtomicUsize,
    /// A replica has room again.
    room: Notify,
}

/// A place at a replica, for one request.
#[derive(Debug)]
pub struct Lease {
    fleet: Arc<Fleet>,
    /// The replica's number.
    pub replica: usize,
}

impl Lease {
    /// The replica.
    #[must_use]
    pub fn get(&self) -> &Replica {
        &self.fleet.replicas[self.replica]
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.get().outstanding.fetch_sub(1, Relaxed);
        self.fleet.room.notify_one();
    }
}

impl Fleet {
    /// `concurrency`: requests that one replica gets at a time, 0 without a limit. `steers`: whether
    /// hazards count.
    #[must_use]
    pub fn new(
        addresses: &[SocketAddr],
        board: Arc<Board>,
        concurrency: usize,
        steers: bool,
    ) -> Self {
        let replica = |address: &SocketAddr| Replica {
            address: *address,
            outstanding: AtomicUsize::new(0),
            failures: AtomicU32::new(0),
            down_until: AtomicU64::new(0),
            is_well: AtomicBool::new(true),
            requests: AtomicU64::new(0),
            errors: AtomicU64::new(0),
        };
        Self {
            replicas: addresses.iter().map(replica).collect(),
            board,
            concurrency,
            steers,
            turn: AtomicUsize::new(0),
            room: Notify::new(),
        }
    }

    /// Each of them, by its number.
    #[must_use]
    pub fn replicas(&self) -> &[Replica] {
        &self.replicas
    }

    /// What is known of their hazards.
    #[must_use]
    pub fn board(&self) -> &Board {
        &self.board
    }

    /// The best replica except these. `None`: those that are good enough are full, or there is none.
    #[must_use]
    pub fn pick(self: &Arc<Self>, except: &[usize]) -> Option<Lease> {
        let (_, best, has_room) = self.best(except)?;
        has_room.then(|| self.lease(best))
    }

    /// The best replica except this one, if it has room and no hazard.
    #[must_use]
    pub fn pick_calm(self: &Arc<Self>, except: usize) -> Option<Lease> {
        match self.best(&[except])? {
            (Rank::Calm(_), best, true) => Some(self.lease(best)),
            _ => None,
        }
    }

    /// The best replica, waiting until it has room. `None`: there is no other than these.
    pub async fn pick_waiting(self: &Arc<Self>, except: &[usize]) -> Option<Lease> {
        loop {
            let room = self.room.notified();
            if let Some(lease) = self.pick(except) {
                return Some(lease);
            }
            self.best(except)?;
            // A hazard that begins or ends makes another one the best.
            let mut any = self.board.subscribe_all();
            tokio::select! {
                () = room => {}
                _ = any.changed() => {}
            }
        }
    }

    /// Whether another replica than this one is in a hazard now, so that a request passed it by.
    #[must_use]
    pub fn has_hazard_besides(&self, replica: usize) -> bool {
        if !self.steers {
            return false;
        }
        let now = Monotonic::now();
        let here = self.board.active(replica, now).is_empty();
        here && (0..self.replicas.len())
            .any(|i| i != replica && !self.board.active(i, now).is_empty())
    }

    /// A place at this replica, full or not.
    #[must_use]
    pub fn lease(self: &Arc<Self>, replica: usize) -> Lease {
        self.replicas[replica].outstanding.fetch_add(1, Relaxed);
        Lease {
            fleet: Arc::clone(self),
            replica,
        }
    }

    /// The best one with its rank, and whether it has room.
    fn best(&self, except: &[usize]) -> Option<(Rank, usize, bool)> {
        let now = Monotonic::now();
        let count = self.replicas.len();
        let turn = self.turn.fetch_add(1, Relaxed);
        (0..count)
            .map(|i| (i + turn) % count)
            .filter(|i| !except.contains(i))
            .map(|i| (self.rank(i, now), i))
            .min_by(|a, b| a.0.cmp(&b.0))
            .map(|(rank, i)| {
                let is_full =
                    self.concurrency > 0 && self.replicas[i].outstanding() >= self.concurrency;
                (rank, i, !is_full)
            })
    }

    fn rank(&self, replica: usize, now: Monotonic) -> Rank {
        let here = &self.replicas[replica];
        let active = self.board.active(replica, now);
        if here.is_down(now) || active.has(Kind::Gone) {
            Rank::Down(here.down_until.load(Relaxed))
        } else if self.steers && !active.is_empty() {
            Rank::Hazard(self.board.expected_end(replica, now))
        } else {
            Rank::Calm(here.outstanding())
        }
    }
}

#[cfg(test)]
mod tests {
    use tailscope_signals::hazard::Words;

    use super::*;

    fn fleet(concurrency: usize) -> Arc<Fleet> {
        let words = Words::in_memory(3).expect("memory");
        let board = Arc::new(Board::new(words, 3));
        let addresses: Vec<SocketAddr> = (1..=3).map(|i| ([127, 0, 0, 1], i).into()).collect();
        Arc::new(Fleet::new(&addresses, board, concurrency, true))
    }

    fn hazard(fleet: &Fleet, replica: usize, kind: Kind) {
        fleet
            .board()
            .words()
            .word(replica as u32)
            .begin(kind, Monotonic::now());
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
    fn a_replica_in_a_hazard_gets_nothing_while_another_is_calm() {
        let fleet = fleet(0);
        hazard(&fleet, 0, Kind::Collection);
        hazard(&fleet, 2, Kind::Gone);
        for _ in 0..20 {
            assert_eq!(fleet.pick(&[]).map(|lease| lease.replica), Some(1));
        }
        assert!(fleet.pick_calm(1).is_none());
    }

    #[test]
    fn where_all_are_in_a_hazard_the_one_that_ends_first_is_taken() {
        let fleet = fleet(0);
        hazard(&fleet, 0, Kind::Stopped);
        hazard(&fleet, 1, Kind::Collection);
        hazard(&fleet, 2, Kind::Gone);
        assert_eq!(fleet.pick(&[]).map(|lease| lease.replica), Some(1));
        assert_eq!(fleet.pick(&[1]).map(|lease| lease.replica), Some(0));
        assert_eq!(fleet.pick(&[0, 1]).map(|lease| lease.replica), Some(2));
        assert!(fleet.pick(&[0, 1, 2]).is_none());
    }

    #[test]
    fn a_full_replica_is_waited_for() {
        let fleet = fleet(1);
        let mut leases: Vec<Lease> = (0..3).filter_map(|_| fleet.pick(&[])).collect();
        assert_eq!(leases.len(), 3);
        assert!(fleet.pick(&[]).is_none());
        let gone = leases.pop().expect("three").replica;
        assert_eq!(fleet.pick(&[]).map(|lease| lease.replica), Some(gone));
    }

    #[test]
    fn a_replica_that_refuses_connections_is_left_out_for_a_while() {
        let fleet = fleet(0);
        fleet.replicas()[0].failed();
        assert!((0..10).all(|_| fleet.pick(&[]).is_some_and(|lease| lease.replica != 0)));
        fleet.replicas()[0].succeeded();
        assert!((0..10).any(|_| fleet.pick(&[]).is_some_and(|lease| lease.replica == 0)));
    }
}
