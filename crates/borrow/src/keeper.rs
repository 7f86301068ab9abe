//! The process that keeps the batch: it starts the command, holds it back in phases, puts threads
//! back, and ends all of it when the borrower ends, also by SIGKILL.
//!
//! It is a process of its own because the borrower may be killed. The keeper may be killed too: the
//! kernel then ends the batch's first process (`PR_SET_PDEATHSIG`), and the guard, which is the
//! keeper's parent and does nothing else, ends the others and removes the cgroups. The borrower could
//! not do that, because a recorder gives up the rights that it takes.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitOptions, set_child_subreaper, wait};
use tailscope_kernel::scheduling::{Policy, policy_of};
use tailscope_signals::clock::Monotonic;

use crate::BorrowError;
use crate::error::doing;
use crate::groups::{self, Groups, PREFIX};
use crate::hierarchies::Hierarchies;
use crate::lane::{IdleTime, Lane};
use crate::members::{self, Watch};
use crate::message::{Ending, Inbox, Message, Order, Usage, line};
use crate::phases::Phases;
use crate::plan::Plan;
use crate::server::check;
use crate::starter::{NOT_STARTED, Start};
use crate::state::{Entry, Identity};

/// What the guard starts the keeper with.
pub const KEEPER: &str = "borrow-keeper";

/// How often figures are sent.
const TICK: Duration = Duration::from_millis(100);
/// How often the server's CPUs are looked up.
const CPUS_EVERY: Duration = Duration::from_secs(1);
/// How long the starter may take until it deviates.
const SETTLING: Duration = Duration::from_millis(500);
/// How long the batch may take to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(2);
/// The same if the borrower is gone: the server should have its CPUs for itself soon.
const GRACE_ALONE: Duration = Duration::from_millis(300);

/// Runs as the keeper: stdin is the socket to the borrower, `plan` its plan as JSON.
///
/// # Errors
/// If there is no plan, or the system refuses what every process may do.
pub fn keep(plan: &str, command: &[OsString]) -> Result<(), BorrowError> {
    let plan: Plan = serde_json::from_str(plan).map_err(|e| BorrowError::Usage(e.to_string()))?;
    let stdin = io::stdin().as_fd().try_clone_to_owned();
    let socket = UnixStream::from(stdin.map_err(doing("take the socket"))?);
    match Keeper::prepare(plan, command, &socket) {
        Ok(mut keeper) => keeper.run(),
        Err(e) => {
            let refused = Message::Refused {
                why: e.to_string(),
                usage: matches!(e, BorrowError::Usage(_)),
            };
            let _ = (&socket).write_all(&line(&refused));
            Ok(())
        }
    }
}

struct Keeper<'s> {
    plan: Plan,
    command: Vec<OsString>,
    socket: &'s UnixStream,
    inbox: Inbox,
    entry: Entry,
    groups: Groups,
    lane: Lane,
    usage: Usage,
    idle: IdleTime,
    watch: Watch,
    phases: Option<Phases>,
    first: Option<Pid>,
    ending: Option<Ending>,
    told_to_end: Arc<AtomicBool>,
    ticked: Instant,
    cpus_seen: Instant,
    begun: Instant,
    settled: bool,
}

fn now_ns() -> u64 {
    Monotonic::now().0
}

