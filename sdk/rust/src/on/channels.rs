//! The file in memory that channels are in: `tailscope_channel.h` has the same in C. Each of both
//! makes its own, and an observer looks into all.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64};

use super::abi::{CHANNEL_NAME, CHANNEL_SLOTS, CHANNELS_MAGIC, Channels};
use super::sys;

/// What a channel's value means.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Counter = 1,
    Tag = 2,
}

/// Made by whoever opens a channel first; never unmapped.
static CHANNELS: AtomicPtr<Channels> = AtomicPtr::new(std::ptr::null_mut());
/// Somebody opens a channel.
static BUSY: AtomicBool = AtomicBool::new(false);
/// Takes what finds no room.
static NOWHERE: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" {
    // The C library's, which the standard library is linked with anyway.
    fn pthread_atfork(
        prepare: Option<unsafe extern "C" fn()>,
        parent: Option<unsafe extern "C" fn()>,
        child: Option<unsafe extern "C" fn()>,
    ) -> i32;
}

/// Held by who opens a channel. No mutex: in a child there is nobody left who would let go of it.
struct Busy;

impl Busy {
    fn take() -> Self {
        while BUSY.swap(true, Acquire) {
            std::thread::yield_now();
        }
        Self
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        BUSY.store(false, Release);
    }
}

fn channels() -> Option<&'static Channels> {
    // SAFETY: null, or what is stored below.
    unsafe { CHANNELS.load(Relaxed).as_ref() }
}

fn make() -> Option<&'static Channels> {
    let at: *mut Channels = sys::map_channels(size_of::<Channels>(), None).ok()?.cast();
    // SAFETY: zeroed memory of that size, page-aligned, which is never unmapped; all of it is atomics.
    let made: &'static Channels = unsafe { &*at };
    // SAFETY: a function of ours that stays.
    unsafe { pthread_atfork(None, None, Some(after_fork)) };
    CHANNELS.store(at, Relaxed);
    made.magic.store(CHANNELS_MAGIC, Release);
    Some(made)
}

/// In a child, before any other code of it runs: a copy in place of what it shares with its parent. What another
/// thread of that was just opening is opened again, as if it had not been begun.
unsafe extern "C" fn after_fork() {
    BUSY.store(false, Release);
    let Some(channels) = channels() else { return };
    let mut copy = [0u64; size_of::<Channels>() / 8];
    for (copy, word) in copy.iter_mut().zip(channels.words()) {
        *copy = word.load(Relaxed);
    }
    let at = CHANNELS.load(Relaxed).cast();
    if sys::map_channels(size_of::<Channels>(), Some(at)).is_ok() {
        for (word, copy) in channels.words().iter().zip(copy) {
            word.store(copy, Relaxed);
        }
    }
}

/// The value of the channel of that name, made if there is none.
pub(crate) fn open_channel(name: &str, kind: Kind) -> &'static AtomicU64 {
    let _busy = Busy::take();
    let Some(channels) = channels().or_else(make) else {
        return &NOWHERE;
    };
    let mut wanted = [0u8; CHANNEL_NAME];
    let length = name.len().min(CHANNEL_NAME - 1);
    wanted[..length].copy_from_slice(&name.as_bytes()[..length]);
    for (number, slot) in (1..).zip(&channels.slot) {
        if slot.kind.load(Relaxed) == 0 {
            for (byte, letter) in slot.name.iter().zip(wanted) {
                byte.store(letter, Relaxed);
            }
            channels.taken.store(number, Relaxed);
            slot.kind.store(kind as u32, Release);
            return &slot.value;
        }
        if slot
            .name
            .iter()
            .zip(wanted)
            .all(|(byte, letter)| byte.load(Relaxed) == letter)
        {
            return &slot.value;
        }
    }
    debug_assert_eq!(channels.slot.len(), CHANNEL_SLOTS);
    &NOWHERE
}
