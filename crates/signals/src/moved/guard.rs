//! CPUs that are kept for threads that come first, while a process stands still.
//!
//! Once its threads have stopped, the CPUs that they had are free for others, and who is within the kernel
//! then may keep one for as long as it likes (kernels without preemption, which servers often have): a
//! thread that is to make a call for us would wait for that. And a CPU that nobody has may fall asleep. So
//! on each there is a thread that comes first as well, and leaves the CPU to others of its kind whenever
//! there are any.

use std::mem::size_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::urgent::comes_first;

/// On more CPUs than these, one is free when it is wanted.
const MOST: usize = 4;
/// Between two looks for others who want the CPU: each takes the lock of its queue, which they need too.
const PAUSE: u32 = 16;
/// A stop that takes this long waits for somebody, who may want just this CPU.
const LONGEST: Duration = Duration::from_millis(2);

#[derive(Debug, Default)]
struct State {
    wanted: AtomicBool,
    over: AtomicBool,
}

/// They sleep at first. When this is dropped, they end.
#[derive(Debug)]
pub(super) struct Guards {
    state: Arc<State>,
    threads: Vec<JoinHandle<()>>,
}

impl Guards {
    /// Of the CPUs that a process may use, but for the one that this thread has, and keeps from now on. None
    /// are where this thread does not come first.
    pub(super) fn of(pid: u32) -> Self {
        let state = Arc::new(State::default());
        let cpus = allowed(pid);
        if cpus.is_empty() || cpus.len() > MOST || !comes_first() {
            let threads = Vec::new();
            return Self { state, threads };
        }
        // SAFETY: a call without arguments.
        let own = unsafe { libc::sched_getcpu() };
        let own = usize::try_from(own).unwrap_or(usize::MAX);
        let others = cpus.into_iter().filter(|cpu| *cpu != own);
        let start = |cpu| {
            let state = Arc::clone(&state);
            thread::Builder::new()
                .name("guard".into())
                .spawn(move || state.guard(cpu))
                .ok()
        };
        let threads = others.filter_map(start).collect();
        // Not before: they begin where this thread may run.
        keep(own);
        Self { state, threads }
    }

    /// From now on.
    pub(super) fn begin(&self) {
        self.state.wanted.store(true, SeqCst);
        self.threads
            .iter()
            .for_each(|guard| guard.thread().unpark());
    }

    /// No longer.
    pub(super) fn end(&self) {
        self.state.wanted.store(false, SeqCst);
    }
}

impl Drop for Guards {
    fn drop(&mut self) {
        self.end();
        self.state.over.store(true, SeqCst);
        for guard in self.threads.drain(..) {
            guard.thread().unpark();
            // It can't fail, and if it did, that would change nothing.
            let _ = guard.join();
        }
    }
}

impl State {
    fn guard(&self, cpu: usize) {
        // Elsewhere it would be in the way.
        if !keep(cpu) {
            return;
        }
        while !self.over.load(SeqCst) {
            match self.wanted.load(SeqCst) {
                true => self.stand(),
                false => thread::park(),
            }
        }
    }

    fn stand(&self) {
        let since = Instant::now();
        while self.wanted.load(SeqCst) && since.elapsed() < LONGEST {
            (0..PAUSE).for_each(|_| std::hint::spin_loop());
            thread::yield_now();
        }
        self.wanted.store(false, SeqCst);
    }
}

/// The CPUs that a process may use.
fn allowed(pid: u32) -> Vec<usize> {
    // SAFETY: plain numbers; the call writes no more than their size.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        let size = size_of::<libc::cpu_set_t>();
        match libc::sched_getaffinity(pid as libc::pid_t, size, &raw mut set) {
            0 => set,
            _ => return Vec::new(),
        }
    };
    let in_set = |cpu: &usize| {
        // SAFETY: the set lives, and the number is within it.
        unsafe { libc::CPU_ISSET(*cpu, &set) }
    };
    (0..libc::CPU_SETSIZE as usize).filter(in_set).collect()
}

/// Has this thread run on one CPU alone; whether it does.
fn keep(cpu: usize) -> bool {
    if cpu >= libc::CPU_SETSIZE as usize {
        return false;
    }
    // SAFETY: plain numbers; the set lives while the calls do, and the number is within it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::super::urgent::urgently;
    use super::*;

    #[test]
    fn a_process_may_use_the_cpus_that_this_one_may() {
        let set = rustix::thread::sched_getaffinity(None).expect("of this thread");
        let own = allowed(std::process::id());
        assert_eq!(own.len(), set.count() as usize, "{own:?}");
        assert!(allowed(u32::MAX >> 1).is_empty());
    }

    #[test]
    fn there_is_a_guard_for_every_other_cpu_and_each_ends() {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: to come first wants root");
            return;
        }
        let cpus = allowed(std::process::id()).len();
        for wanted in [false, true].repeat(50) {
            let counted = urgently(|| {
                let guards = Guards::of(std::process::id());
                if wanted {
                    guards.begin();
                }
                guards.threads.len()
            });
            let expected = if cpus > MOST { 0 } else { cpus - 1 };
            assert_eq!(counted.expect("a thread"), expected);
        }
    }
}
