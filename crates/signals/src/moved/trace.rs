//! ptrace(2) of one thread, thinly.

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::ptr;

use libc::{c_int, c_uint, c_void};

pub(super) use libc::user_regs_struct as Registers;

/// How `waitpid` tells a stop that is nobody's signal (`PTRACE_EVENT_STOP`).
const EVENT_STOP: c_int = 128;
/// Where the registers of the processor itself are (`NT_PRSTATUS`).
const GENERAL: usize = 1;
/// Looked so often whether a thread stands still, before this one sleeps until it does.
const LOOKS: u32 = 300;
const RSEQ: c_uint = 0x420f; // PTRACE_GET_RSEQ_CONFIGURATION, Linux 5.13

/// Why a traced thread stands still.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// It was asked to.
    Asked,
    /// Its process is stopped, by SIGSTOP or its like.
    Group,
    /// It is about to get a signal.
    Signal(c_int),
    /// It is no more.
    Ended,
}

/// A thread that this one traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Thread(pub(super) libc::pid_t);

impl Thread {
    fn ask(self, request: c_uint, address: usize, data: usize) -> io::Result<libc::c_long> {
        // SAFETY: of the requests made here those that write to our memory are given, as `data`,
        // the address of a live value of the size that `address` or the request says.
        let answer = unsafe { libc::ptrace(request, self.0, address, data) };
        match answer {
            -1 => Err(io::Error::last_os_error()),
            answer => Ok(answer),
        }
    }

    /// Begins to trace it, which does not stop it.
    pub(super) fn seize(self) -> io::Result<()> {
        self.ask(libc::PTRACE_SEIZE, 0, 0).map(drop)
    }

    /// Has it stop soon.
    pub(super) fn interrupt(self) -> io::Result<()> {
        self.ask(libc::PTRACE_INTERRUPT, 0, 0).map(drop)
    }

    /// Lets it go on, with a signal (0: none).
    pub(super) fn go(self, signal: c_int) -> io::Result<()> {
        self.ask(libc::PTRACE_CONT, 0, signal as usize).map(drop)
    }

    /// Lets it run one instruction, after which it is about to get SIGTRAP.
    pub(super) fn step(self) -> io::Result<()> {
        self.ask(libc::PTRACE_SINGLESTEP, 0, 0).map(drop)
    }

    /// Ends tracing it; it goes on.
    pub(super) fn detach(self) -> io::Result<()> {
        self.ask(libc::PTRACE_DETACH, 0, 0).map(drop)
    }

    /// What the processor holds of it; `None`: its words are not those of this program (32 bits).
    pub(super) fn registers(self) -> io::Result<Option<Registers>> {
        let mut registers = MaybeUninit::<Registers>::zeroed();
        let mut place = libc::iovec {
            iov_base: registers.as_mut_ptr().cast(),
            iov_len: size_of::<Registers>(),
        };
        let at = &raw mut place as usize;
        self.ask(libc::PTRACE_GETREGSET, GENERAL, at)?;
        // SAFETY: plain numbers, all zero at first, as far as the kernel did not fill them in.
        let registers = unsafe { registers.assume_init() };
        Ok((place.iov_len == size_of::<Registers>()).then_some(registers))
    }

    pub(super) fn set_registers(self, registers: &Registers) -> io::Result<()> {
        let place = libc::iovec {
            iov_base: ptr::from_ref(registers) as *mut c_void,
            iov_len: size_of::<Registers>(),
        };
        let at = &raw const place as usize;
        self.ask(libc::PTRACE_SETREGSET, GENERAL, at).map(drop)
    }

    /// The signals that it holds back.
    pub(super) fn blocked(self) -> io::Result<u64> {
        let mut mask = 0u64;
        let at = &raw mut mask as usize;
        self.ask(libc::PTRACE_GETSIGMASK, size_of::<u64>(), at)?;
        Ok(mask)
    }

    pub(super) fn block(self, mask: u64) -> io::Result<()> {
        let at = &raw const mask as usize;
        self.ask(libc::PTRACE_SETSIGMASK, size_of::<u64>(), at)
            .map(drop)
    }

