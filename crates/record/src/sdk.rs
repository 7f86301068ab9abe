//! Serving the SDK: processes that say themselves where their spans begin and end.
//!
//! A process that the kernel told of us connects to a socket, is checked by its peer credentials,
//! and gets its meters and its region. The connection stays open: its end tells the process that
//! the recorder is gone.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::time::Instant;

use tailscope_kernel::Kernel;
use tailscope_signals::abi;
use tailscope_signals::clock::Cycles;
use tailscope_signals::door::{Door, Knock, Newcomers, Refusal, ServeError, Visitors};
use tailscope_signals::keeping::Keeping;
use tailscope_signals::meters::Meters;
use tailscope_signals::owner;
use tailscope_signals::region::{Region, RegionLoss};
use tailscope_signals::row::Row;
use tailscope_trace::SpanName;

/// One process that uses the SDK.
struct Client {
    region: Region,
    meters: Meters,
    /// Whose the process is.
    user: u32,
    /// When it began.
    start: Option<u64>,
    /// The ledger's names for the numbers of this region, as far as they were met.
    names: Vec<Option<SpanName>>,
    connections: Visitors,
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
    pub(crate) refused: u64,
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
    door: Door,
    clients: HashMap<u32, Client>,
    sample: u64,
    /// Of spans whose names are not known yet; times in cycles.
    unknown: Keeping,
    /// The events that are counted now, and their group's number.
    counted: (u16, Vec<abi::ts_event>),
    past: Counts,
    quota: NameQuota,
    newcomers: Newcomers,
}

/// The names that each user's processes have brought: one must not take those of all others.
#[derive(Debug, Default)]
struct NameQuota(HashMap<u32, HashSet<String>>);

/// So many names of one user are told apart.
const MOST_NAMES_OF_USER: usize = 512;
/// The name of the others, and of those whose text had no room in the region.
const OTHER_NAMES: &str = "(other)";
const UNNAMED: &str = "(unnamed)";

impl NameQuota {
    /// What a span of this user's is called.
    fn name(&mut self, user: u32, name: Option<String>) -> String {
        let Some(name) = name else {
            return UNNAMED.into();
        };
        let known = self.0.entry(user).or_default();
        if known.len() < MOST_NAMES_OF_USER {
            known.insert(name.clone());
            return name;
        }
        if known.contains(&name) {
            name
        } else {
            OTHER_NAMES.into()
        }
    }
}

impl SdkServer {
    /// The socket's path.
    pub(crate) fn path() -> PathBuf {
        Door::path()
    }

    /// `takes_over`: whoever serves the socket now is of this process, and goes on until this one
    /// takes its place.
    pub(crate) fn open(
        sample: u64,
        unknown: Keeping,
        takes_over: bool,
    ) -> Result<Self, ServeError> {
        Ok(Self {
            door: Door::open(takes_over)?,
            clients: HashMap::new(),
            sample,
            unknown,
            counted: (0, Vec::new()),
            past: Counts::default(),
            quota: NameQuota::default(),
            newcomers: Newcomers::default(),
        })
    }

    /// Has all who knock from now on come here.
    pub(crate) fn take_place(&mut self) -> Result<(), ServeError> {
        self.door.take_place()
    }

