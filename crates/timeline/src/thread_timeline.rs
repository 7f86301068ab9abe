//! What threads did, as intervals of time without holes: a thread runs, has something on top of it,
//! waits for a CPU, or is blocked, and each event that changes this ends an interval.

mod account;
mod cpu;
mod interval;
mod spans;

use std::collections::{HashMap, HashSet};

use tailscope_signals::event::{Event, Socket, What};

use crate::classes::Classes;
use crate::compilation::Compilations;
use crate::monitor::Monitors;
use crate::pause::Pauses;
use crate::ticks::{Tick, Ticks};
use cpu::Cpu;
pub use interval::{Interval, ThreadState, Waker};
pub use spans::Spans;

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
    /// It was woken on its way off the CPU, before the switch.
    woken: bool,
    call: Option<u16>,
    fault: bool,
    intervals: Vec<Interval>,
    turns: Vec<(u64, Socket)>,
}

/// Follows threads through events that come in the order of their time.
#[derive(Debug)]
pub struct ThreadTimelines {
    spans: Spans,
    processes: HashSet<u32>,
    threads: HashMap<u32, Thread>,
    members: HashMap<u32, u32>,
    cpus: HashMap<u32, Cpu>,
    pauses: Pauses,
    monitors: Monitors,
    classes: Classes,
    compilations: Compilations,
    ticks: Ticks,
    /// When threads with real-time priority left a CPU.
    real_time: HashMap<u32, Vec<u64>>,
}

impl ThreadTimelines {
    /// Keeps what the threads of these processes, and these threads, do in these spans.
    #[must_use]
    pub fn new(spans: Spans, processes: HashSet<u32>, threads: &[u32]) -> Self {
        let mut timelines = Self {
            spans,
            processes,
            threads: HashMap::new(),
            members: HashMap::new(),
            cpus: HashMap::new(),
            pauses: Pauses::default(),
            monitors: Monitors::default(),
            classes: Classes::default(),
            compilations: Compilations::default(),
            ticks: Ticks::default(),
            real_time: HashMap::new(),
        };
        for &tid in threads {
            timelines.threads.insert(tid, Thread::default());
        }
        timelines
    }

    /// Takes the next event, of a CPU.
    pub fn take(&mut self, number: u32, event: &Event) {
        let (now, tid) = (event.at, event.tid);
        match event.what {
            What::Switch {
                process,
                state,
                preempted,
                real_time,
                to,
                to_process,
            } => {
                if real_time && self.spans.touch(now, now) {
                    self.real_time.entry(tid).or_default().push(now);
                }
                self.belongs(tid, process);
                self.belongs(to, to_process);
                let leaves = if state == 0 {
                    State::Off { preempted }
                } else {
                    State::Blocked { by: Waker::Unknown }
                };
                self.switch(number, (tid, leaves), to, now);
            }
            What::Waking { thread, process } => {
                self.belongs(thread, process);
                self.wake(number, tid, thread, now);
            }
            What::Migrate { thread, cpu } => self.migrate(number, thread, cpu, now),
            What::Enter(on_top) => {
                self.cut(number, tid, now);
                self.cpus.entry(number).or_default().enter(on_top);
            }
            What::Leave(on_top) => {
                self.cut(number, tid, now);
                self.cpus.entry(number).or_default().leave(on_top);
            }
            What::SyscallIn { number: call, .. } => self.call(number, tid, now, Some(call)),
            What::SyscallOut { .. } => self.call(number, tid, now, None),
            What::FaultIn { .. } | What::FaultOut => {
                self.cut(number, tid, now);
                let fault = event.what != What::FaultOut;
                self.change(tid, |thread| thread.fault = fault);
            }
            What::Receive { socket, .. } | What::Send { socket, .. } => {
                let kept = self.spans.touch(now, now);
                self.change(tid, |thread| {
                    if kept {
                        thread.turns.push((now, socket));
                    }
                });
            }
            What::Jvm { .. } => {
                let kept = self.spans.touch(now, now);
                let process = self.members.get(&tid).copied();
                self.pauses.take(event, || process);
                self.monitors.take(event, kept);
                self.classes.take(event, kept, process);
                self.compilations.take(event, kept);
            }
            What::Tick {
                process,
                address,
                in_kernel,
            } if self.spans.touch(now, now) => {
                let tick = Tick {
                    at: now,
                    process,
                    address,
                    in_kernel,
                };
                self.ticks.take(tid, tick);
            }
            What::Text(_) => {
                self.pauses.take(event, || None);
                self.monitors.take(event, false);
            }
            _ => {}
        }
    }

