//! The inbox of a worker: fibres that arrive from other threads.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::thread::Thread;

use crate::fibre::Fibre;

/// An intrusive list that any thread pushes to, and of which one thread takes everything at once.
///
/// The list's head also says whether the owner sleeps, so that a push that wakes nobody costs one
/// compare-and-swap and no fence.
#[derive(Debug, Default)]
#[repr(align(128))] // Two lines: adjacent lines are fetched in pairs.
pub struct Inbox {
    head: AtomicPtr<Fibre>,
}

/// The head while the owner sleeps: no address of a fibre, which starts a line.
fn sleeping() -> *mut Fibre {
    ptr::without_provenance_mut(1)
}

impl Inbox {
    /// Adds a fibre, and wakes the owner if it sleeps.
    pub fn push(&self, fibre: Box<Fibre>, owner: &Thread) {
        let node = Box::into_raw(fibre);
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            let next = if head == sleeping() {
                ptr::null_mut()
            } else {
                head
            };
            // SAFETY: the node comes from the box above; nobody else has it until the exchange.
            unsafe { (*node).next = next };
            match self
                .head
                .compare_exchange_weak(head, node, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => break,
                Err(now) => head = now,
            }
        }
        if head == sleeping() {
            owner.unpark();
        }
    }

    /// Whether nothing has arrived.
    pub fn is_empty(&self) -> bool {
        let head = self.head.load(Ordering::Relaxed);
        head.is_null() || head == sleeping()
    }

    /// Takes everything, in the order of arrival. Only the owner calls it.
    pub fn drain(&self, mut each: impl FnMut(Box<Fibre>)) {
        let mut node = self.head.swap(ptr::null_mut(), Ordering::Acquire);
        if node == sleeping() {
            return;
        }
        let mut first = ptr::null_mut();
        while !node.is_null() {
            // SAFETY: the exchange above gave the whole list to this thread.
            let next = unsafe { (*node).next };
            // SAFETY: as before.
            unsafe { (*node).next = first };
            first = node;
            node = next;
        }
        while !first.is_null() {
            // SAFETY: made by `Box::into_raw` in `push`, and taken off the list just here.
            let fibre = unsafe { Box::from_raw(first) };
            first = fibre.next;
            each(fibre);
        }
    }

    /// Marks the owner as asleep; false if something has arrived. Only the owner calls it.
    pub fn fall_asleep(&self) -> bool {
        self.replace(ptr::null_mut(), sleeping())
    }

    /// Whether the owner is still marked as asleep.
    pub fn is_asleep(&self) -> bool {
        self.head.load(Ordering::Acquire) == sleeping()
    }

    /// Wakes the owner without a fibre.
    pub fn wake(&self, owner: &Thread) {
        if self.replace(sleeping(), ptr::null_mut()) {
            owner.unpark();
        }
    }

    /// Sequentially consistent: the runtime's flags decide whether a sleeper has to be woken.
    fn replace(&self, old: *mut Fibre, new: *mut Fibre) -> bool {
        let order = Ordering::SeqCst;
        let head = self.head.compare_exchange(old, new, order, order);
        head.is_ok()
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.drain(drop);
    }
}
