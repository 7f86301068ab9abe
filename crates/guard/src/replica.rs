//! The replicas, and which of them gets a request.

use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};

use tailscope_signals::clock::Monotonic;
use tailscope_signals::hazard::Kind;
use tokio::sync::Notify;

use crate::board::{Board, Hold};
use crate::silence::Signs;

/// After a failed connection a replica gets no request for so long, and twice that after the next.
const FIRST_BACKOFF_NS: u64 = 50_000_000;
const LONGEST_BACKOFF_NS: u64 = 2_000_000_000;

/// A silent replica is ranked as if it had this number of requests more. It is not ranked as a pausing
/// one: all its other workers may be idle.
const SILENT: usize = 2;

/// One server that answers.
#[derive(Debug)]
pub struct Replica {
    /// Where it listens.
    pub address: SocketAddr,
    /// Its number: the slot of its hazard word.
    pub slot: usize,
    signs: Arc<Signs>,
    failures: AtomicU32,
    down_until: AtomicU64,
    /// What health checks say.
    is_well: AtomicBool,
    /// Requests that were sent to it, extra ones too.
    pub requests: AtomicU64,
    /// Connections to it that failed, and requests that it left without an answer.
    pub errors: AtomicU64,
    /// It has room again, or another one has.
    room: Arc<Notify>,
}

impl Replica {
    fn new(address: SocketAddr, slot: usize, board: &Board, room: &Arc<Notify>) -> Arc<Self> {
        Arc::new(Self {
            address,
            slot,
            signs: Arc::clone(board.signs(slot)),
            failures: AtomicU32::new(0),
            down_until: AtomicU64::new(0),
            is_well: AtomicBool::new(true),
            requests: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            room: Arc::clone(room),
        })
    }

    /// A place at this replica, full or not.
    #[must_use]
    pub fn lease(self: &Arc<Self>) -> Lease {
        self.signs.begin();
        Lease {
            replica: Arc::clone(self),
            is_awaited: Cell::new(true),
        }
    }

    /// Requests that it has not answered yet.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.signs.outstanding()
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
        self.signs.answered();
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
    /// It is kept from requests for a while: the fewest outstanding ones.
    Held(usize),
    /// A hazard: when it is expected to end.
    Hazard(u64),
    /// It can't be reached.
    Down(u64),
}

/// All replicas.
#[derive(Debug)]
pub struct Fleet {
    replicas: Vec<Arc<Replica>>,
    board: Arc<Board>,
    /// 0: no limit.
    concurrency: usize,
    /// Whether hazards count.
    steers: bool,
    turn: AtomicUsize,
    room: Arc<Notify>,
}

/// A place at a replica, for one request.
#[derive(Debug)]
pub struct Lease {
    /// The replica.
    pub replica: Arc<Replica>,
    is_awaited: Cell<bool>,
}

impl Lease {
    /// The answer has begun, or depends on what the client sends: the replica is not silent for want of
    /// it.
    pub fn stop_awaiting(&self) {
        if self.is_awaited.replace(false) {
            self.replica.signs.stop_awaiting();
        }
    }

    /// The replica's number.
    #[must_use]
    pub fn slot(&self) -> usize {
        self.replica.slot
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.stop_awaiting();
        self.replica.signs.end();
        self.replica.room.notify_one();
    }
}

impl Fleet {
    /// With replicas at these addresses, each in the slot of its number. `steers`: hazards count.
    #[must_use]
    pub fn new(
        addresses: &[SocketAddr],
        board: Arc<Board>,
        concurrency: usize,
        steers: bool,
    ) -> Self {
        let room = Arc::new(Notify::new());
        let numbered = addresses.iter().enumerate();
        Self {
            replicas: numbered
                .map(|(slot, address)| Replica::new(*address, slot, &board, &room))
                .collect(),
            board,
            concurrency,
            steers,
            turn: AtomicUsize::new(0),
            room,
        }
    }