impl<'s> Keeper<'s> {
    fn prepare(
        plan: Plan,
        command: &[OsString],
        socket: &'s UnixStream,
    ) -> Result<Self, BorrowError> {
        let nonblocking = socket.set_nonblocking(true);
        nonblocking.map_err(doing("set the socket up"))?;
        let me = std::process::id();
        let told_to_end = Arc::new(AtomicBool::new(false));
        for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
            signal_hook::flag::register(signal.as_raw(), Arc::clone(&told_to_end))
                .map_err(doing("handle signals"))?;
        }
        set_child_subreaper(Pid::from_raw(me as i32))
            .map_err(|e| doing("adopt orphans (PR_SET_CHILD_SUBREAPER)")(e.into()))?;
        check(&plan, me)?;
        let gone = || BorrowError::Machine("the borrower has ended".to_owned());
        let keeper = Identity::of(me).ok_or_else(gone)?;
        let mut entry = Entry {
            borrower: Identity::of(plan.borrower).ok_or_else(gone)?,
            keeper,
            server: plan.server.first().copied().unwrap_or_default(),
            command: command
                .iter()
                .map(|w| w.to_string_lossy().into_owned())
                .collect(),
            mark: format!("{me}-{}", keeper.start),
            groups: None,
        };
        entry.write()?;
        let on = Hierarchies::here();
        let groups = Groups::make(&on, &format!("{PREFIX}{me}"));
        entry.groups = Some(groups.clone());
        let checked = entry
            .write()
            .and_then(|()| groups::check(&groups, &on, me, entry.server));
        if let Err(e) = checked {
            groups.remove();
            entry.remove();
            return Err(e);
        }
        let lane = match &plan.cpus {
            Some(cpus) => Lane::online(cpus.clone()),
            None => Lane::of(&plan.server),
        };
        lane.keep_off();
        let keeper = Self {
            plan,
            command: command.to_vec(),
            socket,
            inbox: Inbox::default(),
            entry,
            groups,
            lane,
            usage: Usage::default(),
            idle: IdleTime::default(),
            watch: Watch::new(me),
            phases: None,
            first: None,
            ending: None,
            told_to_end,
            ticked: Instant::now(),
            cpus_seen: Instant::now(),
            begun: Instant::now(),
            settled: false,
        };
        keeper.send(&Message::Ready(keeper.groups.mechanism()));
        Ok(keeper)
    }

    /// A borrower that does not read loses messages, and notices the gap later.
    fn send(&self, message: &Message) {
        let mut socket = self.socket;
        let _ = socket.write_all(&line(message));
    }

    fn run(&mut self) -> Result<(), BorrowError> {
        while self.ending.is_none() {
            self.wait();
            let orders = self.inbox.read::<Order>(&mut &*self.socket);
            let Ok(orders) = orders else { break };
            for order in orders {
                self.obey(order);
            }
            if self.inbox.closed || self.told_to_end.load(Relaxed) {
                break;
            }
            if self.phases.is_none() {
                continue;
            }
            self.reap();
            self.follow_server();
            if self.has_settled() {
                self.watch.look(&self.groups, &self.lane, &mut self.usage);
            }
            self.switch();
            self.tick();
        }
        let alone = self.inbox.closed;
        self.end(if alone { GRACE_ALONE } else { GRACE });
        Ok(())
    }

    fn wait(&self) {
        let now = now_ns();
        let phase = self.phases.as_ref().and_then(Phases::end_ns);
        let phase = phase.map_or(TICK, |end| Duration::from_nanos(end.saturating_sub(now)));
        let watch = self.watch.due().saturating_duration_since(Instant::now());
        let length = phase.min(watch.max(Duration::from_millis(1))).min(TICK);
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: length.as_nanos() as i64,
        };
        let mut polled = [PollFd::from_borrowed_fd(self.socket.as_fd(), PollFlags::IN)];
        let _ = poll(&mut polled, Some(&timeout));
    }

    fn obey(&mut self, order: Order) {
        match (order, &mut self.phases) {
            (Order::Go, None) => self.go(),
            (Order::Lend(pace), Some(phases)) => phases.set(pace, now_ns()),
            (Order::Lend(pace), None) => self.plan.pace = pace,
            (Order::End, _) => self.told_to_end.store(true, Relaxed),
            (Order::Go, Some(_)) => {}
        }
    }

    fn go(&mut self) {
        self.follow_server();
        self.begun = Instant::now();
        let begun = self.launch();
        self.phases = Some(Phases::begin(
            self.plan.pace,
            now_ns(),
            fastrand::Rng::new(),
        ));
        self.idle.read(&self.lane);
        match begun {
            Ok(first) => {
                self.first = Some(first);
                if !self.phases.as_ref().is_some_and(Phases::on) {
                    self.hold(true);
                }
                self.announce(now_ns());
            }
            Err(_) => {
                self.ending = Some(Ending {
                    code: Some(i32::from(NOT_STARTED)),
                    signal: None,
                    by_itself: true,
                })
            }
        }
    }

    fn launch(&self) -> io::Result<Pid> {
        let start = Start {
            groups: self.groups.clone(),
            cpus: self.lane.cpus.clone(),
            keeper: std::process::id(),
        };
        start.launch(&self.command, &self.entry.mark, self.plan.output_to_stderr)
    }

    /// Whether the starter has taken its place: until then, it does not deviate.
    fn has_settled(&mut self) -> bool {
        let first = self.first.map(|first| first.as_raw_nonzero().get() as u32);
        let done =
            first.is_none_or(|first| !matches!(policy_of(first), Ok(p) if p != Policy::Idle));
        self.settled |= done || self.begun.elapsed() > SETTLING;
        self.settled
    }

    /// Takes note of the ends of children, also adopted ones.
    fn reap(&mut self) {
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if Some(pid) == self.first {
                let status = ExitStatus::from_raw(status.as_raw());
                self.ending = Some(Ending {
                    code: status.code(),
                    signal: status.signal(),
                    by_itself: true,
                });
            }
        }
    }

    /// Lends the CPUs that the server may run on now.
    fn follow_server(&mut self) {
        if self.first.is_some() && self.cpus_seen.elapsed() < CPUS_EVERY {
            return;
        }
        self.cpus_seen = Instant::now();
        let lane = match &self.plan.cpus {
            Some(cpus) => Lane::online(cpus.clone()),
            None => Lane::of(&self.plan.server),
        };
        // None is left of them: the kernel has put the threads on others, and the borrower knows
        // by itself that the server has ended.
        if !lane.cpus.is_empty() && lane != self.lane {
            self.idle.read(&self.lane);
            self.lane = lane;
        }
    }

    fn read_usage(&mut self) {
        self.idle.read(&self.lane);
        self.usage.idle_ns = self.idle.total_ns;
        self.usage.cpus = self.lane.cpus.clone();
        let counted = self.groups.cpu_ns();
        self.usage.batch_ns = counted.unwrap_or_else(|| members::cpu_ns(std::process::id()));
    }

    fn switch(&mut self) {
        let from_ns = now_ns();
        let switched = self.phases.as_mut().is_some_and(|p| p.advance(from_ns));
        if switched {
            self.read_usage();
            self.hold(!self.phases.as_ref().is_some_and(Phases::on));
            self.announce(from_ns);
        }
    }

    fn announce(&mut self, from_ns: u64) {
        self.read_usage();
        self.ticked = Instant::now();
        self.send(&Message::Switched {
            on: self.phases.as_ref().is_some_and(Phases::on),
            from_ns,
            now_ns: now_ns(),
            usage: self.usage.clone(),
        });
    }

    fn hold(&self, still: bool) {
        let _ = self.groups.hold(still);
        if self.groups.holds_by_signals() {
            members::hold(std::process::id(), &self.groups, still);
        }
    }

    fn tick(&mut self) {
        if self.ticked.elapsed() >= TICK {
            self.tell_usage();
        }
    }

    fn tell_usage(&mut self) {
        self.ticked = Instant::now();
        self.read_usage();
        self.send(&Message::Tick {
            now_ns: now_ns(),
            usage: self.usage.clone(),
        });
    }

    /// Ends the batch: asked first, then for certain. Removes the groups and the state.
    fn end(&mut self, grace: Duration) {
        let me = std::process::id();
        if self.phases.is_some() {
            self.tell_usage();
        }
        let by_itself = self.ending.is_some();
        let left = |groups: &Groups| members::of(me, groups);
        if !by_itself {
            self.hold(false);
            let still = |pid| left(&self.groups).contains(&pid);
            for pid in left(&self.groups) {
                members::signal(pid, Signal::TERM, still);
                members::signal(pid, Signal::CONT, still);
            }
            let deadline = Instant::now() + grace;
            while !left(&self.groups).is_empty() && Instant::now() < deadline {
                self.reap();
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        let deadline = Instant::now() + GRACE;
        while Instant::now() < deadline {
            self.groups.kill();
            let still = |pid| left(&self.groups).contains(&pid);
            for pid in left(&self.groups) {
                members::signal(pid, Signal::KILL, still);
            }
            self.groups.hurry();
            self.reap();
            if left(&self.groups).is_empty() && self.groups.remove() {
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        if self.entry.clear() {
            let ending = self.ending.unwrap_or_default();
            self.send(&Message::Ended(Ending {
                by_itself,
                ..ending
            }));
        }
    }
}
