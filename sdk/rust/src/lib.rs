//! Tailscope for Rust: tell where a request begins and ends.
//!
//! ```
//! use tailscope_sdk::Span;
//!
//! fn answer(number: i64) {
//!     let span = Span::begin("get");
//!     // … the work, on this thread …
//!     span.end_with_id(number); // or let it go out of scope
//! }
//! # answer(7);
//! ```
//!
//! Nothing to initialise. Without a recorder a begin and an end cost a load and a branch each; with
//! one they read the thread's meter, some tens of nanoseconds, and make no system call. Spans may
//! nest and overlap. A span begins and ends on one thread: it is not `Send`, so a task of an `async`
//! runtime that may move can't hold it across an `.await`.
//!
//! How it finds the recorder: the recorder attaches to the probe `tailscope:thread` in this
//! program, whose semaphore the kernel then raises in this process and lowers when the recorder
//! goes, however it goes. The first begin after that connects to the recorder's socket
//! (`$TAILSCOPE_SOCKET`, else `/run/tailscope/sdk.sock`) and gets two pieces of shared memory: the
//! meters, and the region for rows. It is what `tailscope.h` does, so parts of a program in C and in
//! Rust get along.
//!
//! Two recorders may listen at a time. The second has all of this for itself: the probe
//! `tailscope:thread_second`, the socket with `.second` after its path, meters and a region.
//!
//! With `tailscope record --counters …` spans count hardware events, read in user space. A `Span` only says where
//! its thread keeps what the begin saw, so it may be moved about. Of more than 16 open spans of a thread the
//! later ones count nothing.
//!
//! Elsewhere than on Linux on x86-64 and arm64, and with the feature `disabled`, the same calls do
//! nothing.
//!
//! Limits: 255 names of 59 bytes a process; in a signal handler a thread's first begin may go
//! unmetered.

use std::marker::PhantomData;

pub mod channel;

#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(feature = "disabled")
)))]
mod off;

#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(feature = "disabled")
))]
mod on;

#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(feature = "disabled")
)))]
use off as recorder;
#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(feature = "disabled")
))]
use on as recorder;

/// A piece of work of this thread, from its begin until it is ended or dropped.
#[must_use = "a span that is not held ends at once"]
#[derive(Debug)]
pub struct Span {
    /// What its begin read for the first recorder; `None`: it is not metered, or has ended.
    reading: Option<recorder::Reading>,
    /// The same for the second.
    second: Option<recorder::Reading>,
    name: &'static str,
    /// Its thread's meter is read again at its end.
    not_send: PhantomData<*const ()>,
}

impl Span {
    /// Begins a span of this thread.
    #[inline]
    pub fn begin(name: &'static str) -> Self {
        let [reading, second] = if !recorder::is_heard() {
            [None, None]
        } else if !recorder::is_heard_by(1) {
            [recorder::begin(), None]
        } else {
            recorder::begin_both()
        };
        Self {
            reading,
            second,
            name,
            not_send: PhantomData,
        }
    }

    /// Whether it is recorded: a recorder listens and has selected it.
    #[must_use]
    pub fn is_metered(&self) -> bool {
        self.reading.is_some() || self.second.is_some()
    }

    /// Ends it now, as dropping it does.
    #[inline]
    pub fn end(self) {
        drop(self);
    }

    /// Ends it and says which request it was part of: spans with one id are one request.
    #[inline]
    pub fn end_with_id(mut self, id: i64) {
        self.finish(Some(id));
    }

    #[inline(always)]
    fn finish(&mut self, id: Option<i64>) {
        match [self.reading.take(), self.second.take()] {
            [None, None] => {}
            [Some(reading), None] => recorder::end(reading, self.name, id),
            both => recorder::end_both(both, self.name, id),
        }
    }
}

impl Drop for Span {
    #[inline]
    fn drop(&mut self) {
        self.finish(None);
    }
}

#[cfg(test)]
mod tests {
    use super::Span;

    #[test]
    fn without_a_recorder_spans_do_nothing() {
        let outer = Span::begin("outer");
        let inner = Span::begin("inner");
        assert!(!outer.is_metered());
        inner.end_with_id(7);
        outer.end();
    }
}
