//! Collections that meet no request: a JVM whose eden is nearly full gets no new requests, is asked to
//! collect once it has answered those it has, and is then taken back.

use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use tailscope_signals::clock::Monotonic;

use super::{Seat, Work};
use crate::attach;
use crate::board::Hold;
use crate::hsperf::Eden;

/// A replica is drained at the latest when its eden is full by this share, and not below the other.
const NEARLY_FULL: f64 = 0.8;
const HALF_FULL: f64 = 0.4;
/// Room is kept for this multiple of the time that drains usually take.
const MARGIN: f64 = 1.5;
/// How long a drain takes before any was seen.
const FIRST_GUESS: Duration = Duration::from_millis(50);
/// The speed at which eden fills is measured over so long.
const STRETCH: Duration = Duration::from_millis(50);
/// It is taken back if it has not answered its requests after so long.
const MOST: Duration = Duration::from_millis(500);
/// After it was kept from requests for so long, it gets some for at least this multiple of that: a
/// full collection takes longer than those that the JVM itself would make.
const REST: u32 = 4;
/// After this number of collections that did not empty its eden, a replica is not asked again.
const MOST_VAIN: u32 = 3;

/// How far the draining of one replica is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// It gets requests.
    Serves,
    /// It gets no more, and may still have some.
    Empties(Instant),
    /// It was asked to collect.
    Collects(Instant),
}

/// What is known of a replica now.
#[derive(Debug, Clone, Copy)]
struct Facts {
    /// How full its eden is.
    fill: f64,
    outstanding: usize,
    /// JVMs that are drained in turns, this one too.
    turns: usize,
    /// Another one is calm, and none is drained.
    may: bool,
    /// Whether it was asked, and has not answered.
    is_asked: bool,
}

/// How fast an eden fills, as a share of it a second: the latest stretch has a quarter of the weight.
#[derive(Debug, Default)]
struct Filling {
    /// When it was looked at, and how full it was.
    seen: Option<(Instant, f64)>,
    speed: f64,
}

impl Filling {
    fn look(&mut self, fill: f64, now: Instant) {
        match self.seen {
            // A collection has emptied it.
            Some((_, before)) if fill < before => self.seen = Some((now, fill)),
            Some((at, before)) if now.duration_since(at) >= STRETCH => {
                let speed = (fill - before) / now.duration_since(at).as_secs_f64();
                self.speed += (speed - self.speed) / 4.0;
                self.seen = Some((now, fill));
            }
            Some(_) => {}
            None => self.seen = Some((now, fill)),
        }
    }
}

/// The draining of one replica.
#[derive(Debug)]
struct Draining {
    state: State,
    rests_until: Option<Instant>,
    vain: u32,
    filling: Filling,
    /// How long it is usually kept from requests: the latest time has a quarter of the weight.
    usual: Duration,
}

impl Default for Draining {
    fn default() -> Self {
        Self {
            state: State::Serves,
            rests_until: None,
            vain: 0,
            filling: Filling::default(),
            usual: FIRST_GUESS,
        }
    }
}

impl Draining {
    fn is_held(&self) -> bool {
        self.state != State::Serves
    }

    /// How full its eden is when it is to be drained. Replicas that get the same load fill at the
    /// same time, and are drained one after the other. While the first are, the last one still fills,
    /// and gets their share of the load too.
    fn limit(&self, turns: usize) -> f64 {
        let room = MARGIN * turns as f64 * self.filling.speed * self.usual.as_secs_f64();
        (1.0 - room).clamp(HALF_FULL, NEARLY_FULL)
    }

    /// Goes on. True: it is to be asked to collect now.
    fn step(&mut self, facts: Facts, now: Instant) -> bool {
        if !self.is_held() {
            self.filling.look(facts.fill, now);
        }
        let is_full = facts.fill >= self.limit(facts.turns);
        match self.state {
            State::Serves => {
                let rests = self.rests_until.is_some_and(|until| now < until);
                if is_full && facts.may && !rests && self.vain < MOST_VAIN {
                    self.state = State::Empties(now);
                }
                false
            }
            // It has collected by itself.
            State::Empties(since) if !is_full => self.take_back(since, now),
            State::Empties(since) if facts.outstanding == 0 => {
                self.state = State::Collects(since);
                true
            }
            State::Empties(since) if now.duration_since(since) > MOST => self.take_back(since, now),
            State::Collects(since) if !facts.is_asked => {
                self.vain = if is_full { self.vain + 1 } else { 0 };
                self.take_back(since, now)
            }
            State::Empties(_) | State::Collects(_) => false,
        }
    }

    fn take_back(&mut self, since: Instant, now: Instant) -> bool {
        let took = now.duration_since(since);
        self.state = State::Serves;
        self.rests_until = Some(now + took * REST);
        self.usual = self.usual * 3 / 4 + took / 4;
        self.filling.seen = None;
        false
    }
}

/// What is kept of one replica's JVM.
#[derive(Debug, Default)]
pub(super) struct Drain {
    /// The process, and its eden.
    eden: Option<(u32, Eden)>,
    draining: Draining,
    asked: Option<Receiver<Result<(), String>>>,
}

impl Drain {
    /// These are its processes now. Several JVMs behind one address are not drained.
    pub(super) fn of(&mut self, pids: &[u32], is_due: bool) {
        let [pid] = pids else {
            *self = Self::default();
            return;
        };
        if self.eden.as_ref().is_some_and(|(known, _)| known != pid) {
            *self = Self::default();
        }
        if self.eden.is_none() && is_due {
            self.eden = Eden::of(*pid).map(|eden| (*pid, eden));
        }
    }

    /// Whether it is kept from requests.
    pub(super) fn is_held(&self) -> bool {
        self.draining.is_held()
    }

