//! A process whose threads all stand still, for a moment.
//!
//! To be used on a thread of its own (`urgent.rs`).
//!
//! Goal: as short a moment as can be, ending whatever happens. Rejected: SIGSTOP, which parents and
//! shells see; the freezer of cgroups, which stops others too. Chosen: each thread is seized, which
//! does not stop it, then all are interrupted at once. A thread that blocks is woken, leaves its system
//! call and stops before it is back in its program; when it goes on the kernel begins the call again,
//! as after any ptrace stop. A signal that is on its way is let through.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use super::Unmoved;
use super::call::can_call;
use super::guard::Guards;
use super::stops::Stops;
use super::trace::{Stop, Thread};
use super::urgent::{Awake, Turns, calm, hurry};

/// For no longer may anybody stand still.
pub(super) const LONGEST: Duration = Duration::from_millis(1);
/// What is left of that when the change begins: it takes
/// a tenth or two, if nobody takes the CPUs meanwhile.
const SPARE: Duration = Duration::from_micros(350);
/// One thread that does not stop in so long is let go.
const ALONE: Duration = Duration::from_micros(400);
/// Looked so often whether a thread has stopped, with the CPU left to those that come first too, before it
/// is left to all others: a nap ends late where the CPU itself falls asleep over it, as virtual ones do.
const LOOKS: u32 = 50;
const NAP: Duration = Duration::from_micros(5);

/// Until when nothing has to have changed, or all are let go.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deadline {
    /// When the first of them was asked to stop.
    since: Instant,
    patience: Duration,
}

impl Deadline {
    pub(super) fn of(patience: Duration) -> Self {
        Self {
            since: Instant::now(),
            patience,
        }
    }

    /// There is still time.
    pub(super) fn holds(self) -> Result<(), Unmoved> {
        match self.since.elapsed() {
            late if late > self.patience => Err(Unmoved::Slow(late)),
            _ => Ok(()),
        }
    }
}

/// A process that stands still. When this is dropped, it goes on.
#[derive(Debug)]
pub(super) struct Still<'s> {
    pub(super) pid: u32,
    threads: Vec<Thread>,
    /// Those that stand still.
    stopped: Vec<Thread>,
    /// One of them that can make system calls for us.
    caller: Option<Thread>,
    deadline: Deadline,
    /// How threads that were hurried took their turns.
    hurried: Vec<(Thread, Turns)>,
    /// Of each thread signals that it was not given meanwhile.
    owed: Vec<(Thread, libc::c_int)>,
    stops: &'s Stops,
    guards: Guards,
    _awake: Awake,
}

impl<'s> Still<'s> {
    /// Stops all threads, for no longer than that.
    ///
    /// # Errors
    /// It goes on as before: if that could take longer. To let them go takes about as long as to take hold
    /// of them did, and has to be over in time, too.
    pub(super) fn hold(pid: u32, longest: Duration, stops: &'s Stops) -> Result<Self, Unmoved> {
        let mut still = Self::of(pid, stops);
        let begun = Instant::now();
        let mut fresh = still.seize_new()?;
        let patience = longest.saturating_sub(SPARE + begun.elapsed());
        fresh.iter().for_each(|thread| still.hurry(*thread));
        if patience.is_zero() {
            return Err(Unmoved::Slow(longest));
        }
        still.deadline = Deadline::of(patience);
        still.guards.begin();
        // Until those that stopped are all that there are: only others could make new ones.
        while !fresh.is_empty() {
            for thread in &fresh {
                let _ = thread.interrupt(); // one that ended meanwhile is found out below
            }
            for thread in fresh {
                still.await_stop(thread)?;
            }
            fresh = match still.are_all() {
                true => Vec::new(),
                false => still.seize_new()?,
            };
            fresh.iter().for_each(|thread| still.hurry(*thread));
        }
        match still.threads.is_empty() {
            true => Err(Unmoved::Gone),
            false => Ok(still),
        }
    }

    /// Stops one thread that can make system calls for us; the others go on.
    ///
    /// # Errors
    /// None can, or it does not stop. It goes on as before.
    pub(super) fn hold_one(pid: u32, stops: &'s Stops) -> Result<Self, Unmoved> {
        for id in threads_of(pid)? {
            let mut still = Self::of(pid, stops);
            let thread = Thread(id);
            still.seize(thread)?;
            still.hurry(thread);
            still.deadline = Deadline::of(ALONE);
            still.guards.begin();
            let _ = thread.interrupt();
            still.await_stop(thread)?;
            if still.caller.is_some() {
                return Ok(still);
            }
        }
        Err(Unmoved::NoCaller)
    }

    fn of(pid: u32, stops: &'s Stops) -> Self {
        Self {
            pid,
            threads: Vec::new(),
            stopped: Vec::new(),
            caller: None,
            deadline: Deadline::of(Duration::ZERO),
            hurried: Vec::new(),
            owed: Vec::new(),
            stops,
            guards: Guards::of(pid),
            _awake: Awake::ask(),
        }
    }

    fn hurry(&mut self, thread: Thread) {
        let turns = hurry(thread.0);
        self.hurried.extend(turns.map(|turns| (thread, turns)));
    }

    fn seize_new(&mut self) -> Result<Vec<Thread>, Unmoved> {
        let known = self.threads.len();
        for id in threads_of(self.pid)? {
            if !self.threads.contains(&Thread(id)) {
                self.seize(Thread(id))?;
            }
        }
        Ok(self.threads[known..].to_vec())
    }