    /// Where its area for restartable sequences is; `None`: it has none, or this kernel can't say.
    pub(super) fn restartable(self) -> io::Result<Option<u64>> {
        // struct ptrace_rseq_configuration: the address, then three words.
        let mut answer = [0u64; 3];
        let at = answer.as_mut_ptr() as usize;
        match self.ask(RSEQ, size_of::<[u64; 3]>(), at) {
            Ok(_) => Ok(Some(answer[0]).filter(|at| *at != 0)),
            Err(e) if e.raw_os_error() == Some(libc::EIO) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Whether its system calls are sent to itself (`PR_SET_SYSCALL_USER_DISPATCH`).
    pub(super) fn dispatches(self) -> io::Result<bool> {
        let mut answer = [0u64; 4];
        let at = answer.as_mut_ptr() as usize;
        let request = libc::PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG;
        match self.ask(request, size_of::<[u64; 4]>(), at) {
            Ok(_) => Ok(answer[0] != 0),
            Err(e) if knows_no_dispatch(&e, std::env::consts::ARCH) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Why it stands still; `None`: it does not.
    pub(super) fn poll(self) -> io::Result<Option<Stop>> {
        self.status(libc::WNOHANG)
    }

    /// Waits until it stands still. That is soon: to be woken takes longer than to look. It may have
    /// to run on this very CPU, so that is left to it between two looks.
    pub(super) fn wait(self) -> io::Result<Stop> {
        for _ in 0..LOOKS {
            if let Some(stop) = self.poll()? {
                return Ok(stop);
            }
            std::thread::yield_now();
        }
        loop {
            if let Some(stop) = self.status(0)? {
                return Ok(stop);
            }
        }
    }

    fn status(self, flags: c_int) -> io::Result<Option<Stop>> {
        let mut status = 0;
        // SAFETY: `status` lives while the call does.
        let which = unsafe { libc::waitpid(self.0, &raw mut status, libc::__WALL | flags) };
        match which {
            0 => Ok(None),
            -1 => match io::Error::last_os_error() {
                e if e.kind() == io::ErrorKind::Interrupted => Ok(None),
                e => Err(e),
            },
            _ => Ok(Some(told(status))),
        }
    }
}

/// Whether a kernel that refuses to say how a thread's system calls are sent knows no such thing.
fn knows_no_dispatch(refusal: &io::Error, architecture: &str) -> bool {
    match refusal.raw_os_error() {
        // Kernels before 6.4 don't say, and have it on x86 from 5.11 on.
        Some(libc::EIO) => true,
        // Where the architecture has no such thing, as arm64 on 6.12, they know just the question.
        Some(libc::EINVAL) => architecture == "aarch64",
        _ => false,
    }
}

fn told(status: c_int) -> Stop {
    if !libc::WIFSTOPPED(status) {
        return Stop::Ended;
    }
    let signal = libc::WSTOPSIG(status);
    match (status >> 16, signal) {
        (EVENT_STOP, libc::SIGTRAP) => Stop::Asked,
        (EVENT_STOP, _) => Stop::Group,
        (_, signal) => Stop::Signal(signal),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_without_dispatch_of_calls_is_no_reason_to_leave_a_thread_alone() {
        let knows_none = |error, architecture| {
            knows_no_dispatch(&io::Error::from_raw_os_error(error), architecture)
        };
        for architecture in ["x86_64", "aarch64"] {
            assert!(knows_none(libc::EIO, architecture));
            assert!(!knows_none(libc::ESRCH, architecture));
        }
        assert!(knows_none(libc::EINVAL, "aarch64"));
        // There it is a question put wrongly.
        assert!(!knows_none(libc::EINVAL, "x86_64"));
    }

    #[test]
    fn a_status_is_told_as_the_manual_has_it() {
        let stopped = |signal: c_int, event: c_int| event << 16 | signal << 8 | 0x7f;
        assert_eq!(told(stopped(libc::SIGTRAP, EVENT_STOP)), Stop::Asked);
        assert_eq!(told(stopped(libc::SIGSTOP, EVENT_STOP)), Stop::Group);
        assert_eq!(told(stopped(libc::SIGTRAP, 0)), Stop::Signal(libc::SIGTRAP));
        assert_eq!(told(stopped(libc::SIGUSR1, 0)), Stop::Signal(libc::SIGUSR1));
        assert_eq!(told(0), Stop::Ended);
        assert_eq!(told(libc::SIGKILL), Stop::Ended);
    }
}
