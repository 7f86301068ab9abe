//! What another thread executes, read by a system call.

use std::io;
use std::os::fd::OwnedFd;

use crate::Event;
use crate::open::{Refusal, in_user_space, open};

/// An event that counts what one thread of any process executes in user space.
#[derive(Debug)]
pub struct ThreadCounter {
    fd: OwnedFd,
}

impl ThreadCounter {
    /// Counts from now on, whenever the thread runs: it takes turns with nobody, so that the count is
    /// whole.
    ///
    /// # Errors
    /// [`Refusal::Kernel`]: there is no such counter, no such thread, or it is not allowed.
    pub fn open(event: &Event, tid: u32) -> Result<Self, Refusal> {
        let no_thread = || Refusal::Kernel(io::Error::from_raw_os_error(libc::ESRCH));
        let tid = libc::pid_t::try_from(tid).map_err(|_| no_thread())?;
        let mut attributes = in_user_space(event.kind, event.config);
        attributes.set_pinned(1);
        let fd = open(attributes, tid, None).map_err(Refusal::Kernel)?;
        Ok(Self { fd })
    }

    /// The count now, by a system call. While the thread runs on another CPU that one is interrupted
    /// for it, which takes some microseconds of both.
    ///
    /// # Errors
    /// [`Refusal::Crowded`]: all counters of the CPU had other users when the thread was to run.
    pub fn read(&self) -> Result<u64, Refusal> {
        let mut count = [0; 8];
        match rustix::io::read(&self.fd, &mut count) {
            Ok(8) => Ok(u64::from_ne_bytes(count)),
            // The kernel's word for one that was pinned and found no place.
            Ok(_) => Err(Refusal::Crowded),
            Err(e) => Err(Refusal::Kernel(e.into())),
        }
    }
}