    /// Why it can't be drained.
    pub(super) fn impossible(&self) -> Option<&'static str> {
        match &self.eden {
            None => Some("it is not one JVM with counters of an eden"),
            // No JVM has used nothing by the time this is asked.
            Some((_, eden)) if eden.fill() == 0.0 => {
                Some("its JVM does not count what its eden holds; G1 does in all versions")
            }
            Some(_) => None,
        }
    }

    /// The answer to the latest question, once. An error is worth telling.
    fn answered(&mut self) -> Option<String> {
        let answer = match self.asked.as_ref()?.try_recv() {
            Ok(answer) => answer.err(),
            Err(TryRecvError::Empty) => return None,
            Err(TryRecvError::Disconnected) => Some("the thread that asks it has ended".into()),
        };
        self.asked = None;
        answer
    }

    fn ask(&mut self) {
        let Some((pid, _)) = self.eden else { return };
        let (sender, answer) = channel();
        self.asked = Some(answer);
        // It may take as long as a collection takes.
        let ask = move || {
            let _ = sender.send(attach::collect(pid));
        };
        let _ = std::thread::Builder::new()
            .name("collect".into())
            .spawn(ask);
    }
}

impl Work {
    /// Drains at most one replica at a time, and only while another one is calm.
    pub(super) fn drain(&mut self) {
        if !self.drains {
            return;
        }
        let now = Monotonic::now();
        let board = &self.board;
        let is_calm = |seat: &Seat| {
            let is_free = board.active(seat.slot as usize, now).is_empty();
            !seat.pids.is_empty() && is_free
        };
        let calm = self.seats.iter().filter(|seat| is_calm(seat)).count();
        let mut is_one_held = self.seats.iter().any(|one| one.drain.is_held());
        let turns = self.seats.iter().filter(|one| one.drain.eden.is_some());
        let turns = turns.count();
        for seat in &mut self.seats {
            let slot = seat.slot as usize;
            let others = calm - usize::from(is_calm(seat));
            if let Some(why) = seat.drain.answered() {
                let pid = seat.pids.first().unwrap_or(&0);
                (self.say)(&format!("can't ask process {pid} to collect: {why}"));
                seat.drain.draining.vain = MOST_VAIN;
            }
            let eden = seat.drain.eden.as_ref();
            let facts = Facts {
                fill: eden.map_or(0.0, |(_, eden)| eden.fill()),
                outstanding: board.signs(slot).outstanding(),
                turns,
                may: others > 0 && !is_one_held,
                is_asked: seat.drain.asked.is_some(),
            };
            if seat.drain.draining.step(facts, Instant::now()) {
                seat.drain.ask();
                board.asked(slot);
            }
            let is_held = seat.drain.is_held();
            is_one_held |= is_held;
            let collects = matches!(seat.drain.draining.state, State::Collects(_));
            board.hold(slot, Hold::Collects, collects);
            board.hold(slot, Hold::Drains, is_held);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: Facts = Facts {
        fill: 0.9,
        outstanding: 2,
        turns: 2,
        may: true,
        is_asked: false,
    };

    #[test]
    fn a_replica_collects_when_it_is_empty_and_rests_afterwards() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut draining = Draining::default();
        assert!(!draining.step(Facts { fill: 0.5, ..FULL }, at(0)) && !draining.is_held());
        assert!(!draining.step(Facts { may: false, ..FULL }, at(0)) && !draining.is_held());
        assert!(!draining.step(FULL, at(0)) && draining.is_held());
        assert!(!draining.step(FULL, at(10)) && draining.is_held());
        let idle = Facts {
            outstanding: 0,
            may: false,
            ..FULL
        };
        assert!(draining.step(idle, at(20)), "it is asked once");
        let asked = Facts {
            is_asked: true,
            ..idle
        };
        assert!(!draining.step(asked, at(30)) && draining.is_held());
        assert!(!draining.step(Facts { fill: 0.0, ..idle }, at(100)) && !draining.is_held());
        assert!(!draining.step(FULL, at(499)) && !draining.is_held());
        assert!(!draining.step(FULL, at(500)) && draining.is_held());
    }

    #[test]
    fn an_eden_that_fills_fast_is_drained_sooner() {
        let start = Instant::now();
        let mut draining = Draining::default();
        let mut at = |ms: u64, fill: f64| {
            let now = start + Duration::from_millis(ms);
            draining.step(Facts { fill, ..FULL }, now);
            (draining.limit(2), draining.is_held())
        };
        assert_eq!(at(0, 0.0), (NEARLY_FULL, false));
        // Four times a second. A drain takes 50 ms.
        let filled = [at(50, 0.2), at(100, 0.4), at(150, 0.6)];
        let (limit, is_held) = filled[2];
        assert!((0.6..0.7).contains(&limit) && !is_held, "{limit}");
        assert!(at(160, 0.7).1, "before it is full by 0.8");
    }

    #[test]
    fn a_replica_that_stays_busy_or_full_is_taken_back() {
        let start = Instant::now();
        let mut draining = Draining::default();
        draining.step(FULL, start);
        assert!(!draining.step(FULL, start + MOST * 2) && !draining.is_held());
        let mut now = start + MOST * 100;
        for _ in 0..MOST_VAIN {
            draining.step(FULL, now);
            assert!(draining.step(
                Facts {
                    outstanding: 0,
                    ..FULL
                },
                now
            ));
            now += MOST;
            draining.step(FULL, now); // answered, and as full as before
            assert!(!draining.is_held());
            now += MOST * 100;
        }
        draining.step(FULL, now);
        assert!(!draining.is_held(), "it is asked no more");
    }
}