    /// Readable when a process wants in. While [some are not accepted](Self::pauses) theirs are not among
    /// them.
    pub(crate) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.door.fds()
    }

    /// Whether somebody is not accepted at the moment.
    pub(crate) fn pauses(&self) -> bool {
        self.door.pauses()
    }

    /// Gives the user whose process it is a socket to which nobody else may connect.
    pub(crate) fn open_for_user_of(&mut self, pid: u32) {
        if let Some(user) = owner::of(pid) {
            self.door.open_for(user);
        }
    }

    /// Forgets connections that are closed: each is a descriptor.
    pub(crate) fn tidy(&mut self) {
        let clients = self.clients.values_mut();
        clients.for_each(|client| client.connections.tidy());
    }

    /// Whoever waits to be let in.
    pub(crate) fn knocks(&mut self) -> Vec<Knock> {
        self.door.knocks()
    }

    /// Lets them in, or not: `is_watched` says whose spans are recorded. What the next one needs is
    /// made ready, for it waits in its first span for our answer.
    pub(crate) fn welcome(
        &mut self,
        knocks: Vec<Knock>,
        kernel: &mut Kernel,
        is_watched: impl Fn(u32) -> bool,
    ) {
        for knock in knocks {
            let Some(pid) = knock.pid() else {
                continue;
            };
            if !is_watched(pid) {
                self.past.strangers += 1;
                knock.refuse(Refusal::NotWatched);
                continue;
            }
            if knock.left() {
                continue; // what a process is given takes time to make
            }
            if !self.clients.contains_key(&pid)
                && self.may_come(&knock)
                && let Ok(client) = self.furnish(kernel, pid)
            {
                self.clients.insert(pid, client);
            }
            let known = self.clients.get_mut(&pid);
            let with_room = known.and_then(|of| of.connections.has_room().then_some(of));
            let Some(client) = with_room else {
                self.past.refused += 1;
                knock.refuse(Refusal::NoRoom);
                continue;
            };
            let Some(meters) = kernel.meters_of(pid) else {
                continue;
            };
            if let Ok(visitor) = knock.let_in(meters, client.region.as_fd()) {
                client.connections.add(visitor);
            }
        }
        // Where there is no room for one more, the next to come is told.
        let _ = kernel.prepare_meters();
    }

    fn may_come(&mut self, knock: &Knock) -> bool {
        let user = knock.user();
        user.is_some_and(|user| self.newcomers.may_come(user, Instant::now()))
    }

    fn furnish(&self, kernel: &mut Kernel, pid: u32) -> io::Result<Client> {
        let mut region = Region::create(self.sample, self.unknown)?;
        let (group, events) = &self.counted;
        region.count(*group, events);
        let map = kernel.give_meters(pid).map_err(io::Error::other)?;
        let meters = Meters::map(map)?;
        let names = vec![None; usize::from(u8::MAX) + 1];
        Ok(Client {
            user: owner::of(pid).unwrap_or(u32::MAX),
            start: owner::start_of(pid),
            region,
            meters,
            names,
            connections: Visitors::default(),
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
            client.drain(*pid, &mut self.quota, sink);
        }
    }

    /// Whether the process that was let in under this number is gone, and another one has it now.
    pub(crate) fn is_anothers(&self, pid: u32) -> bool {
        let client = self.clients.get(&pid);
        client.is_some_and(|client| client.start != owner::start_of(pid))
    }

    /// A process ended, or runs another program: takes the last of what it wrote.
    pub(crate) fn forget(&mut self, pid: u32, sink: &mut impl Sink) {
        if let Some(mut client) = self.clients.remove(&pid) {
            client.drain(pid, &mut self.quota, sink);
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

/// Where rows go.
pub(crate) trait Sink {
    /// The ledger's name for a span.
    fn intern(&mut self, name: &str) -> SpanName;
    /// A row of a process.
    fn enter(&mut self, pid: u32, span: SpanName, row: &Row);
}

impl Client {
    fn drain(&mut self, pid: u32, quota: &mut NameQuota, sink: &mut impl Sink) {
        let (known, user) = (&mut self.names, self.user);
        self.region.drain(&self.meters, |names, row| {
            let place = &mut known[usize::from(row.name)];
            let span =
                *place.get_or_insert_with(|| sink.intern(&quota.name(user, names.get(row.name))));
            sink.enter(pid, span, &row);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_users_names_leave_room_for_those_of_others() {
        let mut quota = NameQuota::default();
        for number in 0..10 * MOST_NAMES_OF_USER {
            quota.name(65534, Some(number.to_string()));
        }
        assert_eq!(quota.name(65534, Some("one more".into())), OTHER_NAMES);
        assert_eq!(quota.name(65534, Some("7".into())), "7");
        assert_eq!(quota.name(1000, Some("GET /".into())), "GET /");
        assert_eq!(quota.name(1000, None), UNNAMED);
    }
}
