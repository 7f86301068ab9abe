//! Channels: numbers of this program that `tailscope observe` reads while it runs, at cycles apart.
//!
//! ```
//! use tailscope_sdk::channel::{Counter, Tag};
//!
//! static SERVED: Counter = Counter::new("served");
//! static PHASE: Tag = Tag::new("phase");
//!
//! PHASE.set(2);
//! // … the work …
//! SERVED.add(1);
//! ```
//!
//! ```text
//! tailscope observe --signal channel:PID:served --tag channel:PID:phase
//! ```
//!
//! A write is a load, a branch, and a load and a store to memory of this process, whether somebody
//! observes or not. A channel belongs to one thread at a time: two that add to one lose some of
//! it, as no write is an atomic operation. It is there for observers from its first write on.
//!
//! Where there is no room (255 channels) or no shared memory, writes go to memory that nobody
//! reads. A child made by fork gets copies of its own.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicU64};

use crate::recorder::{Kind, open_channel};

/// A channel, found when it is first used.
#[derive(Debug)]
struct Channel {
    name: &'static str,
    kind: Kind,
    value: AtomicPtr<AtomicU64>,
}

impl Channel {
    const fn new(name: &'static str, kind: Kind) -> Self {
        Self {
            name,
            kind,
            value: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    #[inline(always)]
    fn value(&self) -> &'static AtomicU64 {
        let known = self.value.load(Acquire);
        // SAFETY: null, or what `open` stored: a word that lives as long as the process.
        unsafe { known.as_ref() }.unwrap_or_else(|| self.open())
    }

    #[cold]
    fn open(&self) -> &'static AtomicU64 {
        let value = open_channel(self.name, self.kind);
        self.value
            .store(std::ptr::from_ref(value).cast_mut(), Release);
        value
    }
}

/// A number that only grows: an observer tells its rate.
#[derive(Debug)]
pub struct Counter(Channel);

impl Counter {
    /// Names are cut to 47 bytes; those of one name are one channel.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self(Channel::new(name, Kind::Counter))
    }

    /// Grows by so much.
    #[inline]
    pub fn add(&self, much: u64) {
        let value = self.0.value();
        value.store(value.load(Relaxed).wrapping_add(much), Relaxed);
    }
}

/// A number that says what is being done: an observer tells rates by it.
#[derive(Debug)]
pub struct Tag(Channel);

impl Tag {
    /// Names are cut to 47 bytes; those of one name are one channel.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self(Channel::new(name, Kind::Tag))
    }

    /// From now on it is this.
    #[inline]
    pub fn set(&self, value: u64) {
        self.0.value().store(value, Relaxed);
    }
}
