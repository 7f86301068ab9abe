//! What threads did, as pieces of time without holes: a thread runs, has something on top of it,
//! waits for a CPU, or is blocked, and each event that changes this ends a piece.

mod cpu;
mod spans;

use std::collections::{HashMap, HashSet};

use tailscope_signals::event::{Event, OnTop, Socket, What};

use crate::classes::Classes;
use crate::compilation::Compilations;
use crate::monitor::Monitors;
use crate::pause::Pauses;
use cpu::Cpu;
pub use spans::Spans;

/// Who woke a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Waker {
    /// A thread.
    Thread(u32),
    /// What ran on top of one.
    OnTop(OnTop),
    /// It was not seen.
    Unknown,
}

/// What a thread did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Doing {
    /// Its own instructions, or the kernel's for it.
    Running,
    /// Something ran on top of it.
    Interrupted(OnTop),
    /// A page fault, on the CPU.
    Fault,
    /// It could run, and another had the CPU in whose queue it was: the one that had it longest in
    /// this time; `Some(0)`: nobody, the CPU was idle.
    Waiting {
        /// The CPU; where migrations are not told, the one on which it then ran.
        cpu: u32,
        /// The thread.
        behind: Option<u32>,
        /// It was made to leave the CPU.
        preempted: bool,
    },
    /// It waited for something.
    Blocked {
        /// In a page fault.
        fault: bool,
        /// Who ended that.
        by: Waker,
    },
    /// The trace does not say: it begins later.
    Unknown,
}

/// A piece of a thread's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// From when, in ns.
    pub from: u64,
    /// Until when.
    pub to: u64,
    /// The thread.
    pub tid: u32,
    /// What it did.
    pub doing: Doing,
    /// The system call that it was in.
    pub call: Option<u16>,
}

/// A class that is loaded so long after another, in ns of its thread's own time, goes with it. First
/// requests of a search server were 65 to 76 % class loading, linking and initialising by their JVM's
/// own clocks (its counter `sun.cls.time`); by this rule 66 % of their CPU time, by 1 ms 88 %, by 100 µs
/// 35 %, and by initialisations alone 23 %. Where classes are larger or the machine is slower it says
/// less than is true.
const BURST_NS: u64 = 300_000;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum State {
    #[default]
    Unknown,
    On {
        cpu: u32,
    },
    Off {
        preempted: bool,
    },
    Blocked {
        by: Waker,
    },
}

/// A thread that is woken is put into a CPU's queue within so long, in ns, by its waker.
const PLACED_NS: u64 = 50_000;

#[derive(Debug, Default)]
struct Thread {
    state: State,
    since: u64,
    /// The CPU in whose queue it is.
    queue: Option<u32>,
    /// The CPU on which it was woken and is not put into a queue yet.
    placing: Option<u32>,
    call: Option<u16>,
    fault: bool,
    pieces: Vec<Piece>,
    turns: Vec<(u64, Socket)>,
}

/// Follows threads through events that come in the order of their time.
#[derive(Debug)]
pub struct Tracks {
    spans: Spans,
    processes: HashSet<u32>,
    threads: HashMap<u32, Thread>,
    members: HashMap<u32, u32>,
    cpus: HashMap<u32, Cpu>,
    pauses: Pauses,
    monitors: Monitors,
    classes: Classes,
    compilations: Compilations,
}

impl Tracks {
    /// Keeps what the threads of these processes, and these threads, do in these spans.
    #[must_use]
    pub fn new(spans: Spans, processes: HashSet<u32>, threads: &[u32]) -> Self {
        let mut tracks = Self {
            spans,
            processes,
            threads: HashMap::new(),
            members: HashMap::new(),
            cpus: HashMap::new(),
            pauses: Pauses::default(),
            monitors: Monitors::default(),
            classes: Classes::default(),
            compilations: Compilations::default(),
        };
        for &tid in threads {
            tracks.threads.insert(tid, Thread::default());
        }
        tracks
    }

