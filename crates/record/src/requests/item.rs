//! What a piece of work is made of: times of threads, and waits.

use std::net::SocketAddr;

use tailscope_kernel::{BY_INTERRUPT, is_thread};
use tailscope_signals::abi;
use tailscope_signals::slice::{Share, Shares};

/// So soon after its timer a wait ends. Else who ended it has done something first.
const AT_TIMER_NS: u64 = 500_000;

/// A time of a thread, with what its meter grew by.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) tid: u32,
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) shares: Shares,
}

impl Segment {
    /// The same as a sleep: it waited for a timer, and what came in on sockets was for others. A wait that
    /// another thread ended, as by a pipe or a lock, was not for a timer.
    pub(super) fn into_sleep(mut self) -> Self {
        let is_it = |share: &&mut Share| match u32::from(share.cause) {
            abi::TS_NETWORK => !is_thread(share.who),
            abi::TS_LOCK => share.who == BY_INTERRUPT,
            _ => false,
        };
        for share in self.shares.iter_mut().filter(is_it) {
            (share.cause, share.who) = (abi::TS_SLEEP as u8, BY_INTERRUPT);
        }
        self
    }

    /// The same as a wait for a CPU.
    pub(super) fn into_wait_for_cpu(mut self) -> Self {
        self.shares = Shares::from_iter([Share {
            cause: abi::TS_RUNQUEUE as u8,
            who: 0,
            n: 1,
            ns: self.to - self.from,
        }]);
        self
    }

    /// Whether this wait ended soon after a timer had run out.
    pub(super) fn ends_at(&self, timer: u64) -> bool {
        self.from < timer && timer <= self.to && self.to - timer <= AT_TIMER_NS
    }

    /// Whether nearly all of it is a wait for a lock.
    pub(super) fn is_for_lock(&self) -> bool {
        let for_lock = |share: &&Share| u32::from(share.cause) == abi::TS_LOCK;
        let ns: u64 = self.shares.iter().filter(for_lock).map(|s| s.ns).sum();
        ns * 10 >= (self.to - self.from) * 9
    }

    /// What of it lies after that moment, with a like part of its causes.
    pub(super) fn after(&self, from: u64) -> Self {
        let from = from.clamp(self.from, self.to);
        let (part, whole) = (self.to - from, (self.to - self.from).max(1));
        let of = |ns: u64| (u128::from(ns) * u128::from(part) / u128::from(whole)) as u64;
        let shares = self.shares.iter().map(|share| Share {
            ns: of(share.ns),
            ..*share
        });
        Self {
            tid: self.tid,
            from,
            to: self.to,
            shares: shares.collect(),
        }
    }
}

/// Which request had a thread, and for how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Behind {
    /// Its name, where it has one.
    pub(crate) name: Option<String>,
    /// Its client; `None` for one on a Unix socket.
    pub(crate) peer: Option<SocketAddr>,
    /// How long it took, so far.
    pub(crate) ns: u64,
}

/// What a request did or waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Item {
    /// A thread worked for it.
    Slice(Segment),
    /// A thread went on after it had handed the request to another.
    Tail(Segment),
    /// A thread that was woken for it worked, and nothing has shown for whom: a compiler of the runtime
    /// does not work for the request that made it go on.
    Beside(Segment),
    /// Another server was asked, answered, and was heard; or more of its answer came in.
    Downstream {
        sent: u64,
        ready: u64,
        received: u64,
        /// The inner `None`: a server on a Unix socket. `None`: not known.
        peer: Option<Option<SocketAddr>>,
        connection: Option<i64>,
        /// Another request may have asked: the oldest that could was taken.
        guess: bool,
        /// It is more of an answer.
        again: bool,
    },
    /// It had come before its connection was accepted.
    Accept { from: u64, to: u64 },
    /// It waited for a timer.
    Timer { from: u64, to: u64 },
    /// A thread had it, or was to get it, and was busy with others.
    Queue {
        from: u64,
        to: u64,
        behind: Option<Behind>,
    },
}
