//! Process events, as the programs send them.

use std::cell::RefCell;
use std::os::fd::BorrowedFd;
use std::rc::Rc;

use libbpf_rs::{MapCore, RingBuffer, RingBufferBuilder};
use rustix::fs::makedev;
use tailscope_process::owner::FileId;
use tailscope_signals::row::Row;

use crate::shared::{self, Plain};

/// A process event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// It made another process, which is watched from now on.
    Child {
        /// The new process.
        pid: u32,
        /// The one that made it.
        parent: u32,
    },
    /// It runs another program now.
    Exec {
        /// The process.
        pid: u32,
        /// The program's file, as the kernel has it: on some file systems `stat` has another device.
        program: FileId,
        /// Whose process it is: the real user.
        user: u32,
        /// Since when, in ns of the kernel's monotonic clock.
        at: u64,
    },
    /// Its last thread is gone, and so is the watch.
    Exit {
        /// The process.
        pid: u32,
    },
    /// It is not watched, and runs another program now. Only where [`Config`] asks for it.
    ///
    /// [`Config`]: crate::Config
    Program {
        /// The process.
        pid: u32,
    },
    /// A ring of rows is half full: somebody has to take them now.
    Rows,
    /// Its SDK could not reach the recorder.
    Refused {
        /// The process.
        pid: u32,
        /// Why, as an errno.
        errno: i32,
    },
}

impl Event {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let event = shared::event::from_bytes(bytes)?;
        let pid = event.pid;
        Some(match event.kind {
            shared::EVENT_CHILD => Self::Child {
                pid,
                parent: event.detail,
            },
            shared::EVENT_EXEC => Self::Exec {
                pid,
                program: (device(event.device), event.inode),
                user: event.detail,
                at: event.at,
            },
            shared::EVENT_EXIT => Self::Exit { pid },
            shared::EVENT_PROGRAM => Self::Program { pid },
            shared::EVENT_REFUSED => Self::Refused {
                pid,
                errno: event.detail as i32,
            },
            shared::EVENT_ROWS => Self::Rows,
            _ => return None,
        })
    }
}

/// The kernel's own number of a device (`MINORBITS` in include/linux/kdev_t.h), as `stat` has it.
fn device(kernels: u32) -> u64 {
    makedev(kernels >> 20, kernels & 0xf_ffff)
}

/// A ring whose entries are parsed as they come out.
pub(crate) struct Ring<T> {
    ring: RingBuffer<'static>,
    parsed: Rc<RefCell<Vec<T>>>,
}

/// How many entries are taken out before they are handed on: bounds the memory between.
const BATCH: usize = 1024;

impl<T: 'static> Ring<T> {
    pub(crate) fn open(
        map: &dyn MapCore,
        parse: impl Fn(&[u8]) -> Option<T> + 'static,
    ) -> libbpf_rs::Result<Self> {
        let parsed = Rc::new(RefCell::new(Vec::with_capacity(BATCH)));
        let sink = Rc::clone(&parsed);
        let mut builder = RingBufferBuilder::new();
        builder.add(map, move |bytes| {
            sink.borrow_mut().extend(parse(bytes));
            0
        })?;
        Ok(Self {
            ring: builder.build()?,
            parsed,
        })
    }

    /// Hands on what is in the ring.
    pub(crate) fn drain(&mut self, mut each: impl FnMut(T)) {
        loop {
            let taken = self.ring.consume_raw_n(BATCH);
            for entry in self.parsed.borrow_mut().drain(..) {
                each(entry);
            }
            if taken < BATCH as i32 {
                return;
            }
        }
    }

    /// Readable when something is in the ring whose program asked for a wake-up.
    pub(crate) fn epoll_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring owns the descriptor and is borrowed for as long.
        unsafe { BorrowedFd::borrow_raw(self.ring.epoll_fd()) }
    }
}

/// Rows of spans from probes.
pub(crate) fn rows(map: &dyn MapCore) -> libbpf_rs::Result<Ring<Row>> {
    Ring::open(map, |bytes| Row::parse(bytes).ok().map(|(row, _)| row))
}

pub(crate) fn events(map: &dyn MapCore) -> libbpf_rs::Result<Ring<Event>> {
    Ring::open(map, Event::parse)
}