    /// Takes the next event, of a CPU.
    pub fn take(&mut self, number: u32, event: &Event) {
        let now = event.at;
        match event.what {
            What::Switch {
                process,
                state,
                preempted,
                to,
                to_process,
            } => {
                self.belongs(event.tid, process);
                self.belongs(to, to_process);
                let cpu = self.cpus.entry(number).or_default();
                cpu.switch(event.tid, to, now);
                let leaves = if state == 0 {
                    State::Off { preempted }
                } else {
                    State::Blocked { by: Waker::Unknown }
                };
                self.turn(event.tid, now, |_| leaves);
                self.change(event.tid, |thread| thread.queue = Some(number));
                // Nobody has woken it since the trace began, so it could run all along.
                self.change(to, |thread| {
                    if thread.state == State::Unknown {
                        thread.state = State::Off { preempted: false };
                    }
                });
                self.turn(to, now, |_| State::On { cpu: number });
                self.change(to, |thread| thread.queue = Some(number));
            }
            What::Waking { thread, process } => {
                self.belongs(thread, process);
                let by = self
                    .cpus
                    .get(&number)
                    .and_then(Cpu::top)
                    .map_or(Waker::Thread(event.tid), Waker::OnTop);
                // One that has not left the CPU yet goes on without a wait.
                let blocked = |state| matches!(state, State::Blocked { .. } | State::Unknown);
                if let Some(woken) = self.threads.get_mut(&thread)
                    && blocked(woken.state)
                {
                    if let State::Blocked { by: who } = &mut woken.state {
                        *who = by;
                    }
                    self.turn(thread, now, |_| State::Off { preempted: false });
                    self.change(thread, |woken| woken.placing = Some(number));
                }
            }
            What::Migrate { thread, cpu } => self.migrate(number, thread, cpu, now),
            What::Enter(on_top) => {
                self.cut(number, event.tid, now);
                self.cpus.entry(number).or_default().enter(on_top);
            }
            What::Leave(on_top) => {
                self.cut(number, event.tid, now);
                self.cpus.entry(number).or_default().leave(on_top);
            }
            What::SyscallIn { number: call, .. } => {
                self.cut(number, event.tid, now);
                self.change(event.tid, |thread| {
                    thread.call = Some(call);
                    thread.fault = false;
                });
            }
            What::SyscallOut { .. } => {
                self.cut(number, event.tid, now);
                self.change(event.tid, |thread| {
                    thread.call = None;
                    thread.fault = false;
                });
            }
            What::FaultIn { .. } | What::FaultOut => {
                self.cut(number, event.tid, now);
                let fault = event.what != What::FaultOut;
                self.change(event.tid, |thread| thread.fault = fault);
            }
            What::Receive { socket, .. } | What::Send { socket, .. } => {
                let kept = self.spans.touch(now, now);
                self.change(event.tid, |thread| {
                    if kept {
                        thread.turns.push((now, socket));
                    }
                });
            }
            What::Jvm { .. } => {
                let kept = self.spans.touch(now, now);
                let process = self.members.get(&event.tid).copied();
                self.pauses.take(event, || process);
                self.monitors.take(event, kept);
                self.classes.take(event, kept, process);
                self.compilations.take(event, kept);
            }
            What::Text(_) => {
                self.pauses.take(event, || None);
                self.monitors.take(event, false);
            }
            _ => {}
        }
    }

    /// When JVMs stood still.
    #[must_use]
    pub fn pauses(&self) -> &Pauses {
        &self.pauses
    }

    /// When threads waited for monitors.
    #[must_use]
    pub fn monitors(&self) -> &Monitors {
        &self.monitors
    }

    /// What threads did for classes.
    #[must_use]
    pub fn classes(&self) -> &Classes {
        &self.classes
    }

    /// When methods were compiled.
    #[must_use]
    pub fn compilations(&self) -> &Compilations {
        &self.compilations
    }

    /// When a thread was at classes within `from..to`: from the begin of an initialisation to its end,
    /// and from one such moment or loaded class to the next that follows so soon, by the time that
    /// the thread itself ran, that little else fits between. A load alone has no length, as only ends
    /// are told.
    #[must_use]
    pub fn at_classes(&self, tid: u32, from: u64, to: u64) -> Vec<(u64, u64)> {
        let loaded = self.classes.loaded(tid, from, to).iter();
        let mut all: Vec<_> = loaded.map(|at| (*at, *at)).collect();
        all.extend(self.classes.initialized(tid, from, to));
        all.sort_unstable();
        let mut apart: Vec<(u64, u64)> = Vec::new();
        for (begin, end) in all {
            match apart.last_mut() {
                Some(last) if begin <= last.1 || self.ran(tid, last.1, begin) <= BURST_NS => {
                    last.1 = last.1.max(end);
                }
                _ => apart.push((begin, end)),
            }
        }
        apart.retain(|(begin, end)| end > begin);
        apart
    }

    /// So long did a thread itself run, its page faults included; what is not known counts.
    fn ran(&self, tid: u32, from: u64, to: u64) -> u64 {
        let own = |doing| matches!(doing, Doing::Running | Doing::Fault | Doing::Unknown);
        let pieces = self.pieces(tid, from, to);
        let of = pieces.iter().filter(|piece| own(piece.doing));
        of.map(|piece| piece.to - piece.from).sum()
    }

