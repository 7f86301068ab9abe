//! Counters that user space may no longer read.
//!
//! Whoever owns the machine may switch user space's access off while threads count (sysctl
//! `kernel.perf_user_access` on arm64, `rdpmc` in sysfs on x86-64). The next reading then faults, which would
//! end the program, and nothing tells of it before. So while threads count, there is a handler for that signal.
//! It passes over a reading of ours that faulted, and the thread counts nothing any more until the recorder says that
//! it is other events' turn. Every other fault is for the handler that was there before.

use core::cell::UnsafeCell;
use core::mem::{transmute, zeroed};
use core::ptr::{null, null_mut};
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{Relaxed, Release};

use libc::{SIG_DFL, SIG_IGN, c_int, c_void, raise, sigaction, siginfo_t, ucontext_t};

use super::abi::RECORDERS;
use super::probe::is_counting;
use super::process::{lock, make_process, process};
use super::sys::EOPNOTSUPP;
use super::thread::with_thread;

#[cfg(target_arch = "x86_64")]
const FAULT: c_int = libc::SIGSEGV;
#[cfg(target_arch = "aarch64")]
const FAULT: c_int = libc::SIGILL;

/// What a signal does that nobody handles.
// SAFETY: numbers, a set of signals, and a function that may be missing: zeros are right.
const UNHANDLED: sigaction = unsafe { zeroed() };

/// What other faults are for.
struct Before(UnsafeCell<sigaction>);

// SAFETY: written under a lock while the handler, its only reader, is not in place.
unsafe impl Sync for Before {}

static BEFORE: Before = Before(UnsafeCell::new(UNHANDLED));
static IS_SET: AtomicBool = AtomicBool::new(false);

/// Where the kernel keeps the instruction's address in what it hands to handlers.
///
/// # Safety
/// `context` is that.
unsafe fn instruction(context: *mut c_void) -> *mut usize {
    let context: *mut ucontext_t = context.cast();
    // SAFETY: by the contract.
    #[cfg(target_arch = "x86_64")]
    let at = unsafe { &raw mut (*context).uc_mcontext.gregs[libc::REG_RIP as usize] };
    // SAFETY: by the contract.
    #[cfg(target_arch = "aarch64")]
    let at = unsafe { &raw mut (*context).uc_mcontext.pc };
    at.cast()
}

/// How long a reading at this address is; `None`: it is none.
///
/// # Safety
/// The instruction there was just executed.
#[cfg(target_arch = "x86_64")]
unsafe fn reading(at: usize) -> Option<usize> {
    // SAFETY: by the contract; rdpmc has two bytes, and what faults as it does at least as many.
    let code = unsafe { (at as *const [u8; 2]).read() };
    (code == [0x0f, 0x33]).then_some(2)
}

/// How long a reading at this address is; `None`: it is none.
///
/// # Safety
/// The instruction there was just executed.
#[cfg(target_arch = "aarch64")]
unsafe fn reading(at: usize) -> Option<usize> {
    // SAFETY: by the contract; every instruction has four bytes.
    let code = unsafe { (at as *const u32).read() };
    // mrs of pmevcntr0_el0 to pmevcntr30_el0, or of pmccntr_el0
    let is_one = code & 0xffff_fc00 == 0xd53b_e800 || code & 0xffff_ffe0 == 0xd53b_9d00;
    is_one.then_some(4)
}

/// If it is a reading of this thread's counters that faulted: goes on after it, without any.
///
/// # Safety
/// `context` is what the kernel handed to a handler of a fault.
unsafe fn pass_over(context: *mut c_void) -> bool {
    // SAFETY: there is the instruction's address, by the contract.
    let at = unsafe { &mut *instruction(context) };
    // SAFETY: that instruction faulted.
    let Some(length) = (unsafe { reading(*at) }) else {
        return false;
    };
    let is_ours = take_away();
    if is_ours {
        *at += length;
    }
    is_ours
}

