//! The sockets at which processes with the SDK connect, and the connection requests.
//!
//! One socket is for everybody. Each user whose processes are watched has another, to which nobody
//! else may connect. A flood at the first one does not keep that user's programs waiting.

mod listener;

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

use tailscope_signals::abi;

use listener::Listener;

/// The most requests that are accepted at a time, at the socket for everybody and at that of a user. A
/// flood must leave time for the processes that are connected.
const MOST_AT_ONCE: usize = 16;
const MOST_OF_USER: usize = 24;
/// After the most requests at a time, or without a free descriptor, a socket accepts nothing for so long.
const PAUSE: Duration = Duration::from_millis(40);
/// The most users with a socket of their own.
const MOST_USERS: usize = 64;

/// A poll that does not wait.
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

/// Why a process gets no memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// It is not watched.
    NotWatched,
    /// All maps of meters are in use, or too many processes of its user have connected.
    NoRoom,
}

/// The sockets at which a recorder listens.
#[derive(Debug)]
pub struct Sockets {
    everybody: Listener,
    /// By user id. `None`: the system refused to make it.
    users: BTreeMap<u32, Option<Listener>>,
    /// Another recorder of this process serves the sockets until this one [takes over](Self::take_over).
    takes_over: bool,
}

impl Sockets {
    /// The path of the socket for everybody: `$TAILSCOPE_SOCKET`, or `TS_SOCKET` of the C header. The path
    /// of a user's socket has a dot and the user's id added.
    #[must_use]
    pub fn path() -> PathBuf {
        env::var_os("TAILSCOPE_SOCKET").map_or_else(
            || PathBuf::from(String::from_utf8_lossy(abi::TS_SOCKET).trim_end_matches('\0')),
            PathBuf::from,
        )
    }

    /// Binds the socket for everybody. `takes_over`: another recorder of this process serves it until this
    /// one [takes over](Self::take_over). Until then nobody connects here.
    pub fn open(takes_over: bool) -> Result<Self, ServeError> {
        Ok(Self {
            everybody: Listener::open(Self::path(), takes_over, MOST_AT_ONCE)?,
            users: BTreeMap::new(),
            takes_over,
        })
    }

    /// Opens a socket to which only this user may connect, if there is none yet. If the system refuses, the
    /// user's programs use the socket for everybody.
    pub fn open_for(&mut self, user: u32) {
        if self.users.len() >= MOST_USERS || self.users.contains_key(&user) {
            return;
        }
        let listener = Listener::open(path_of(user), self.takes_over, MOST_OF_USER).ok();
        let listener = listener.filter(|listener| listener.admit_only(user).is_ok());
        self.users.insert(user, listener);
    }

    /// Puts these sockets in the place of the other recorder's. If that fails for the socket for everybody,
    /// the other recorder goes on. A user whose socket can't be moved uses the one for everybody.
    pub fn take_over(&mut self) -> Result<(), ServeError> {
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

    /// Accepts the requests that wait, up to the most at a time.
    #[must_use]
    pub fn accept(&mut self) -> Vec<ConnectionRequest> {
        let mut open: Vec<_> = self.listeners_mut().filter(|l| !l.pauses()).collect();
        // accept() makes a socket before it finds that nobody waits: 0.1 ms, many times a second.
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

    /// Readable when a request waits. Sockets that [pause](Self::pauses) are not among them.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let open = self.listeners().filter(|listener| !listener.pauses());
        open.map(|listener| listener.socket.as_fd())
    }

    /// Whether a socket accepts nothing at the moment: poll again after [`Sockets::PAUSE`].
    #[must_use]
    pub fn pauses(&self) -> bool {
        self.listeners().any(Listener::pauses)
    }

    /// For how long a socket accepts nothing after a flood.
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
    let mut path = Sockets::path();
    path.as_mut_os_string().push(format!(".{user}"));
    path
}

/// A process that has connected and waits for the answer.
#[derive(Debug)]
pub struct ConnectionRequest {
    connection: OwnedFd,
    accepted: Instant,
    pid: u32,
    user: u32,
}

impl ConnectionRequest {
    /// `None`: the kernel does not say who has connected.
    fn of(connection: OwnedFd) -> Option<Self> {
        let peer = socket_peercred(&connection).ok()?;
        Some(Self {
            connection,
            accepted: Instant::now(),
            pid: peer.pid.as_raw_nonzero().get() as u32,
            user: peer.uid.as_raw(),
        })
    }

    /// The process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Its user.
    #[must_use]
    pub fn user(&self) -> u32 {
        self.user
    }

    /// For how long it has waited.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.accepted.elapsed()
    }

    /// Whether the process has closed it.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        is_hung_up(&self.connection)
    }

    /// Sends the map of its meters and its region. Fails if the process has closed it meanwhile.
    pub fn grant(self, meters: BorrowedFd<'_>, region: BorrowedFd<'_>) -> io::Result<Connection> {
        answer(&self.connection, abi::TS_ACCEPTED, &[meters, region])?;
        Ok(Connection(self.connection))
    }

    /// Sends why it gets nothing.
    pub fn refuse(self, why: Refusal) {
        let status = match why {
            Refusal::NotWatched => abi::TS_NOT_WATCHED,
            Refusal::NoRoom => abi::TS_NO_ROOM,
        };
        let _ = answer(&self.connection, status, &[]);
    }
}

/// A connection of a process that got its memory.
#[derive(Debug)]
pub struct Connection(OwnedFd);

/// The connections of one process: each copy of the SDK in it has one.
#[derive(Debug, Default)]
pub struct Connections(Vec<Connection>);

impl Connections {
    /// The most of one process at a time: an SDK for each language, and some in libraries.
    pub const MOST: usize = 16;

    /// Drops those that are closed, and says whether there is room for one more.
    pub fn has_room(&mut self) -> bool {
        self.drop_closed();
        self.0.len() < Self::MOST
    }

    /// Drops those that are closed: each holds a descriptor.
    pub fn drop_closed(&mut self) {
        self.0.retain(|connection| !is_hung_up(&connection.0));
    }

    /// Adds one.
    pub fn add(&mut self, connection: Connection) {
        self.0.push(connection);
    }

    /// Whether all are closed: the process has ended, or runs another program.
    #[must_use]
    pub fn are_closed(&self) -> bool {
        self.0.iter().all(|connection| is_hung_up(&connection.0))
    }
}

fn is_hung_up(connection: &OwnedFd) -> bool {
    let mut ends = [PollFd::new(connection, PollFlags::empty())];
    poll(&mut ends, Some(&AT_ONCE)).is_ok_and(|ready| ready > 0)
}

fn answer(connection: &OwnedFd, status: u32, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut message = Vec::new();
    message.extend(abi::TS_MAGIC.to_le_bytes());
    message.extend(abi::TS_ABI.to_le_bytes());
    message.extend(status.to_le_bytes());
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(fds));
    }
    sendmsg(
        connection,
        &[IoSlice::new(&message)],
        &mut control,
        SendFlags::NOSIGNAL,
    )?;
    Ok(())
}
