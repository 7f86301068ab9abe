//! Counters that user space may no longer read.
//!
//! Whoever owns the machine may switch user space's access off while threads count (sysctl
//! `kernel.perf_user_access` on arm64, `rdpmc` in sysfs on x86-64). The next reading then faults, which would
//! end the program, and nothing tells of it before. So while threads count, there is a handler for that signal.
//! It passes over a reading of ours that faulted, and the thread counts nothing any more until the recorder says that
//! it is other events' turn. Every other fault is for the handler that was there before.

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::mem::transmute;
use core::ptr::{null, null_mut};
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;

use super::process::process;
use super::sys::EOPNOTSUPP;
use super::thread::with_thread;

#[cfg(target_arch = "x86_64")]
const FAULT: i32 = 11; // SIGSEGV
#[cfg(target_arch = "aarch64")]
const FAULT: i32 = 4; // SIGILL

const DEFAULT: usize = 0;
const IGNORE: usize = 1;
const WITH_INFO: i32 = 4;
const ON_OTHER_STACK: i32 = 0x0800_0000;
const ONCE: i32 = 0x8000_0000u32 as i32;

/// The C library's `struct sigaction` on Linux: the same in glibc and in musl.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct Action {
    pub handler: usize,
    pub mask: [u64; 16],
    pub flags: i32,
    pub restorer: usize,
}

impl Action {
    pub(super) const DEFAULT: Self = Self {
        handler: DEFAULT,
        mask: [0; 16],
        flags: 0,
        restorer: 0,
    };
}

/// The begin of `siginfo_t`.
#[repr(C)]
pub(super) struct Info {
    signal: i32,
    errno: i32,
    code: i32,
}

unsafe extern "C" {
    // The C library's, which the standard library is linked with anyway: it knows how handlers return.
    pub(super) fn sigaction(signal: i32, new: *const Action, old: *mut Action) -> i32;
    fn raise(signal: i32) -> i32;
}

/// What other faults are for.
struct Before(UnsafeCell<Action>);

// SAFETY: written under the process's lock while the handler, its only reader, is not in place.
unsafe impl Sync for Before {}

static BEFORE: Before = Before(UnsafeCell::new(Action::DEFAULT));
static IS_SET: AtomicBool = AtomicBool::new(false);

/// Where the kernel keeps the instruction's address in what it hands to handlers: after `struct
/// ucontext`'s head of 40 bytes on x86-64 the 17th register, on arm64 after a mask of 128 bytes, aligned to
/// 16, the fault's address, 31 registers and the stack's.
#[cfg(target_arch = "x86_64")]
const INSTRUCTION_AT: usize = 40 + 16 * 8;
#[cfg(target_arch = "aarch64")]
const INSTRUCTION_AT: usize = 176 + 8 + 31 * 8 + 8;

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
    let at: &mut usize = unsafe { &mut *context.byte_add(INSTRUCTION_AT).cast() };
    // SAFETY: that instruction faulted.
    let Some(length) = (unsafe { reading(*at) }) else {
        return false;
    };
    let is_ours = with_thread(|thread| {
        let is_reading = thread.counters.is_reading.load(Relaxed);
        if is_reading {
            // What is open ends without values, what begins has none.
            thread.counters.pass();
        }
        is_reading
    });
    if is_ours {
        if let Some(process) = process().filter(|process| process.epoch.load(Relaxed) != 0) {
            let refused = &process.region().counting.refused;
            refused.store(EOPNOTSUPP.0 as u32, Relaxed);
        }
        *at += length;
    }
    is_ours
}

unsafe extern "C" fn on_fault(signal: i32, info: *mut Info, context: *mut c_void) {
    // SAFETY: the kernel's, as the handler was set with WITH_INFO.
    let code = unsafe { (*info).code };
    let is_sent = code <= 0; // by kill() and the like: no instruction faulted
    // A page fault is no reading, and its instruction may lie where nothing can be read.
    #[cfg(target_arch = "x86_64")]
    let may_be_reading = code == 0x80; // SI_KERNEL
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
        match before.handler {
            IGNORE if is_sent => {}
            DEFAULT | IGNORE => {
                sigaction(signal, &Action::DEFAULT, null_mut()); // the instruction faults again
                if is_sent {
                    raise(signal);
                }
            }
            handler if before.flags & WITH_INFO != 0 => {
                transmute::<usize, unsafe extern "C" fn(i32, *mut Info, *mut c_void)>(handler)(
                    signal, info, context,
                );
            }
            handler => transmute::<usize, unsafe extern "C" fn(i32)>(handler)(signal),
        }
    }
}

fn ours() -> usize {
    on_fault as unsafe extern "C" fn(i32, *mut Info, *mut c_void) as usize
}

/// From now on a reading may fault; under the lock.
pub(super) fn set() {
    let mut before = Action::DEFAULT;
    // SAFETY: asks only.
    if IS_SET.load(Relaxed) || unsafe { sigaction(FAULT, null(), &mut before) } != 0 {
        return;
    }
    // SAFETY: under the lock, and the handler is not in place.
    unsafe { *BEFORE.0.get() = before };
    // The handler of before is called as if it were its own signal: same mask, same flags.
    let action = Action {
        handler: ours(),
        flags: before.flags & !ONCE | WITH_INFO | ON_OTHER_STACK,
        ..before
    };
    // SAFETY: a handler that stays as long as this code.
    IS_SET.store(
        unsafe { sigaction(FAULT, &action, null_mut()) } == 0,
        Relaxed,
    );
}

/// No thread counts any more; under the lock. If the program has put a handler of its own on top, ours stays below.
pub(super) fn lift() {
    let mut now = Action::DEFAULT;
    // SAFETY: asks only.
    let is_known = unsafe { sigaction(FAULT, null(), &mut now) } == 0;
    if !IS_SET.load(Relaxed) || !is_known || now.handler != ours() {
        return;
    }
    // SAFETY: what the program had set itself.
    unsafe { sigaction(FAULT, BEFORE.0.get(), null_mut()) };
    IS_SET.store(false, Relaxed);
}

#[cfg(test)]
#[path = "guard_tests.rs"]
mod tests;
