//! What runs while a hook is timed: loops that hit it a known number of times.

use std::hint::black_box;
use std::io;
use std::os::fd::OwnedFd;
use std::thread::JoinHandle;
use std::time::Instant;

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::thread::{CpuSet, gettid, sched_setaffinity, set_name};
use tailscope_kernel::cost::Call;

/// The reference loop: a chain of dependent arithmetic, so that it takes the same number of cycles.
pub fn spin(iterations: u64) {
    let mut x = black_box(1u64);
    for _ in 0..iterations {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        x = black_box(x);
    }
}

/// ns of one iteration of the reference loop, measured once.
pub fn loop_ns() -> f64 {
    const ITERATIONS: u64 = 200_000;
    spin(ITERATIONS);
    timed(|| spin(ITERATIONS)) / ITERATIONS as f64
}

/// How long work takes, in ns.
pub fn timed(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_nanos() as f64
}

/// Work that hits a hook.
pub enum Work {
    /// Calls of one function.
    Calls(Call),
    /// The thread is named: `task:task_rename`, and `__set_task_comm`.
    Naming,
    /// The shortest system call.
    Syscall,
    /// Two threads on one CPU that wake each other.
    Switches(Partner),
}

impl Work {
    /// Hits the hook this number of times.
    pub fn run(&self, times: u64) {
        match self {
            Self::Calls(call) => call.repeat(times),
            Self::Naming => {
                for _ in 0..times {
                    let _ = set_name(c"tailscope-cost");
                }
            }
            Self::Syscall => {
                for _ in 0..times {
                    black_box(rustix::process::getppid());
                }
            }
            Self::Switches(partner) => partner.switch(times),
        }
    }
}

/// A thread on the CPU of the one that made it, which answers each byte with a byte.
pub struct Partner {
    /// Its number.
    pub tid: u32,
    // Dropped first: the thread then ends.
    ask: Option<OwnedFd>,
    answer: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

impl Partner {
    /// Starts it. The caller is on one CPU only, and the new thread inherits that.
    pub fn start() -> io::Result<Self> {
        let (listen, ask) = pipe_with(PipeFlags::CLOEXEC)?;
        let (answer, tell) = pipe_with(PipeFlags::CLOEXEC)?;
        let (say, hear) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new().spawn(move || {
            let _ = say.send(gettid());
            let mut byte = [0u8];
            while rustix::io::read(&listen, &mut byte) == Ok(1) {
                if rustix::io::write(&tell, &byte) != Ok(1) {
                    break;
                }
            }
        })?;
        let tid = hear.recv().map_err(io::Error::other)?;
        Ok(Self {
            tid: tid.as_raw_nonzero().get().cast_unsigned(),
            ask: Some(ask),
            answer,
            thread: Some(thread),
        })
    }

    /// Switches this number of times, rounded down to an even number.
    fn switch(&self, times: u64) {
        let Some(ask) = &self.ask else { return };
        let mut byte = [0u8];
        for _ in 0..times / 2 {
            let asked = rustix::io::write(ask, &byte);
            if asked != Ok(1) || rustix::io::read(&self.answer, &mut byte) != Ok(1) {
                return;
            }
        }
    }
}

impl Drop for Partner {
    fn drop(&mut self) {
        self.ask = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// How often this thread was given a CPU. It grows when another thread had its CPU meanwhile.
pub fn stints() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().nth(2)?.parse().ok()
}

/// Keeps the calling thread on one CPU.
pub fn stay_on(cpu: usize) -> io::Result<()> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

/// The calling thread's number.
pub fn own_tid() -> u32 {
    gettid().as_raw_nonzero().get().cast_unsigned()
}
