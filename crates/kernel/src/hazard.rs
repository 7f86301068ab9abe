//! The programs that keep the hazard words of replicas ([`tailscope_signals::hazard`]).
//!
//! They know nothing of meters and of the timeline: all may be loaded at a time.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use libbpf_rs::{Link, MapCore, MapFlags, Object};
use tailscope_signals::clock::Monotonic;
use tailscope_signals::hazard::{Change, Kind, Words, abi};

use crate::jvm_probes::{self, JvmProbe, Listening};
use crate::load_error::{LoadError, kernel};
use crate::object::map_of;
use crate::open::open;
use crate::process_events::Ring;
use crate::shared::{self, Plain};
use crate::watched::Watched;

static PROGRAMS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/hazard.bpf.o"));

/// How many replicas there may be.
pub const SLOTS: u32 = shared::HAZARD_SLOTS;

/// Program, probe, what it tells, whether that ends.
const PROBES: &[(&str, &str, u32, bool)] = &[
    (
        "on_collection",
        "gc__begin",
        abi::TS_HAZARD_COLLECTION,
        false,
    ),
    ("on_collection", "gc__end", abi::TS_HAZARD_COLLECTION, true),
    (
        "on_operation",
        "vmops__begin",
        abi::TS_HAZARD_SAFEPOINT,
        false,
    ),
    ("on_operation", "vmops__end", abi::TS_HAZARD_SAFEPOINT, true),
];

/// The loaded programs, and everything in the kernel that belongs to them.
pub struct Hazards {
    links: Vec<Link>, // first: the programs stop before their maps go
    watched: Watched,
    words: Words,
    changes: Ring<Change>,
    object: Object,
}

impl Hazards {
    /// Loads the programs and attaches them. Nobody is watched yet.
    ///
    /// # Errors
    /// If this kernel or this user can't load them.
    pub fn load() -> Result<Self, LoadError> {
        let object = open(PROGRAMS)?
            .object
            .load()
            .map_err(kernel("load the hazard programs"))?;
        let system = |what| move |source| LoadError::System { what, source };
        let words = Words::map(map_of(&object, "words").as_fd(), SLOTS)
            .map_err(system("map the hazard words"))?;
        let watched = Watched::of(&object)?;
        let changes = Ring::open(&map_of(&object, "changes"), Change::parse)
            .map_err(kernel("open the ring of hazards"))?;
        let mut links = Vec::new();
        for program in object.progs_mut() {
            if program.section().to_string_lossy().starts_with("tp_btf/") {
                links.push(program.attach().map_err(kernel("attach a program"))?);
            }
        }
        Ok(Self {
            links,
            watched,
            words,
            changes,
            object,
        })
    }

    /// The words, which the programs write.
    #[must_use]
    pub fn words(&self) -> &Words {
        &self.words
    }

    /// The same, in a mapping of its own.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn map_words(&self) -> io::Result<Words> {
        Words::map(map_of(&self.object, "words").as_fd(), SLOTS)
    }

    /// Watches a process for a replica. `is_stopped`: no event says any more that it has been stopped.
    /// False: it is watched already, or no more can be.
    pub fn watch(&self, slot: u32, pid: u32, is_stopped: bool) -> bool {
        let fresh = shared::hazard_process {
            slot,
            waiting: 0,
            stops: 0,
            stopped: u32::from(is_stopped),
        };
        let (word, processes) = (self.words.word(slot), map_of(&self.object, "processes"));
        let key = pid.to_ne_bytes();
        if !matches!(processes.lookup(&key, MapFlags::ANY), Ok(None)) {
            return false;
        }
        // First: its end may come at any time once it is in the table, and takes it off again.
        word.add_process();
        if is_stopped {
            word.begin(Kind::Stopped, Monotonic::now()); // it may also end at any time
        }
        if processes
            .update(&key, fresh.as_bytes(), MapFlags::NO_EXIST)
            .is_err()
        {
            word.remove_process();
            return false;
        }
        self.watched.add(pid);
        // It may have ended before the programs could see that.
        if !Path::new(&format!("/proc/{pid}")).exists() {
            self.unwatch(slot, pid);
            return false;
        }
        true
    }

    /// Stops watching it. Does nothing if it has ended: the programs saw that.
    pub fn unwatch(&self, slot: u32, pid: u32) {
        let processes = map_of(&self.object, "processes");
        // Another replica may be served by the same process, and watch it.
        if self.slot_of(pid) == Some(slot) && processes.delete(&pid.to_ne_bytes()).is_ok() {
            self.watched.remove(pid);
            if self.words.word(slot).remove_process() {
                let word = self.words.word(slot);
                word.begin(Kind::Gone, Monotonic::now());
            }
        }
    }

    /// For which replica a process is watched. Its word has the hazards of all that it serves.
    #[must_use]
    pub fn slot_of(&self, pid: u32) -> Option<u32> {
        let found = map_of(&self.object, "processes").lookup(&pid.to_ne_bytes(), MapFlags::ANY);
        let slot = found.ok()??.get(..4)?.try_into().ok()?;
        Some(u32::from_ne_bytes(slot))
    }

    /// The processes that are watched now.
    #[must_use]
    pub fn processes(&self) -> Vec<u32> {
        map_of(&self.object, "processes")
            .keys()
            .filter_map(|key| Some(u32::from_ne_bytes(key.try_into().ok()?)))
            .collect()
    }

    /// Listens to the probes of a `libjvm.so`, in every process that has it mapped, now or later.
    pub fn listen(&mut self, library: &Path) -> Listening {
        let probes = PROBES.iter().map(|&(program, name, kind, ends)| {
            let end = if ends { shared::HAZARD_COOKIE_END } else { 0 };
            let cookie = u64::from(kind | end);
            JvmProbe {
                name,
                program,
                cookie,
            }
        });
        jvm_probes::listen(&mut self.object, &mut self.links, library, probes)
    }

    /// Hands on what changed.
    pub fn drain(&mut self, each: impl FnMut(Change)) {
        self.changes.drain(each);
    }

    /// Readable when something changed.
    #[must_use]
    pub fn epoll_fd(&self) -> BorrowedFd<'_> {
        self.changes.epoll_fd()
    }

    /// Changes that found the ring full. The words have them.
    #[must_use]
    pub fn lost(&self) -> u64 {
        map_of(&self.object, ".bss.lost")
            .lookup(&0u32.to_ne_bytes(), MapFlags::ANY)
            .ok()
            .flatten()
            .and_then(|bytes| Some(u64::from_ne_bytes(bytes.get(..8)?.try_into().ok()?)))
            .unwrap_or_default()
    }
}
