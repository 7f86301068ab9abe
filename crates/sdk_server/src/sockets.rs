//! The sockets at which processes with the SDK connect, and the connection requests.
//!
//! Two recorders can listen at a time, each with sockets of its own. The one that starts first takes the first
//! [`Address`], the other one the second.
//!
//! One socket is for everybody. Each user whose processes are watched has another, to which nobody
//! else may connect. A flood at the first one does not keep that user's programs waiting.

mod listener;

use std::collections::BTreeMap;
use std::env;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use tailscope_signals::abi;
use tailscope_symbols::sdk::Address;

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
    /// Others serve it at all addresses.
    #[error(
        "two other recorders serve the SDK at {0}, which is the most: stop one of them, or set TAILSCOPE_SOCKET to another path here and for the programs"
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
    /// The path of the socket for everybody at the first address.
    base: PathBuf,
    address: Address,
    everybody: Listener,
    /// By user id. `None`: the system refused to make it.
    users: BTreeMap<u32, Option<Listener>>,
    /// Another recorder of this process serves the sockets until this one [takes over](Self::take_over).
    takes_over: bool,
}

impl Sockets {
    /// Binds the socket for everybody, at the first address that no other recorder has. `takes_over`:
    /// another recorder of this process listens at this one until the new one
    /// [takes over](Self::take_over). Until then nobody connects here.
    ///
    /// # Errors
    /// Other recorders have all addresses, or the system refuses.
    pub fn open(takes_over: Option<Address>) -> Result<Self, ServeError> {
        let said = env::var_os("TAILSCOPE_SOCKET").map(PathBuf::from);
        let base = said.unwrap_or_else(|| PathBuf::from(text(abi::TS_SOCKET)));
        Self::open_at_one(&base, takes_over)
    }

    fn open_at_one(base: &Path, takes_over: Option<Address>) -> Result<Self, ServeError> {
        if let Some(address) = takes_over {
            return Self::open_at(base, address, true);
        }
        match Self::open_at(base, Address::First, false) {
            Err(ServeError::Taken(first)) => match Self::open_at(base, Address::Second, false) {
                Err(ServeError::Taken(_)) => Err(ServeError::Taken(first)),
                opened => opened,
            },
            opened => opened,
        }
    }

    fn open_at(base: &Path, address: Address, takes_over: bool) -> Result<Self, ServeError> {
        Ok(Self {
            base: base.to_owned(),
            address,
            everybody: Listener::open(path_at(base, address), takes_over, MOST_AT_ONCE)?,
            users: BTreeMap::new(),
            takes_over,
        })
    }

    /// At which of the addresses they are.
    #[must_use]
    pub fn address(&self) -> Address {
        self.address
    }

    /// The path of the socket for everybody. The path of a user's socket has a dot and the user's id added.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        path_at(&self.base, self.address)
    }

    fn path_of(&self, user: u32) -> PathBuf {
        let mut path = self.path();
        path.as_mut_os_string().push(format!(".{user}"));
        path
    }

    /// Opens a socket to which only this user may connect, if there is none yet. If the system refuses, the
    /// user's programs use the socket for everybody.
    pub fn open_for(&mut self, user: u32) {
        if self.users.len() >= MOST_USERS || self.users.contains_key(&user) {
            return;
        }
        let listener = Listener::open(self.path_of(user), self.takes_over, MOST_OF_USER).ok();
        let listener = listener.filter(|listener| listener.admit_only(user).is_ok());
        self.users.insert(user, listener);
    }

    /// Puts these sockets in the place of the other recorder's. If that fails for the socket for everybody,
    /// the other recorder goes on. A user whose socket can't be moved uses the one for everybody.
    pub fn take_over(&mut self) -> Result<(), ServeError> {
        self.everybody.move_to(self.path())?;
        self.takes_over = false;
        for (user, listener) in std::mem::take(&mut self.users) {
            let path = self.path_of(user);
            let moved = listener.and_then(|mut of| of.move_to(path).is_ok().then_some(of));
            self.users.insert(user, moved);
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

/// A text of the C header.
fn text(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.trim_end_matches('\0').to_owned()
}

fn path_at(base: &Path, address: Address) -> PathBuf {
    let mut path = base.to_owned();
    if address == Address::Second {
        path.as_mut_os_string().push(text(abi::TS_SECOND));
    }
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

/// The requests, and whether the process has closed each.
pub(crate) fn with_closed(
    requests: Vec<ConnectionRequest>,
) -> impl Iterator<Item = (ConnectionRequest, bool)> {
    let mut ends: Vec<_> = requests
        .iter()
        .map(|request| PollFd::new(&request.connection, PollFlags::empty()))
        .collect();
    let polled = ends.is_empty() || poll(&mut ends, Some(&AT_ONCE)).is_ok();
    let closed: Vec<bool> = ends
        .iter()
        .map(|end| polled && !end.revents().is_empty())
        .collect();
    requests.into_iter().zip(closed)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_recorders_listen_and_a_third_is_refused_until_one_ends() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let base = folder.path().join("sdk.sock");
        let open = || Sockets::open_at_one(&base, None);
        let (first, second) = (open().expect("free"), open().expect("free"));
        assert_eq!(
            (first.address(), first.path()),
            (Address::First, base.clone())
        );
        assert_eq!(second.address(), Address::Second);
        assert_eq!(second.path(), folder.path().join("sdk.sock.second"));
        let error = open().expect_err("both are taken");
        assert!(
            matches!(&error, ServeError::Taken(path) if *path == base),
            "{error}"
        );
        drop(first);
        assert_eq!(open().expect("free again").address(), Address::First);
        drop(second);
    }

    #[test]
    fn a_recorder_takes_over_the_address_of_the_one_before() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let base = folder.path().join("sdk.sock");
        let _first = Sockets::open_at_one(&base, None).expect("free");
        let before = Sockets::open_at_one(&base, None).expect("free");
        let next = Sockets::open_at_one(&base, Some(before.address()));
        let mut next = next.expect("beside the one before");
        next.take_over().expect("renamed");
        assert_eq!(
            (next.address(), next.path()),
            (Address::Second, before.path())
        );
        drop(before);
        assert!(next.path().exists(), "it is not the one before's any more");
    }
}
