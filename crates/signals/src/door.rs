//! The sockets at which processes with the SDK ask a recorder for their memory.
//!
//! A process connects, is known by its peer credentials, and gets the map of its meters and its
//! region, or is told why not. The connection stays open: its end tells the process that the recorder
//! is gone.
//!
//! One socket is for everybody. Each user whose processes are watched has another, to which nobody
//! else may connect: a flood at the first one does not keep that user's programs waiting.

mod listener;
mod newcomers;

use std::collections::BTreeMap;
use std::env;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use crate::abi;
use listener::Listener;
pub use newcomers::Newcomers;

/// So many are accepted at a time at the socket that everybody may use, and at one user's: a flood must
/// leave time for those who were let in.
const MOST_AT_ONCE: usize = 16;
const MOST_OF_USER: usize = 24;
/// After as many as may be at once, or where no descriptor is left, the next are accepted this much
/// later.
const PAUSE: Duration = Duration::from_millis(40);
/// So many users have a socket of their own.
const MOST_USERS: usize = 64;

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
    /// No more have room, or too many of its user's have come.
    NoRoom,
}

/// The recorder's end of the sockets.
#[derive(Debug)]
pub struct Door {
    everybody: Listener,
    /// By their host's ids. `None`: the system refused to make it.
    users: BTreeMap<u32, Option<Listener>>,
    /// Whoever serves the sockets now is of this process, and goes on until this one takes its place.
    takes_over: bool,
}

impl Door {
    /// The path of everybody's socket: `$TAILSCOPE_SOCKET`, or the one that the header names. That of a
    /// user has the user's id after a dot.
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
        Ok(Self {
            everybody: Listener::open(Self::path(), takes_over, MOST_AT_ONCE)?,
            users: BTreeMap::new(),
            takes_over,
        })
    }

    /// Gives this user a socket to which nobody else may connect, if there is none yet. Where the system
    /// refuses, the user's programs come to everybody's.
    pub fn open_for(&mut self, user: u32) {
        if self.users.len() >= MOST_USERS || self.users.contains_key(&user) {
            return;
        }
        let listener = Listener::open(path_of(user), self.takes_over, MOST_OF_USER).ok();
        let listener = listener.filter(|listener| listener.admit_only(user).is_ok());
        self.users.insert(user, listener);
    }

    /// Has all who connect from now on come here. If that fails, the one that serves goes on; a user
    /// whose own socket can't be moved has everybody's.
    pub fn take_place(&mut self) -> Result<(), ServeError> {
        self.everybody.move_to(Self::path())?;
        self.takes_over = false;
        for (&user, listener) in &mut self.users {
            if let Some(moved) = listener
                && moved.move_to(path_of(user)).is_err()
            {
                *listener = None;
            }
        }
        Ok(())
    }

    /// Whoever waits to be let in, as many as may be now.
    #[must_use]
    pub fn knocks(&mut self) -> Vec<Knock> {
        let mut open: Vec<_> = self.listeners_mut().filter(|l| !l.pauses()).collect();
        // To accept makes a socket before it finds that nobody is there: 0.1 ms, many times a second.
        let mut ready: Vec<_> = open
            .iter()
            .map(|listener| PollFd::new(&listener.socket, PollFlags::IN))
            .collect();
        if poll(&mut ready, Some(&AT_ONCE)).is_ok_and(|ready| ready == 0) {
            return Vec::new();
        }
        let ready: Vec<bool> = ready.iter().map(|fd| !fd.revents().is_empty()).collect();
        let ready = open.iter_mut().zip(ready).filter(|(_, ready)| *ready);
        ready.flat_map(|(listener, _)| listener.accept()).collect()
    }

    /// Readable when a process wants in. While [some pause](Self::pauses) theirs are not among them.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let open = self.listeners().filter(|listener| !listener.pauses());
        open.map(|listener| listener.socket.as_fd())
    }

    /// Whether somebody is not accepted at the moment, so look again after [`Door::PAUSE`].
    #[must_use]
    pub fn pauses(&self) -> bool {
        self.listeners().any(Listener::pauses)
    }

    /// How long nobody is accepted after a flood.
    pub const PAUSE: Duration = PAUSE;

    fn listeners(&self) -> impl Iterator<Item = &Listener> {
        self.users.values().flatten().chain([&self.everybody])
    }

    fn listeners_mut(&mut self) -> impl Iterator<Item = &mut Listener> {
        let users = self.users.values_mut().flatten();
        users.chain([&mut self.everybody])
    }
}

fn path_of(user: u32) -> PathBuf {
    let mut path = Door::path();
    path.as_mut_os_string().push(format!(".{user}"));
    path
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

    /// Whose it is; `None`: nobody knows.
    #[must_use]
    pub fn user(&self) -> Option<u32> {
        Some(socket_peercred(&self.connection).ok()?.uid.as_raw())
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

fn answer(connection: &OwnedFd, status: u32, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut welcome = Vec::new();
    welcome.extend(abi::TS_MAGIC.to_le_bytes());
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
