//! Programs that say themselves where their spans begin and end (`sdk/`). They write rows into memory
//! that they share with us, which become events in a ring of our own.

mod names;
mod notes;

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tailscope_kernel::timeline::Events;
use tailscope_signals::clock::{Clock, Cycles, Monotonic};
use tailscope_signals::door::{Door, Knock, Newcomers, Refusal, ServeError, Visitors};
use tailscope_signals::event::{Event, What, abi};
use tailscope_signals::event_ring::EventRings;
use tailscope_signals::keeping::Keeping;
use tailscope_signals::meters::Meters;
use tailscope_signals::owner;
use tailscope_signals::region::Region;
use tailscope_signals::rooted;
use tailscope_signals::sdk_files::finder::Finder;
use tailscope_signals::sdk_files::{FileId, SdkFile, program_of, version_of};

use names::SpanNames;
use notes::{Notes, unread};

/// A span is metered if a random number of 32 bits is below this: all are.
const ALL: u64 = 1 << 32;
/// A row is read within so long of its span's end, in ns; one that says otherwise makes no sense.
const STALE_NS: u64 = 60_000_000_000;

/// A connection waits for its answer so long at most, and is looked at again this often meanwhile.
const PATIENCE: Duration = Duration::from_secs(1);
const SOON: Duration = Duration::from_millis(5);
/// So many wait at a time.
const MOST_WAITING: usize = 256;

/// One process that uses the SDK.
struct Client {
    region: Region,
    meters: Meters,
    /// Our numbers for the names of this region, as far as they were met.
    names: Vec<Option<u16>>,
    visitors: Visitors,
}

/// A span that ended, in ns.
#[derive(Debug, Clone, Copy)]
struct Ended {
    at: u64,
    tid: u32,
    source: u16,
    ns: u64,
}

/// Our side of all of them.
pub(super) struct Sdk {
    door: Door,
    newcomers: Newcomers,
    clients: HashMap<u32, Client>,
    finder: Finder,
    /// Who waits for an answer until its files are looked through.
    knocks: Vec<Knock>,
    /// What each process runs, so far as its files were looked for.
    programs: HashMap<u32, (FileId, i64, i64)>,
    refused: HashSet<u32>,
    notes: Notes,
    clock: Clock,
    /// Of spans, by their numbers: those of probes are first.
    names: SpanNames,
    ring: Arc<EventRings>,
    /// Spans that ended and are not in the ring yet.
    ended: Vec<Ended>,
    /// Spans that were lost in processes that are gone, and rows that made no sense.
    past_lost: u64,
}

impl Sdk {
    /// `names`: of the spans that have numbers already. `slots`: so many spans are kept.
    pub(super) fn open(door: Door, names: Vec<String>, slots: u32) -> Result<Self, ServeError> {
        let ring = EventRings::ours(slots).map_err(|source| ServeError::System {
            path: PathBuf::from("memory for spans"),
            source,
        })?;
        Ok(Self {
            door,
            newcomers: Newcomers::default(),
            clients: HashMap::new(),
            finder: Finder::start().map_err(|source| ServeError::System {
                path: PathBuf::from("a thread"),
                source,
            })?,
            knocks: Vec::new(),
            notes: Notes::default(),
            programs: HashMap::new(),
            refused: HashSet::new(),
            clock: Clock::calibrate(),
            names: SpanNames::new(names),
            ring: Arc::new(ring),
            ended: Vec::new(),
            past_lost: 0,
        })
    }

    /// The ring that the spans go into.
    pub(super) fn ring(&self) -> &Arc<EventRings> {
        &self.ring
    }

    /// The names of spans, by their numbers.
    pub(super) fn names(&self) -> &[String] {
        self.names.all()
    }

    /// By how much, in ns, the moments of spans since then may be wrong, as [`Clock::off_ns`] has it.
    pub(super) fn clock_off_ns(&self, since: u64) -> u64 {
        self.clock.off_ns(Monotonic(since))
    }

