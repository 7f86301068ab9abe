//! The socket at which processes with the SDK ask a recorder for their memory.
//!
//! A process connects, is known by its peer credentials, and gets the map of its meters and its
//! region, or is told why not. The connection stays open: its end tells the process that the recorder
//! is gone.

use std::env;
use std::fs;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, accept_with, bind, connect, listen, sendmsg, socket_with,
};

use crate::abi;

/// To ask, and not to wait.
const AT_ONCE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// The socket can't be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Somebody else serves it.
    #[error(
        "another recorder serves the SDK at {0}: stop it, or set TAILSCOPE_SOCKET to another path here and for the programs"
    )]
    Taken(PathBuf),
    /// The system refused.
    #[error("can't serve the SDK at {path}: {source}")]
    System {
        /// Where.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Why a process is not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// It is not one of those that are watched.
    NotWatched,
    /// No more have room.
    NoRoom,
}

/// The recorder's end of the socket.
#[derive(Debug)]
pub struct Door {
    /// Where the socket lies now.
    path: PathBuf,
    /// Device and inode of the socket that is ours.
    bound: Option<(u64, u64)>,
    listener: OwnedFd,
}

impl Door {
    /// The socket's path: `$TAILSCOPE_SOCKET`, or the one that the header names.
    #[must_use]
    pub fn path() -> PathBuf {
        env::var_os("TAILSCOPE_SOCKET").map_or_else(
            || PathBuf::from(String::from_utf8_lossy(abi::TS_SOCKET).trim_end_matches('\0')),
            PathBuf::from,
        )
    }

    /// `takes_over`: whoever serves the socket now is of this process, and goes on until this one
    /// [takes its place](Self::take_place). Until then nobody comes here.
    pub fn open(takes_over: bool) -> Result<Self, ServeError> {
        let mut path = Self::path();
        if takes_over {
            path.as_mut_os_string().push("~");
        }
        let listener = listen_at(&path, takes_over)?;
        Ok(Self {
            bound: inode(&path),
            path,
            listener,
        })
    }

    /// Has all who knock from now on come here.
    pub fn take_place(&mut self) -> Result<(), ServeError> {
        let path = Self::path();
        fs::rename(&self.path, &path).map_err(|source| ServeError::System {
            path: path.clone(),
            source,
        })?;
        self.path = path;
        Ok(())
    }

    /// Whoever waits to be let in.
    #[must_use]
    pub fn knocks(&self) -> Vec<Knock> {
        // To accept makes a socket before it finds that nobody is there: 0.1 ms, many times a second.
        let mut ready = [PollFd::new(&self.listener, PollFlags::IN)];
        if poll(&mut ready, Some(&AT_ONCE)).is_ok_and(|ready| ready == 0) {
            return Vec::new();
        }
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        std::iter::from_fn(|| accept_with(&self.listener, flags).ok())
            .map(Knock)
            .collect()
    }
}

/// Readable when a process wants in.
impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        // Another recorder may have taken the place.
        if inode(&self.path) == self.bound {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A process that waits for its answer.
#[derive(Debug)]
pub struct Knock(OwnedFd);

impl Knock {
    /// Who it is; `None`: nobody knows.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        let peer = socket_peercred(&self.0).ok()?;
        Some(peer.pid.as_raw_nonzero().get() as u32)
    }

    /// Hands over the map of its meters and its region. It may be gone by now.
    pub fn let_in(self, meters: BorrowedFd<'_>, region: BorrowedFd<'_>) -> io::Result<Visitor> {
        answer(&self.0, abi::TS_WELCOME, &[meters, region])?;
        Ok(Visitor(self.0))
    }

    /// Tells it why not.
    pub fn refuse(self, why: Refusal) {
        let status = match why {
            Refusal::NotWatched => abi::TS_NOT_WATCHED,
            Refusal::NoRoom => abi::TS_NO_ROOM,
        };
        let _ = answer(&self.0, status, &[]);
    }
}

/// A connection of a process that was let in.
#[derive(Debug)]
pub struct Visitor(OwnedFd);

impl Visitor {
    /// Whether the program that it was let in for is gone: it ended, or the process runs another.
    #[must_use]
    pub fn left(&self) -> bool {
        let mut ends = [PollFd::new(&self.0, PollFlags::empty())];
        poll(&mut ends, Some(&AT_ONCE)).is_ok_and(|ready| ready > 0)
    }
}

fn inode(path: &Path) -> Option<(u64, u64)> {
    let found = fs::symlink_metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

fn listen_at(path: &Path, takes_over: bool) -> Result<OwnedFd, ServeError> {
    let system = |source: io::Error| ServeError::System {
        path: path.to_owned(),
        source,
    };
    let address = SocketAddrUnix::new(path).map_err(|e| system(e.into()))?;
    let socket = || {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
            .map_err(|e| system(e.into()))
    };
    if path.exists() {
        // Left by a recorder that was killed, or of one that lives?
        match connect(&socket()?, &address) {
            Ok(()) if !takes_over => return Err(ServeError::Taken(path.to_owned())),
            _ => fs::remove_file(path).map_err(system)?,
        }
    } else if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(system)?;
    }
    let listener = socket()?;
    bind(&listener, &address).map_err(|e| system(e.into()))?;
    // Anybody may knock: who is let in is decided by who it is, not by the file's mode.
    fs::set_permissions(path, fs::Permissions::from_mode(0o666)).map_err(system)?;
    listen(&listener, 128).map_err(|e| system(e.into()))?;
    Ok(listener)
}

fn answer(connection: &OwnedFd, status: u32, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut welcome = Vec::new();
    welcome.extend(u64::from_le_bytes(*b"tale1\0\0\0").to_le_bytes());
    welcome.extend(abi::TS_ABI.to_le_bytes());
    welcome.extend(status.to_le_bytes());
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(fds));
    }
    sendmsg(
        connection,
        &[IoSlice::new(&welcome)],
        &mut control,
        SendFlags::NOSIGNAL,
    )?;
    Ok(())
}
