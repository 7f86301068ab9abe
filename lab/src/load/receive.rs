//! Received bytes, and when the kernel received them.

use std::io::{self, IoSliceMut};
use std::net::TcpStream;
use std::os::fd::AsRawFd as _;

use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};
use nix::sys::time::TimeSpec;
use rustix::time::{ClockId, clock_gettime};

use crate::clock::Nanos;

/// Read this much at a time.
const READ: usize = 64 << 10;

/// Has the kernel say when it received what is read from a socket.
pub fn stamp_what_comes(stream: &TcpStream) -> io::Result<()> {
    Ok(setsockopt(stream, sockopt::ReceiveTimestampns, &true)?)
}

/// Received bytes, of which the first part has been consumed.
#[derive(Default)]
pub struct Inbox {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// When the kernel received the last of them.
    received: Nanos,
}

impl Inbox {
    pub fn unread(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    pub fn received(&self) -> Nanos {
        self.received
    }

    pub fn consume(&mut self, n: usize) {
        self.start += n;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Reads once; 0 bytes at the connection's end.
    pub fn fill(&mut self, stream: &TcpStream) -> io::Result<usize> {
        if self.bytes.len() - self.end < READ / 2 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            // Grows by doubling for replies larger than a read.
            if self.bytes.len() - self.end < READ / 2 {
                self.bytes.resize((self.bytes.len() * 2).max(READ), 0);
            }
        }
        let (n, stamp) = read_stamped(stream, &mut self.bytes[self.end..])?;
        self.end += n;
        self.received = stamp.map_or_else(Nanos::now, on_our_clock);
        Ok(n)
    }
}

/// Reads once, with the kernel's stamp of the last byte that was read.
fn read_stamped(stream: &TcpStream, into: &mut [u8]) -> nix::Result<(usize, Option<TimeSpec>)> {
    let mut parts = [IoSliceMut::new(into)];
    let mut control = nix::cmsg_space!(TimeSpec);
    let flags = MsgFlags::empty();
    let message = recvmsg::<()>(stream.as_raw_fd(), &mut parts, Some(&mut control), flags)?;
    let stamp = message.cmsgs()?.find_map(|one| match one {
        ControlMessageOwned::ScmTimestampns(stamp) => Some(stamp),
        _ => None,
    });
    Ok((message.bytes, stamp))
}

/// The kernel stamps in Unix time: both clocks are read now, so that a step of it in the course of
/// a run does no harm.
fn on_our_clock(stamp: TimeSpec) -> Nanos {
    let (unix, now) = (clock_gettime(ClockId::Realtime), Nanos::now());
    let ago_ns = (unix.tv_sec - stamp.tv_sec()) * 1_000_000_000 + unix.tv_nsec - stamp.tv_nsec();
    now - Nanos(ago_ns.max(0) as u64)
}