    /// Readable when a process wants in, as far as they are accepted at the moment.
    pub(super) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.door.fds()
    }

    /// How long to wait at most until the next look.
    pub(super) fn patience(&self) -> Duration {
        if self.knocks.is_empty() {
            Door::PAUSE
        } else {
            SOON
        }
    }

    /// Spans that were lost: their process found no room in its memory, or wrote what is none.
    pub(super) fn lost(&self) -> u64 {
        let now = self.clients.values().map(|client| client.lost());
        self.past_lost + now.sum::<u64>()
    }

    /// Lets those in who ask for it, and says to all that we are here.
    pub(super) fn welcome(&mut self, events: &mut Events) {
        let new = self.door.knocks();
        let watched: HashSet<u32> = if new.is_empty() && self.knocks.is_empty() {
            HashSet::new()
        } else {
            events.watched().into_iter().collect()
        };
        // The SDK for Java has made its file in memory just now. Its thread runs the probe as soon as it
        // is answered.
        for pid in new.iter().filter_map(Knock::pid) {
            if watched.contains(&pid) {
                self.finder.look_in(pid);
            }
        }
        self.call_found(events, &watched);
        let mut knocks = std::mem::take(&mut self.knocks);
        knocks.extend(new);
        // A program with the SDK in its own file asks only after that is listened to.
        let is_heard = |pid| program_of(pid).is_some_and(|file| events.has_called_sdk(file));
        let waits = |pid| self.finder.is_looking_in(pid) && !is_heard(pid);
        let is_early = |knock: &Knock| knock.age() < PATIENCE && knock.pid().is_some_and(waits);
        let (mut later, now): (Vec<_>, Vec<_>) = knocks.into_iter().partition(is_early);
        later.retain(|knock| !knock.left());
        later.truncate(MOST_WAITING);
        self.knocks = later;
        // One that has gone gets nothing: what a process is given takes time to make.
        for knock in now.into_iter().filter(|knock| !knock.left()) {
            self.answer(knock, events, &watched);
        }
        // Where there is no room for one more, the next to come is told.
        let _ = events.prepare_meters();
        for client in self.clients.values() {
            client.region.beat(Cycles::now(), self.clock.hz());
        }
    }

    fn answer(&mut self, knock: Knock, events: &mut Events, watched: &HashSet<u32>) {
        let Some(pid) = knock.pid() else { return };
        if !watched.contains(&pid) {
            return knock.refuse(Refusal::NotWatched);
        }
        let client = self.clients.get(&pid);
        if client.is_some_and(|client| client.visitors.have_left()) {
            self.forget(pid, events); // the process runs another program now
        }
        let may_come = |user| self.newcomers.may_come(user, Instant::now());
        let client = match self.clients.entry(pid) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(_) if !knock.user().is_some_and(may_come) => {
                self.past_lost += 1; // one span at least
                return knock.refuse(Refusal::NoRoom);
            }
            Entry::Vacant(place) => match Client::furnish(pid, events) {
                Ok(client) => place.insert(client),
                Err(_) => return knock.refuse(Refusal::NoRoom),
            },
        };
        if !client.visitors.has_room() {
            return knock.refuse(Refusal::NoRoom);
        }
        if let Some(meters) = events.meters_of(pid)
            && let Ok(visitor) = knock.let_in(meters, client.region.as_fd())
        {
            client.visitors.add(visitor);
        }
    }

    /// Looks for the SDK in what the watched processes run; `thoroughly`: in all that they have mapped by
    /// now, and who of them is gone. What is worth telling is in words.
    pub(super) fn look(&mut self, events: &mut Events, thoroughly: bool) -> Vec<String> {
        let watched = events.watched();
        for &pid in &watched {
            let Some(program) = version_of(Path::new(&format!("/proc/{pid}/exe"))) else {
                continue;
            };
            if self.programs.insert(pid, program) != Some(program) || thoroughly {
                if let Some(user) = owner::of(pid) {
                    self.door.open_for(user);
                }
                self.finder.look_in(pid);
            }
        }
        let watched: HashSet<u32> = watched.into_iter().collect();
        self.call_found(events, &watched);
        if thoroughly {
            let gone = self.programs.keys().filter(|pid| !watched.contains(pid));
            for pid in gone.copied().collect::<Vec<u32>>() {
                self.programs.remove(&pid);
                events.forget_sdk(pid);
            }
            let gone = self.clients.keys().filter(|pid| !watched.contains(pid));
            for pid in gone.copied().collect::<Vec<u32>>() {
                self.forget(pid, events);
            }
            for client in self.clients.values_mut() {
                client.visitors.tidy();
            }
            self.refused.retain(|pid| watched.contains(pid));
            let refusal = self.refusal(events);
            self.notes.waiting.extend(refusal);
        }
        std::mem::take(&mut self.notes.waiting)
    }

    /// Lets the SDK in a program file know of us, before a process runs it.
    pub(super) fn call(&mut self, file: &Path, events: &mut Events) {
        match rooted::follow(file).and_then(|held| SdkFile::read(held, file.to_owned())) {
            Ok(Some(found)) => self.attach(&found, 0, events),
            Ok(None) => {}
            Err(e) => self.notes.say(unread(file, &e)),
        }
    }

    /// Lets the SDK know of us in the files that were found by now. What goes wrong with one of them is
    /// told, and no reason to leave the others.
    fn call_found(&mut self, events: &mut Events, watched: &HashSet<u32>) {
        for answer in self.finder.answers() {
            if !watched.is_empty() && !watched.contains(&answer.pid) {
                continue;
            }
            for file in &answer.files {
                self.attach(file, answer.pid, events);
            }
            for (path, why) in &answer.unread {
                self.notes.say(unread(path, why));
            }
        }
    }

    fn attach(&mut self, file: &SdkFile, pid: u32, events: &mut Events) {
        if let Err(e) = events.call_sdk(file, pid) {
            self.notes.say(e.to_string());
        }
    }

    fn refusal(&mut self, events: &Events) -> Option<String> {
        let (pid, errno) = events.lost().refused?;
        self.refused.insert(pid).then(|| {
            format!(
                "process {pid} can't reach the recorder at {}: {}; its SDK spans are not recorded",
                Door::path().display(),
                io::Error::from_raw_os_error(errno)
            )
        })
    }

    /// Hands on the spans that ended since the last time, in the order of their ends, and keeps them.
    pub(super) fn take(&mut self, mut each: impl FnMut(&Event)) {
        for pid in self.clients.keys().copied().collect::<Vec<u32>>() {
            self.drain(pid);
        }
        self.ended.sort_by_key(|span| span.at);
        for span in self.ended.drain(..) {
            self.ring.write(span.bytes());
            each(&span.event());
        }
    }

    fn drain(&mut self, pid: u32) {
        let Some(client) = self.clients.get_mut(&pid) else {
            return;
        };
        // So that all that ended by now lies between two readings of the clocks.
        self.clock.refine();
        let mut now = Monotonic::now().0;
        let (known, names) = (&mut client.names, &mut self.names);
        client.region.drain(&client.meters, |text, row| {
            let end = row.begin.wrapping_add(row.wall);
            self.clock.reach(Cycles(end));
            let moment = |cycles| self.clock.cycles_to_monotonic(Cycles(cycles)).0;
            let (begin, end) = (moment(row.begin), moment(end));
            if end > now {
                now = Monotonic::now().0; // it ended while rows were read
            }
            let at = end.min(now);
            if now - at > STALE_NS {
                self.past_lost += 1;
                return;
            }
            let number = &mut known[usize::from(row.name)];
            self.ended.push(Ended {
                at,
                tid: row.tid,
                source: *number.get_or_insert_with(|| names.number_of(text.get(row.name))),
                ns: at.saturating_sub(begin),
            });
        });
    }

    /// A process ended, or runs another program: takes the last of what it wrote.
    fn forget(&mut self, pid: u32, events: &mut Events) {
        self.drain(pid);
        if let Some(client) = self.clients.remove(&pid) {
            self.past_lost += client.lost();
        }
        events.take_back_meters(pid);
        events.forget_sdk(pid);
    }
}

impl Ended {
    fn event(&self) -> Event {
        let Self { source, ns, .. } = *self;
        Event {
            at: self.at,
            tid: self.tid,
            what: What::Span { source, ns },
        }
    }

    /// The same as a ring holds it.
    fn bytes(&self) -> abi::tl_event {
        abi::tl_event {
            at: self.at,
            tid: self.tid,
            kind: abi::TL_SPAN as u8,
            small: self.source,
            x: self.ns as u32,
            y: (self.ns >> 32) as u32,
            ..Default::default()
        }
    }
}

impl Client {
    fn furnish(pid: u32, events: &mut Events) -> io::Result<Self> {
        let meters = events.give_meters(pid).map_err(io::Error::other)?;
        Ok(Self {
            region: Region::create(ALL, Keeping::ALL)?,
            meters: Meters::map(meters)?,
            names: vec![None; usize::from(u8::MAX) + 1],
            visitors: Visitors::default(),
        })
    }

    fn lost(&self) -> u64 {
        let loss = self.region.loss();
        loss.full + loss.malformed
    }
}