/// Takes away the counters that this thread is reading; returns whether there are any.
fn take_away() -> bool {
    let take = |which: usize| {
        let is_reading = with_thread(which, |thread| {
            let is_reading = thread.counters.is_reading.load(Relaxed);
            if is_reading {
                // What is open ends without values, what begins has none.
                thread.counters.pass();
            }
            is_reading
        });
        let process = process(which).filter(|process| process.epoch.load(Relaxed) != 0);
        if is_reading && let Some(process) = process {
            let refused = &process.region().counting.refused;
            refused.store(EOPNOTSUPP.0 as u32, Relaxed);
        }
        is_reading
    };
    std::array::from_fn::<_, RECORDERS, _>(take).contains(&true)
}

unsafe extern "C" fn on_fault(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel's, as the handler was set with SA_SIGINFO.
    let code = unsafe { (*info).si_code };
    let is_sent = code <= 0; // by kill() and the like: no instruction faulted
    // A page fault is no reading, and its instruction may lie where nothing can be read.
    #[cfg(target_arch = "x86_64")]
    let may_be_reading = code == libc::SI_KERNEL;
    #[cfg(target_arch = "aarch64")]
    let may_be_reading = !is_sent;
    // SAFETY: the kernel's.
    if may_be_reading && unsafe { pass_over(context) } {
        return;
    }
    // SAFETY: nobody writes it while the handler is in place.
    let before = unsafe { *BEFORE.0.get() };
    // SAFETY: what the program set for this signal gets what it would have got without us.
    unsafe {
        match before.sa_sigaction {
            SIG_IGN if is_sent => {}
            SIG_DFL | SIG_IGN => {
                sigaction(signal, &UNHANDLED, null_mut()); // the instruction faults again
                if is_sent {
                    raise(signal);
                }
            }
            handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
                transmute::<usize, Handler>(handler)(signal, info, context);
            }
            handler => transmute::<usize, unsafe extern "C" fn(c_int)>(handler)(signal),
        }
    }
}

type Handler = unsafe extern "C" fn(c_int, *mut siginfo_t, *mut c_void);

fn ours() -> usize {
    on_fault as Handler as usize
}

/// Runs it while no other thread sets or lifts the handler.
fn alone(run: impl FnOnce()) {
    let Ok(process) = make_process(0) else { return };
    if lock(&process.guard_locked) {
        run();
        process.guard_locked.store(0, Release);
    }
}

/// From now on a reading may fault.
pub(super) fn set() {
    alone(install);
}

fn install() {
    let mut before = UNHANDLED;
    // SAFETY: asks only.
    if IS_SET.load(Relaxed) || unsafe { sigaction(FAULT, null(), &mut before) } != 0 {
        return;
    }
    // SAFETY: under the lock, and the handler is not in place.
    unsafe { *BEFORE.0.get() = before };
    // The handler of before is called as if it were its own signal: same mask, same flags.
    let action = sigaction {
        sa_sigaction: ours(),
        sa_flags: before.sa_flags & !libc::SA_RESETHAND | libc::SA_SIGINFO | libc::SA_ONSTACK,
        ..before
    };
    // SAFETY: a handler that stays as long as this code.
    IS_SET.store(
        unsafe { sigaction(FAULT, &action, null_mut()) } == 0,
        Relaxed,
    );
}

/// No thread counts any more for one recorder. If none does for the other, the handler goes. But if the program
/// has put a handler of its own on top, ours stays below.
pub(super) fn lift() {
    alone(|| {
        if !is_counting() {
            remove();
        }
    });
}

fn remove() {
    let mut now = UNHANDLED;
    // SAFETY: asks only.
    let is_known = unsafe { sigaction(FAULT, null(), &mut now) } == 0;
    if !IS_SET.load(Relaxed) || !is_known || now.sa_sigaction != ours() {
        return;
    }
    // SAFETY: what the program had set itself.
    unsafe { sigaction(FAULT, BEFORE.0.get(), null_mut()) };
    IS_SET.store(false, Relaxed);
}

#[cfg(test)]
#[path = "guard_tests.rs"]
mod tests;
