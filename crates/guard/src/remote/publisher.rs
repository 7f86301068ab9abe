//! Reports the hazards of this machine's replicas to the guards that subscribe.

mod places;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tailscope_kernel::drop_all_capabilities;
use tailscope_signals::clock::Monotonic;
use tailscope_signals::hazard::Kind;
use tokio::net::UdpSocket;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use self::places::Places;
use super::key::{Key, Nonce, nonce};
use super::message::{LONGEST, Report, State, Subscription};
use super::{HEARTBEAT, LEASE, counts_from};
use crate::board::{Board, Coverage};
use crate::watcher::{Say, Watcher};

/// Guards that are served at a time.
const MOST_GUARDS: usize = 64;
/// Datagrams that are read before reports are sent again.
const MOST_READS: usize = 64;
/// Two reports to a guard are never closer: so a flapping hazard does not flood it.
const GAP: Duration = Duration::from_millis(1);
/// What has changed is sent again so soon, for a datagram may be lost.
const AGAIN: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(10)];

/// Watches replicas for guards, and reports.
pub struct Publisher {
    address: SocketAddr,
    socket: UdpSocket,
    runtime: Arc<Runtime>,
    key: Key,
    /// Makes the cookies; it ends with this process.
    secret: Key,
    began: Instant,
    sequence: u64,
    guards: Vec<Subscriber>,
    places: Places,
    watcher: Arc<Watcher>,
    board: Arc<Board>,
    say: Say,
    was_full: bool,
}

/// A guard that gets reports.
struct Subscriber {
    address: SocketAddr,
    nonce: Nonce,
    replicas: Vec<SocketAddr>,
    /// The latest subscription's number.
    sequence: u64,
    until: Instant,
    sent: Vec<Option<State>>,
    sent_at: Instant,
    due: Instant,
    /// How often the same was sent.
    repeats: usize,
}

impl Publisher {
    /// Of what a watcher and its board know. The calling thread loses all capabilities.
    ///
    /// # Errors
    /// If the address can't be used, or the system refuses a socket, a thread or random numbers.
    pub fn bind(
        address: SocketAddr,
        key: Key,
        (watcher, board): (Watcher, Arc<Board>),
        say: Say,
    ) -> io::Result<Self> {
        let runtime = Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()?;
        let socket = runtime.block_on(UdpSocket::bind(address))?;
        drop_all_capabilities().map_err(io::Error::other)?;
        Ok(Self {
            address: socket.local_addr()?,
            socket,
            runtime: Arc::new(runtime),
            key,
            secret: Key::of(&nonce()?),
            began: Instant::now(),
            sequence: counts_from(),
            guards: Vec::new(),
            places: Places::default(),
            watcher: Arc::new(watcher),
            board,
            say,
            was_full: false,
        })
    }

    /// Where guards subscribe.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Reports until `ends` says so.
    pub fn run(mut self, ends: impl Fn() -> bool) {
        let runtime = Arc::clone(&self.runtime);
        runtime.block_on(self.serve(ends));
    }

    async fn serve(&mut self, ends: impl Fn() -> bool) {
        let mut changes = self.board.subscribe_all();
        let (done, mut searched) = unbounded_channel();
        while !ends() {
            let now = Instant::now();
            let due = self.guards.iter().map(|guard| guard.due).min();
            let due = due.unwrap_or(now + HEARTBEAT).min(now + HEARTBEAT);
            tokio::select! {
                _ = changes.changed() => {}
                _ = self.socket.readable() => self.receive(),
                Some(search) = searched.recv() => self.places.searched(search),
                () = tokio::time::sleep_until(due.into()) => {}
            }
            let now = Instant::now();
            self.forget(now);
            self.search(&done);
            self.publish(now);
        }
    }