    /// A CPU goes from one thread, which is left in this state, to another.
    fn switch(&mut self, number: u32, (from, leaves): (u32, State), to: u32, now: u64) {
        let cpu = self.cpus.entry(number).or_default();
        cpu.switch(from, to, now);
        self.enter(from, now, |_| leaves);
        self.change(from, |thread| thread.queue = Some(number));
        // Nobody has woken it since the trace began, or since it left, so it could run all along.
        self.change(to, |thread| {
            let crossed = thread.woken && thread.state == State::Blocked { by: Waker::Unknown };
            if thread.state == State::Unknown || crossed {
                thread.state = State::Off { preempted: false };
            }
            thread.woken = false;
        });
        self.enter(to, now, |_| State::On { cpu: number });
        self.change(to, |thread| thread.queue = Some(number));
    }

    /// A thread, or what runs on top of it, wakes another.
    fn wake(&mut self, number: u32, waker: u32, thread: u32, now: u64) {
        let by = self
            .cpus
            .get(&number)
            .and_then(Cpu::top)
            .map_or(Waker::Thread(waker), Waker::OnTop);
        let Some(woken) = self.threads.get_mut(&thread) else {
            return;
        };
        match &mut woken.state {
            // It goes on without a wait, or the CPU goes to another thread all the same: then the
            // switch says that it blocks, and it comes back without another wake-up.
            State::On { .. } => woken.woken = true,
            State::Off { .. } => {}
            state => {
                if let State::Blocked { by: who } = state {
                    *who = by;
                }
                self.enter(thread, now, |_| State::Off { preempted: false });
                self.change(thread, |woken| woken.placing = Some(number));
            }
        }
    }

    /// A thread goes into a system call, or comes back.
    fn call(&mut self, number: u32, tid: u32, now: u64, call: Option<u16>) {
        self.cut(number, tid, now);
        self.change(tid, |thread| {
            thread.call = call;
            thread.fault = false;
        });
    }

    /// A thread goes to another queue. What it waited for in the old one ends there.
    fn migrate(&mut self, number: u32, tid: u32, to: u32, now: u64) {
        let Some(thread) = self.threads.get_mut(&tid) else {
            return;
        };
        let placed = thread.placing.take() == Some(number) && now - thread.since <= PLACED_NS;
        if matches!(thread.state, State::Off { .. }) && !placed {
            self.enter(tid, now, |state| state);
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

    /// Ends an interval of the thread that this CPU is with, whose state stays.
    fn cut(&mut self, cpu: u32, tid: u32, now: u64) {
        // That it is here is told by whatever it does, before the first switch too.
        self.enter(tid, now, |state| match state {
            State::Unknown => State::On { cpu },
            state => state,
        });
        self.cpus.entry(cpu).or_default().seen(tid, now);
    }

    /// Ends an interval, and changes the state.
    fn enter(&mut self, tid: u32, now: u64, next: impl FnOnce(State) -> State) {
        let Some(thread) = self.threads.get_mut(&tid) else {
            return;
        };
        let after = next(thread.state);
        let state = match thread.state {
            State::Unknown => ThreadState::Unknown,
            State::On { cpu } => {
                // At a switch nothing is on top of anybody any more.
                match self.cpus.get(&cpu).and_then(Cpu::top) {
                    Some(on_top) => ThreadState::Interrupted(on_top),
                    None if thread.fault => ThreadState::Fault,
                    None => ThreadState::Running,
                }
            }
            State::Off { preempted } => {
                let cpu = match after {
                    State::On { cpu } => Some(cpu),
                    _ => thread.queue,
                };
                ThreadState::Waiting {
                    cpu: cpu.unwrap_or_default(),
                    behind: cpu
                        .and_then(|cpu| self.cpus.get(&cpu))
                        .and_then(|cpu| cpu.longest(thread.since, now)),
                    preempted,
                }
            }
            State::Blocked { by } => ThreadState::Blocked {
                fault: thread.fault,
                by,
            },
        };
        if now > thread.since && self.spans.touch(thread.since, now) {
            thread.intervals.push(Interval {
                from: thread.since,
                to: now,
                tid,
                state,
                call: thread.call,
            });
        }
        thread.since = now;
        thread.state = after;
    }

    /// Ends all intervals: the trace is over.
    pub fn finish(&mut self, now: u64) {
        let all: Vec<u32> = self.threads.keys().copied().collect();
        for tid in all {
            self.enter(tid, now, |state| state);
        }
    }
}
