//! Work on a thread of its own that comes first on its CPU.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::thread;

/// Does it, and ends the thread: whatever that still traces, the kernel lets go then.
pub(super) fn urgently<R: Send>(work: impl FnOnce() -> R + Send) -> io::Result<R> {
    thread::scope(|scope| {
        let worker = thread::Builder::new()
            .name("mover".into())
            .spawn_scoped(scope, || {
                come_first();
                work()
            })?;
        let done = worker.join();
        done.map_err(|_| io::Error::other("the thread that moves pages failed"))
    })
}

/// Before all that run in turns (SCHED_FIFO), awake when it is time rather than some microseconds
/// later, and with no signal to handle. Where it may not, it goes without: then it takes longer.
fn come_first() {
    let first = libc::sched_param { sched_priority: 1 };
    // SAFETY: calls about this thread (0); what they read lives while they do.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong);
        libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const first);
        let mut all = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
    }
}

/// Whether this thread does.
pub(super) fn comes_first() -> bool {
    // SAFETY: a call of a number alone.
    unsafe { libc::sched_getscheduler(0) == libc::SCHED_FIFO }
}

/// As long as this lives, no CPU falls so deeply asleep that it takes time to wake it: a thread that goes on on
/// an idle one does so at once. (A PM QoS request: the kernel forgets it when the file is closed.)
#[derive(Debug)]
pub(super) struct Awake {
    _request: Option<File>,
}

impl Awake {
    /// Asks for it. Where that may not be, or has no effect, all takes longer.
    pub(super) fn ask() -> Self {
        let file = OpenOptions::new().write(true).open("/dev/cpu_dma_latency");
        let asked = |mut file: File| file.write_all(&0i32.to_ne_bytes()).map(|()| file);
        Self {
            _request: file.and_then(asked).ok(),
        }
    }
}

/// How a thread takes its turns with others.
#[derive(Debug, Clone, Copy)]
pub(super) struct Turns(libc::c_int);

/// Has a thread come first too, for it has to run to stop: others on its CPU, even niced ones, would
/// let it wait for milliseconds. As often as this one, so that each has the CPU when the other leaves it.
/// Threads that it makes meanwhile don't come first. `None`: it has a priority of its own, or may not be
/// given one.
pub(super) fn hurry(thread: libc::pid_t) -> Option<Turns> {
    let first = libc::sched_param { sched_priority: 1 };
    // SAFETY: calls about another thread; what they read lives while they do.
    unsafe {
        let policy = libc::sched_getscheduler(thread);
        let kind = policy & !libc::SCHED_RESET_ON_FORK;
        let takes_turns = matches!(
            kind,
            libc::SCHED_OTHER | libc::SCHED_BATCH | libc::SCHED_IDLE
        );
        let first_alone = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
        let done =
            takes_turns && libc::sched_setscheduler(thread, first_alone, &raw const first) == 0;
        done.then_some(Turns(policy))
    }
}

/// Has it take turns as before; how nice it is did not change.
///
/// In two steps, for it runs: were the flag gone a moment before the priority, one that it makes right then
/// would come first for good.
pub(super) fn calm(thread: libc::pid_t, turns: Turns) {
    let none = libc::sched_param { sched_priority: 0 };
    for policy in [turns.0 | libc::SCHED_RESET_ON_FORK, turns.0] {
        // SAFETY: as above.
        unsafe { libc::sched_setscheduler(thread, policy, &raw const none) };
    }
}