    fn receive(&mut self) {
        let mut bytes = [0; LONGEST];
        for _ in 0..MOST_READS {
            // An error of an earlier report may come here: its guard has ended.
            match self.socket.try_recv_from(&mut bytes) {
                Ok((length, from)) => {
                    if let Some(asked) = Subscription::decode(&bytes[..length], &self.key) {
                        self.subscribe(from, asked);
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => {}
            }
        }
    }

    fn subscribe(&mut self, from: SocketAddr, asked: Subscription) {
        let now = Instant::now();
        let age = self.age();
        let known = [age, age.saturating_sub(1)];
        if !known
            .iter()
            .any(|age| self.cookie(from, *age) == asked.cookie)
        {
            // Who forges the sender's address does not see this, and can't answer it.
            self.send(from, asked.nonce, Vec::new());
            return;
        }
        let at = self.guards.iter().position(|guard| guard.address == from);
        if at.is_none() && self.guards.len() == MOST_GUARDS {
            if !std::mem::replace(&mut self.was_full, true) {
                (self.say)(&format!(
                    "the guard at {from} gets no reports: {MOST_GUARDS} others do"
                ));
            }
            return;
        }
        let at = at.unwrap_or_else(|| {
            let replicas = asked.replicas.iter().map(ToString::to_string);
            let replicas = replicas.collect::<Vec<_>>().join(", ");
            (self.say)(&format!("the guard at {from} subscribes to {replicas}"));
            self.guards.push(Subscriber {
                address: from,
                nonce: asked.nonce,
                replicas: Vec::new(),
                sequence: 0,
                until: now,
                sent: Vec::new(),
                sent_at: now,
                due: now,
                repeats: AGAIN.len(),
            });
            self.guards.len() - 1
        });
        let guard = &mut self.guards[at];
        if asked.sequence <= guard.sequence {
            return; // an old one, sent again
        }
        guard.sequence = asked.sequence;
        guard.nonce = asked.nonce;
        guard.until = now + LEASE;
        guard.due = now; // so that it learns that the new number is known
        if guard.replicas != asked.replicas {
            guard.replicas = asked.replicas;
            guard.sent = Vec::new();
            let all = self.guards.iter().flat_map(|guard| &guard.replicas);
            self.places.want(all.copied());
        }
    }

    /// Guards that have not subscribed again get nothing more.
    fn forget(&mut self, now: Instant) {
        let before = self.guards.len();
        for left in self.guards.extract_if(.., |guard| guard.until < now) {
            (self.say)(&format!("the guard at {} has left", left.address));
        }
        if self.guards.len() < before {
            self.was_full = false;
            let all = self.guards.iter().flat_map(|guard| &guard.replicas);
            self.places.want(all.copied());
        }
    }

    /// Searches for the processes of replicas that are new. It takes ms, in which reports go on.
    fn search(&mut self, done: &UnboundedSender<u64>) {
        let Some((search, targets)) = self.places.next_search() else {
            return;
        };
        let (watcher, done) = (Arc::clone(&self.watcher), done.clone());
        tokio::task::spawn_blocking(move || {
            watcher.watch(targets);
            let _ = done.send(search); // nobody waits once the publisher ends
        });
    }

    fn publish(&mut self, now: Instant) {
        let clock = Monotonic::now();
        for at in 0..self.guards.len() {
            let guard = &self.guards[at];
            let states = guard.replicas.iter();
            let states: Vec<Option<State>> = states.map(|one| self.state(*one, clock)).collect();
            let same = states.len() == guard.sent.len()
                && states.iter().zip(&guard.sent).all(|(a, b)| {
                    a.is_some() == b.is_some() && a.iter().zip(b).all(|(a, b)| a.is_like(b))
                });
            let guard = &mut self.guards[at];
            if !same && now - guard.sent_at < GAP {
                guard.due = guard.due.min(guard.sent_at + GAP);
            } else if !same || guard.due <= now {
                guard.repeats = if same { guard.repeats + 1 } else { 0 };
                guard.due = now + AGAIN.get(guard.repeats).copied().unwrap_or(HEARTBEAT);
                guard.sent_at = now;
                guard.sent.clone_from(&states);
                let (to, nonce) = (guard.address, guard.nonce);
                self.send(to, nonce, states);
            }
        }
    }

    /// What is known of a replica. `None`: its processes are still searched for.
    fn state(&self, replica: SocketAddr, now: Monotonic) -> Option<State> {
        let Some(slot) = self.places.slot(replica) else {
            return Some(State::unknown());
        };
        if !self.places.is_known(slot) {
            return None;
        }
        let slot = slot as usize;
        let word = self.board.word(slot);
        let holds = word.read(now);
        let coverage = match self.board.coverage(slot) {
            // Its processes were watched until then.
            Coverage::None if holds.has(Kind::Gone) => Coverage::Polled,
            coverage => coverage,
        };
        let age = |kind| {
            let ns = now.0.saturating_sub(word.since(kind).0);
            holds
                .has(kind)
                .then(|| u32::try_from(ns / 1000).unwrap_or(u32::MAX))
        };
        Some(State {
            coverage,
            incarnation: word.incarnation(),
            life: self.board.life(slot),
            hazards: Kind::ALL.map(age),
        })
    }

    fn send(&mut self, to: SocketAddr, nonce: Nonce, replicas: Vec<Option<State>>) {
        self.sequence += 1;
        let report = Report {
            nonce,
            cookie: self.cookie(to, self.age()),
            sequence: self.sequence,
            replicas,
        };
        // Where it can't be sent now, the next one may be.
        let _ = self.socket.try_send_to(&report.encode(&self.key), to);
    }

    /// How old this process is. A cookie is accepted at the age of its making and at the next: no longer
    /// than a lease, in which a subscription that is sent again is known by its number.
    fn age(&self) -> u64 {
        self.began.elapsed().as_secs() / (LEASE.as_secs() / 2)
    }

    /// What only this publisher can make, and only who has this address gets to know.
    fn cookie(&self, of: SocketAddr, age: u64) -> Nonce {
        self.secret.code(format!("{of} {age}").as_bytes())
    }
}
