//! The socket at which processes with the SDK ask a recorder for their memory.
//!
//! A process connects, is known by its peer credentials, and gets the map of its meters and its
//! region, or is told why not. The connection stays open: its end tells the process that the recorder
//! is gone.

use std::cell::Cell;
use std::env;
use std::fs;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags, fstat};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, accept_with, bind, connect, listen, sendmsg, socket_with,
};

use crate::abi;

/// So many are accepted at a time: a flood must leave time for those who were let in.
const MOST_AT_ONCE: usize = 64;
/// So many wait in the kernel to be accepted. A flood fills every queue, and who comes then waits
/// for all of it.
const BACKLOG: i32 = 64;
/// After as many as may be at once, or where no descriptor is left, the next are accepted this much
/// later.
const PAUSE: Duration = Duration::from_millis(40);

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
    /// A file of another kind is there.
    #[error(
        "can't serve the SDK at {0}: it is not a socket; remove it, or set TAILSCOPE_SOCKET to another path here and for the programs"
    )]
    NoSocket(PathBuf),
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
    /// Nobody is accepted before.
    not_before: Cell<Option<Instant>>,
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
            not_before: Cell::new(None),
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

    /// Whoever waits to be let in, as many as may be now.
    #[must_use]
    pub fn knocks(&self) -> Vec<Knock> {
        if self.pauses() {
            return Vec::new();
        }
        // To accept makes a socket before it finds that nobody is there: 0.1 ms, many times a second.
        let mut ready = [PollFd::new(&self.listener, PollFlags::IN)];
        if poll(&mut ready, Some(&AT_ONCE)).is_ok_and(|ready| ready == 0) {
            return Vec::new();
        }
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let mut knocks = Vec::new();
        while knocks.len() < MOST_AT_ONCE {
            match accept_with(&self.listener, flags) {
                Ok(connection) => knocks.push(Knock {
                    connection,
                    since: Instant::now(),
                }),
                Err(Errno::AGAIN) => return knocks,
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(_) => break, // no descriptors, no memory: it stays readable, which must not spin
            }
        }
        self.not_before.set(Some(Instant::now() + PAUSE));
        knocks
    }

    /// Whether nobody is accepted at the moment.
    fn pauses(&self) -> bool {
        self.not_before
            .get()
            .is_some_and(|moment| Instant::now() < moment)
    }

    /// Readable when a process wants in. `None`: nobody is accepted at the moment, so look again
    /// after [`Door::PAUSE`].
    #[must_use]
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        (!self.pauses()).then(|| self.listener.as_fd())
    }

    /// How long nobody is accepted after a flood.
    pub const PAUSE: Duration = PAUSE;
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
pub struct Knock {
    connection: OwnedFd,
    /// When it was accepted.
    since: Instant,
}

impl Knock {
    /// Who it is; `None`: nobody knows.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        let peer = socket_peercred(&self.connection).ok()?;
        Some(peer.pid.as_raw_nonzero().get() as u32)
    }

    /// How long it has waited.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.since.elapsed()
    }

    /// Whether it has gone, and waits for no answer.
    #[must_use]
    pub fn left(&self) -> bool {
        is_hung_up(&self.connection)
    }

    /// Hands over the map of its meters and its region. It may be gone by now.
    pub fn let_in(self, meters: BorrowedFd<'_>, region: BorrowedFd<'_>) -> io::Result<Visitor> {
        answer(&self.connection, abi::TS_WELCOME, &[meters, region])?;
        Ok(Visitor(self.connection))
    }

    /// Tells it why not.
    pub fn refuse(self, why: Refusal) {
        let status = match why {
            Refusal::NotWatched => abi::TS_NOT_WATCHED,
            Refusal::NoRoom => abi::TS_NO_ROOM,
        };
        let _ = answer(&self.connection, status, &[]);
    }
}

/// A connection of a process that was let in.
#[derive(Debug)]
pub struct Visitor(OwnedFd);

