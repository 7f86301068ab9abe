//! Serving the SDK: processes that say themselves where their spans begin and end.
//!
//! A process that the kernel told of us connects to a socket, is checked by its peer credentials,
//! and gets its meters and its region. The connection stays open: its end tells the process that
//! the recorder is gone.

use std::collections::HashMap;
use std::env;
use std::fs;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, accept_with, bind, connect, listen, sendmsg, socket_with,
};
use tailscope_kernel::Kernel;
use tailscope_signals::abi;
use tailscope_signals::clock::Cycles;
use tailscope_signals::keeping::Keeping;
use tailscope_signals::meters::Meters;
use tailscope_signals::region::{Region, RegionLoss};
use tailscope_signals::row::Row;
use tailscope_trace::SpanName;

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

/// One process that uses the SDK.
struct Client {
    region: Region,
    meters: Meters,
    /// The ledger's names for the numbers of this region, as far as they were met.
    names: Vec<Option<SpanName>>,
    /// Kept for its end.
    connections: Vec<OwnedFd>,
    /// Whether it was told of that it can't count.
    refused: bool,
}

/// What the regions of all processes, also past ones, counted.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) spans: u64,
    pub(crate) full: u64,
    pub(crate) malformed: u64,
    pub(crate) strangers: u64,
}

impl Counts {
    fn add(&mut self, loss: RegionLoss, spans: u64) {
        self.spans += spans;
        self.full += loss.full;
        self.malformed += loss.malformed;
    }
}

/// The recorder's side of all SDK processes.
pub(crate) struct SdkServer {
    path: PathBuf,
    /// Device and inode of the socket that is ours.
    bound: Option<(u64, u64)>,
    listener: OwnedFd,
    clients: HashMap<u32, Client>,
    sample: u64,
    /// Of spans whose names are not known yet; times in cycles.
    unknown: Keeping,
    /// The events that are counted now, and their group's number.
    counted: (u16, Vec<abi::ts_event>),
    past: Counts,
}

impl SdkServer {
    /// The socket's path: `$TAILSCOPE_SOCKET`, or the one that the header names.
    pub(crate) fn path() -> PathBuf {
        env::var_os("TAILSCOPE_SOCKET").map_or_else(
            || PathBuf::from(String::from_utf8_lossy(abi::TS_SOCKET).trim_end_matches('\0')),
            PathBuf::from,
        )
    }

    /// `takes_over`: whoever serves the socket now is of this process, and about to end.
    pub(crate) fn open(
        sample: u64,
        unknown: Keeping,
        takes_over: bool,
    ) -> Result<Self, ServeError> {
        let path = Self::path();
        let listener = listen_at(&path, takes_over)?;
        Ok(Self {
            bound: inode(&path),
            path,
            listener,
            clients: HashMap::new(),
            sample,
            unknown,
            counted: (0, Vec::new()),
            past: Counts::default(),
        })
    }