    /// A thread goes to another queue. What it waited for in the old one ends there.
    fn migrate(&mut self, number: u32, tid: u32, to: u32, now: u64) {
        let Some(thread) = self.threads.get_mut(&tid) else {
            return;
        };
        let placed = thread.placing.take() == Some(number) && now - thread.since <= PLACED_NS;
        if matches!(thread.state, State::Off { .. }) && !placed {
            self.turn(tid, now, |state| state);
        }
        self.change(tid, |thread| thread.queue = Some(to));
    }

    fn belongs(&mut self, tid: u32, process: u32) {
        if self.processes.contains(&process) && tid != 0 {
            self.threads.entry(tid).or_default();
            self.members.insert(tid, process);
        }
    }

    fn change(&mut self, tid: u32, change: impl FnOnce(&mut Thread)) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            change(thread);
        }
    }

    /// Ends a piece of the thread that this CPU is with, whose state stays.
    fn cut(&mut self, cpu: u32, tid: u32, now: u64) {
        // That it is here is told by whatever it does, before the first switch too.
        self.turn(tid, now, |state| match state {
            State::Unknown => State::On { cpu },
            state => state,
        });
        self.cpus.entry(cpu).or_default().seen(tid, now);
    }

    /// Ends a piece, and changes the state.
    fn turn(&mut self, tid: u32, now: u64, next: impl FnOnce(State) -> State) {
        let Some(thread) = self.threads.get_mut(&tid) else {
            return;
        };
        let after = next(thread.state);
        let doing = match thread.state {
            State::Unknown => Doing::Unknown,
            State::On { cpu } => {
                // At a switch nothing is on top of anybody any more.
                match self.cpus.get(&cpu).and_then(Cpu::top) {
                    Some(on_top) => Doing::Interrupted(on_top),
                    None if thread.fault => Doing::Fault,
                    None => Doing::Running,
                }
            }
            State::Off { preempted } => {
                let cpu = match after {
                    State::On { cpu } => Some(cpu),
                    _ => thread.queue,
                };
                Doing::Waiting {
                    cpu: cpu.unwrap_or_default(),
                    behind: cpu
                        .and_then(|cpu| self.cpus.get(&cpu))
                        .and_then(|cpu| cpu.longest(thread.since, now)),
                    preempted,
                }
            }
            State::Blocked { by } => Doing::Blocked {
                fault: thread.fault,
                by,
            },
        };
        if now > thread.since && self.spans.touch(thread.since, now) {
            thread.pieces.push(Piece {
                from: thread.since,
                to: now,
                tid,
                doing,
                call: thread.call,
            });
        }
        thread.since = now;
        thread.state = after;
    }

    /// Ends all pieces: the trace is over.
    pub fn finish(&mut self, now: u64) {
        let all: Vec<u32> = self.threads.keys().copied().collect();
        for tid in all {
            self.turn(tid, now, |state| state);
        }
    }

    /// What a thread did from `from` to `to`, without holes.
    #[must_use]
    pub fn pieces(&self, tid: u32, from: u64, to: u64) -> Vec<Piece> {
        let all = self
            .threads
            .get(&tid)
            .map_or(&[][..], |thread| &thread.pieces);
        let first = all.partition_point(|piece| piece.to <= from);
        let mut cut: Vec<Piece> = Vec::new();
        let unknown = |from, to| Piece {
            from,
            to,
            tid,
            doing: Doing::Unknown,
            call: None,
        };
        let mut at = from;
        for piece in all[first..].iter().take_while(|piece| piece.from < to) {
            if piece.from > at {
                cut.push(unknown(at, piece.from));
            }
            let piece = Piece {
                from: piece.from.max(at),
                to: piece.to.min(to),
                ..*piece
            };
            at = piece.to;
            cut.push(piece);
        }
        if at < to {
            cut.push(unknown(at, to));
        }
        cut
    }

    /// When a thread last received from or sent to another socket than this, within `from..to`.
    #[must_use]
    pub fn busy_until(&self, tid: u32, socket: Socket, from: u64, to: u64) -> Option<u64> {
        let turns = &self.threads.get(&tid)?.turns;
        let end = turns.partition_point(|(at, _)| *at < to);
        turns[..end]
            .iter()
            .rev()
            .take_while(|(at, _)| *at >= from)
            .find(|(_, other)| *other != socket)
            .map(|(at, _)| *at)
    }

    /// The process that a thread was seen to be of.
    #[must_use]
    pub fn process(&self, tid: u32) -> Option<u32> {
        self.members.get(&tid).copied()
    }
}