impl Visitor {
    /// Whether the program that it was let in for is gone: it ended, or the process runs another.
    #[must_use]
    pub fn left(&self) -> bool {
        is_hung_up(&self.0)
    }
}

/// The connections of one process that was let in: the copies of the SDK in it have one each.
#[derive(Debug, Default)]
pub struct Visitors(Vec<Visitor>);

impl Visitors {
    /// So many a process may have at a time: an SDK for each language, and some in libraries.
    pub const MOST: usize = 16;

    /// Forgets those that have gone, and says whether one more may come.
    pub fn has_room(&mut self) -> bool {
        self.tidy();
        self.0.len() < Self::MOST
    }

    /// Forgets those that have gone: each is a descriptor.
    pub fn tidy(&mut self) {
        self.0.retain(|visitor| !visitor.left());
    }

    /// Keeps one.
    pub fn add(&mut self, visitor: Visitor) {
        self.0.push(visitor);
    }

    /// Whether the program that they were let in for is gone.
    #[must_use]
    pub fn have_left(&self) -> bool {
        self.0.iter().all(Visitor::left)
    }
}

fn is_hung_up(connection: &OwnedFd) -> bool {
    let mut ends = [PollFd::new(connection, PollFlags::empty())];
    poll(&mut ends, Some(&AT_ONCE)).is_ok_and(|ready| ready > 0)
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
    match fs::symlink_metadata(path) {
        Ok(file) if !file.file_type().is_socket() => {
            return Err(ServeError::NoSocket(path.to_owned()));
        }
        // Left by a recorder that was killed, or of one that lives?
        Ok(_) => match connect(&socket()?, &address) {
            Ok(()) if !takes_over => return Err(ServeError::Taken(path.to_owned())),
            // Its queue is full: somebody lives who is to accept.
            Err(Errno::AGAIN) if !takes_over => return Err(ServeError::Taken(path.to_owned())),
            Ok(()) | Err(Errno::AGAIN | Errno::CONNREFUSED) => {
                fs::remove_file(path).map_err(system)?;
            }
            Err(e) => return Err(system(e.into())),
        },
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder).map_err(system)?;
            }
        }
        Err(e) => return Err(system(e)),
    }
    let listener = socket()?;
    bind(&listener, &address).map_err(|e| system(e.into()))?;
    allow_everybody(path).map_err(system)?;
    listen(&listener, BACKLOG).map_err(|e| system(e.into()))?;
    Ok(listener)
}

/// Anybody may connect: who is let in is decided by who it is, not by the file's mode. The mode is
/// that of the socket, never of what somebody may have put in its place.
fn allow_everybody(path: &Path) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let socket = rustix::fs::open(path, flags, Mode::empty())?;
    if FileType::from_raw_mode(fstat(&socket)?.st_mode) != FileType::Socket {
        return Err(io::Error::other("another file took its place"));
    }
    let held = format!("/proc/self/fd/{}", socket.as_raw_fd());
    fs::set_permissions(held, fs::Permissions::from_mode(0o666))
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

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn what_is_no_socket_is_left_alone() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let precious = folder.path().join("precious");
        fs::write(&precious, "precious").expect("written");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&precious, &link).expect("linked");
        for path in [&precious, &link] {
            for takes_over in [false, true] {
                let error = listen_at(path, takes_over).expect_err("not a socket");
                assert!(error.to_string().contains("is not a socket"), "{error}");
            }
        }
        assert_eq!(fs::read_to_string(&precious).expect("there"), "precious");
    }

    #[test]
    fn a_socket_that_is_left_behind_is_taken_over_and_one_that_is_served_is_not() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("deep").join("sdk.sock");
        let served = listen_at(&path, false).expect("served");
        let mode = fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o666);
        let error = listen_at(&path, false).expect_err("it is served");
        assert!(matches!(error, ServeError::Taken(_)), "{error}");
        drop(served);
        fs::remove_file(&path).expect("ours");
        drop(UnixListener::bind(&path).expect("bound")); // its file stays
        listen_at(&path, false).expect("taken over");
    }
}