    /// Readable when a process wants in.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Whoever waits to be let in.
    pub(crate) fn knocks(&self) -> Vec<OwnedFd> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        std::iter::from_fn(|| accept_with(&self.listener, flags).ok()).collect()
    }

    /// Lets them in, or not: `is_watched` says whose spans are recorded. What the next one needs is
    /// made ready, for it waits in its first span for our answer.
    pub(crate) fn welcome(
        &mut self,
        knocks: Vec<OwnedFd>,
        kernel: &mut Kernel,
        is_watched: impl Fn(u32) -> bool,
    ) {
        for connection in knocks {
            let Ok(peer) = socket_peercred(&connection) else {
                continue;
            };
            let pid = peer.pid.as_raw_nonzero().get() as u32;
            if !is_watched(pid) {
                self.past.strangers += 1;
                let _ = answer(&connection, abi::TS_NOT_WATCHED, &[]);
                continue;
            }
            if !self.clients.contains_key(&pid) {
                match self.furnish(kernel, pid) {
                    Ok(client) => drop(self.clients.insert(pid, client)),
                    Err(_) => {
                        let _ = answer(&connection, abi::TS_NO_ROOM, &[]);
                        continue;
                    }
                }
            }
            let Some(client) = self.clients.get_mut(&pid) else {
                continue;
            };
            let Some(meters) = kernel.meters_of(pid) else {
                continue;
            };
            let fds = [meters, client.region.as_fd()];
            if answer(&connection, abi::TS_WELCOME, &fds).is_ok() {
                client.connections.push(connection);
            }
        }
        // Where there is no room for one more, the next to come is told.
        let _ = kernel.prepare_meters();
    }

    fn furnish(&self, kernel: &mut Kernel, pid: u32) -> io::Result<Client> {
        let mut region = Region::create(self.sample, self.unknown)?;
        let (group, events) = &self.counted;
        region.count(*group, events);
        let map = kernel.give_meters(pid).map_err(io::Error::other)?;
        let meters = Meters::map(map)?;
        let names = vec![None; usize::from(u8::MAX) + 1];
        Ok(Client {
            region,
            meters,
            names,
            connections: Vec::new(),
            refused: false,
        })
    }

    /// Says to every process that the recorder is here.
    pub(crate) fn beat(&self, now: Cycles, overdue: u64) {
        for client in self.clients.values() {
            client.region.beat(now, overdue);
        }
    }

    /// Has all processes count these events from now on, also those that are still to come.
    pub(crate) fn count(&mut self, group: u16, events: Vec<abi::ts_event>) {
        for client in self.clients.values_mut() {
            client.region.count(group, &events);
        }
        self.counted = (group, events);
    }

    /// The processes of which a thread could not count, each once, and why.
    pub(crate) fn refusals(&mut self) -> Vec<(u32, io::Error)> {
        let clients = self
            .clients
            .iter_mut()
            .filter(|(_, client)| !client.refused);
        clients
            .filter_map(|(pid, client)| {
                let why = client.region.refusal()?;
                client.refused = true;
                Some((*pid, why))
            })
            .collect()
    }

    /// Tells every process which rows to write; times in cycles.
    pub(crate) fn keep(&self, of: impl Fn(SpanName) -> Keeping) {
        for client in self.clients.values() {
            for (number, name) in (0..=u8::MAX).zip(&client.names) {
                if let Some(name) = name {
                    client.region.keep(number, of(*name));
                }
            }
        }
    }

    /// The same for names that are not known yet, in processes that come from now on.
    pub(crate) fn keep_unknown(&mut self, keeping: Keeping) {
        self.unknown = keeping;
    }

    /// Takes what processes wrote.
    pub(crate) fn drain(&mut self, sink: &mut impl Sink) {
        for (pid, client) in &mut self.clients {
            client.drain(*pid, sink);
        }
    }

    /// A process ended, or runs another program: takes the last of what it wrote.
    pub(crate) fn forget(&mut self, pid: u32, sink: &mut impl Sink) {
        if let Some(mut client) = self.clients.remove(&pid) {
            client.drain(pid, sink);
            self.past.add(client.region.loss(), client.meters.spans());
        }
    }

    /// Whether this process was let in.
    pub(crate) fn serves(&self, pid: u32) -> bool {
        self.clients.contains_key(&pid)
    }

    pub(crate) fn counts(&self) -> Counts {
        let mut counts = self.past;
        for client in self.clients.values() {
            counts.add(client.region.loss(), client.meters.spans());
        }
        counts
    }
}

impl Drop for SdkServer {
    fn drop(&mut self) {
        // Another recorder may have taken the place.
        if inode(&self.path) == self.bound {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn inode(path: &Path) -> Option<(u64, u64)> {
    let found = fs::symlink_metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

/// Where rows go.
pub(crate) trait Sink {
    /// The ledger's name for a span.
    fn intern(&mut self, name: &str) -> SpanName;
    /// A row of a process.
    fn enter(&mut self, pid: u32, span: SpanName, row: &Row);
}

impl Client {
    fn drain(&mut self, pid: u32, sink: &mut impl Sink) {
        let known = &mut self.names;
        self.region.drain(&self.meters, |names, row| {
            let place = &mut known[usize::from(row.name)];
            let span = *place.get_or_insert_with(|| {
                sink.intern(names.get(row.name).as_deref().unwrap_or("(unnamed)"))
            });
            sink.enter(pid, span, &row);
        });
    }
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