    /// The fleet of these addresses, in place of this one. A replica that stays keeps its slot and its
    /// counts. `None`: there is no slot left, as `others` still have requests at theirs.
    #[must_use]
    pub fn next(
        &self,
        addresses: &[SocketAddr],
        others: &[Arc<Self>],
        concurrency: usize,
        steers: bool,
    ) -> Option<Self> {
        let known = || {
            let others = others.iter().flat_map(|fleet| &fleet.replicas);
            self.replicas.iter().chain(others)
        };
        let mut free = (0..self.board.slots()).filter(|slot| known().all(|one| one.slot != *slot));
        let mut replicas = Vec::new();
        for address in addresses {
            replicas.push(match known().find(|one| one.address == *address) {
                Some(one) => Arc::clone(one),
                None => Replica::new(*address, free.next()?, &self.board, &self.room),
            });
        }
        drop(free);
        Some(Self {
            replicas,
            board: Arc::clone(&self.board),
            concurrency,
            steers,
            turn: AtomicUsize::new(0),
            room: Arc::clone(&self.room),
        })
    }

    /// How many replicas there may be.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.board.slots()
    }

    /// Whether one of them is in this slot.
    #[must_use]
    pub fn has(&self, slot: usize) -> bool {
        self.replicas.iter().any(|one| one.slot == slot)
    }

    /// Each of them.
    #[must_use]
    pub fn replicas(&self) -> &[Arc<Replica>] {
        &self.replicas
    }

    /// What is known of their hazards.
    #[must_use]
    pub fn board(&self) -> &Board {
        &self.board
    }

    /// The best replica except these. `None`: those that are good enough are full, or there is none.
    #[must_use]
    pub fn pick(&self, except: &[usize]) -> Option<Lease> {
        let (_, best, has_room) = self.best(except)?;
        has_room.then(|| best.lease())
    }

    /// The best replica except this one, if it has room and no hazard: one that is not silent, if there
    /// is any. `lively`: no other.
    #[must_use]
    pub fn pick_calm(&self, except: usize, lively: bool) -> Option<Lease> {
        let now = Monotonic::now();
        let speaks = |one: &Replica| one.slot != except && !self.is_silent(one, now);
        let best = match self.best_of(speaks) {
            None if !lively => self.best(&[except]),
            best => best,
        };
        match best? {
            (Rank::Calm(_), best, true) => Some(best.lease()),
            _ => None,
        }
    }

    /// The best replica, waiting until it has room. `None`: there is no other than these.
    pub async fn pick_waiting(&self, except: &[usize]) -> Option<Lease> {
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
        here && self
            .replicas
            .iter()
            .any(|one| one.slot != replica && !self.board.active(one.slot, now).is_empty())
    }

    /// The best one with its rank, and whether it has room.
    fn best(&self, except: &[usize]) -> Option<(Rank, &Arc<Replica>, bool)> {
        self.best_of(|one| !except.contains(&one.slot))
    }

    fn best_of(&self, may: impl Fn(&Replica) -> bool) -> Option<(Rank, &Arc<Replica>, bool)> {
        let now = Monotonic::now();
        let turn = self.turn.fetch_add(1, Relaxed) % self.replicas.len().max(1);
        let (before, after) = self.replicas.split_at(turn);
        after
            .iter()
            .chain(before)
            .filter(|one| may(one))
            .map(|one| (self.rank(one, now), one))
            .min_by(|a, b| a.0.cmp(&b.0))
            .map(|(rank, one)| {
                let is_full = self.concurrency > 0 && one.outstanding() >= self.concurrency;
                (rank, one, !is_full)
            })
    }

    fn is_silent(&self, replica: &Replica, now: Monotonic) -> bool {
        self.steers && self.board.is_silent(replica.slot, now)
    }

    fn rank(&self, replica: &Replica, now: Monotonic) -> Rank {
        let active = self.board.active(replica.slot, now);
        if replica.is_down(now) || active.has(Kind::Gone) {
            Rank::Down(replica.down_until.load(Relaxed))
        } else if self.steers && !active.is_empty() {
            Rank::Hazard(self.board.expected_end(replica.slot, now))
        } else if self.steers && self.board.is_held(replica.slot, Hold::Collects) {
            // As if it had begun: a request that comes now would wait for its end.
            let usual = self.board.usual_ns(replica.slot, Kind::Collection);
            Rank::Hazard(now.0 + usual)
        } else if self.steers && self.board.is_held_at_all(replica.slot) {
            Rank::Held(replica.outstanding())
        } else {
            let more = if self.is_silent(replica, now) {
                SILENT
            } else {
                0
            };
            Rank::Calm(replica.outstanding() + more)
        }
    }
}

#[cfg(test)]
mod tests;