    fn seize(&mut self, thread: Thread) -> Result<(), Unmoved> {
        match thread.seize() {
            Ok(()) => self.threads.push(thread),
            // It ended meanwhile, or has ended and is only not yet cleared away.
            Err(e) if e.raw_os_error() == Some(libc::ESRCH) || is_over(self.pid, thread.0) => {}
            Err(source) => return Err(Unmoved::failed("trace it", source)),
        }
        Ok(())
    }

    /// Whether it has no other threads: the folder of them has a link for each, and two more.
    fn are_all(&self) -> bool {
        let folder = fs::metadata(format!("/proc/{}/task", self.pid));
        folder.is_ok_and(|folder| folder.nlink() == self.threads.len() as u64 + 2)
    }

    fn await_stop(&mut self, thread: Thread) -> Result<(), Unmoved> {
        let mut looks = 0;
        loop {
            match thread.poll() {
                Ok(Some(Stop::Asked)) => {
                    self.has_stopped(thread);
                    return Ok(());
                }
                Ok(Some(Stop::Group)) => {
                    self.stopped.push(thread);
                    return Err(Unmoved::Stopped);
                }
                // Its handler's frame is made, then it stops all the same.
                Ok(Some(Stop::Signal(signal))) => drop(thread.go(signal)),
                Ok(Some(Stop::Ended)) | Err(_) => {
                    self.threads.retain(|other| *other != thread);
                    return Ok(());
                }
                Ok(None) => {
                    self.deadline.holds()?;
                    looks += 1;
                    match looks <= LOOKS {
                        true => std::thread::yield_now(),
                        false => std::thread::sleep(NAP),
                    }
                }
            }
        }
    }

    fn has_stopped(&mut self, thread: Thread) {
        self.stopped.push(thread);
        if self.caller.is_none() && can_call(self.pid, thread).unwrap_or(false) {
            self.caller = Some(thread);
        }
    }

    /// The thread that can make system calls for us.
    pub(super) fn caller(&self) -> Option<Thread> {
        self.caller
    }

    /// Until when the change has to have begun.
    pub(super) fn deadline(&self) -> Deadline {
        self.deadline
    }

    /// A signal that a thread would have got has to be sent again when it goes on.
    pub(super) fn owe(&mut self, thread: Thread, signals: Vec<libc::c_int>) {
        self.owed
            .extend(signals.into_iter().map(|signal| (thread, signal)));
    }

    /// Lets it go on: for how long the first of its threads stood still at most.
    pub(super) fn release(mut self) -> Duration {
        self.go_on()
    }

    fn go_on(&mut self) -> Duration {
        // Who is not known to stand still is left by the end of this thread. It may be about to stop for a
        // signal, which is delivered then; to be detached would take it away.
        self.threads.clear();
        let any = !self.stopped.is_empty();
        for thread in self.stopped.drain(..) {
            let _ = thread.detach();
        }
        let stood = self.deadline.since.elapsed();
        self.guards.end();
        if any {
            self.stops.add(stood);
        }
        // Only now, for it takes as long again. They can't have this thread's CPU meanwhile.
        for (thread, turns) in self.hurried.drain(..) {
            calm(thread.0, turns);
        }
        for (thread, signal) in self.owed.drain(..) {
            // SAFETY: a call of numbers alone.
            unsafe { libc::syscall(libc::SYS_tgkill, self.pid, thread.0, signal) };
        }
        stood
    }
}

impl Drop for Still<'_> {
    fn drop(&mut self) {
        self.go_on();
    }
}

fn threads_of(pid: u32) -> Result<Vec<libc::pid_t>, Unmoved> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).map_err(|_| Unmoved::Gone)?;
    let id = |task: fs::DirEntry| task.file_name().to_str()?.parse().ok();
    Ok(tasks.flatten().filter_map(id).collect())
}

fn is_over(pid: u32, tid: libc::pid_t) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().unwrap_or_default();
    state.is_empty() || state.trim_start().starts_with(['Z', 'X'])
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read};
    use std::process::{Command, Stdio};

    use super::super::urgent::urgently;
    use super::*;

    #[test]
    fn no_signal_is_lost_where_threads_are_let_go_before_all_have_stopped() {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: stopping threads wants root");
            return;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let program = folder.path().join("moving");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/c/moving.c");
        let built = Command::new("cc")
            .args(["-O2", "-pthread", "-o"])
            .args([program.as_os_str(), source.as_ref()])
            .status();
        assert!(built.expect("a C compiler").success());
        let started = Command::new(&program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut moving = started.expect("it starts");
        let mut out = BufReader::new(moving.stdout.take().expect("piped"));
        let mut told = String::new();
        out.read_line(&mut told).expect("it has begun");
        let mut held_it = 0;
        let stops = Stops::default();
        for longest in (0..3000).map(|i| SPARE + Duration::from_micros(i % 100)) {
            let held = urgently(|| Still::hold(moving.id(), longest, &stops).map(drop));
            held_it += u32::from(held.expect("a thread").is_ok());
        }
        drop(moving.stdin.take());
        out.read_to_string(&mut told).expect("text");
        let ended = moving.wait().expect("ours");
        assert!(ended.success(), "{told}");
        // Some were stopped, and let go before all were.
        assert!(stops.count() > held_it, "{stops:?}, {held_it}");
    }
}
