//! Loading: what this kernel has decides which programs run.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use libbpf_rs::btf::Btf;
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, Object, OpenObject};
use tailscope_signals::abi;
use tailscope_signals::retention::Retention;
use tailscope_signals::ring::Rings;
use tailscope_signals::row::Row;
use tailscope_signals::slice::Slice;

use crate::answers::{self, AnswerIterator, Answers};
use crate::attach::attach;
use crate::blame::Names;
use crate::config::{configure, ring_bytes};
use crate::hook_list::{self, Hook};
use crate::load_error::{LoadError, kernel};
use crate::losses::{self, Losses, Uncovered};
use crate::meter_maps::{MeterMaps, new_meters, place_meters};
use crate::object::{map_of, program};
use crate::open::{Opened, open};
use crate::pid_namespace::Numbers;
use crate::probes::{self, Probe, ProbeError};
use crate::process_events::{self, Event, Ring};
use crate::retention::{Retentions, Source};
use crate::sdk_files::SdkFiles;
use crate::select::{FaultHook, autoload, choose_fault_hook, fentry_refused, select};
use crate::socket_hooks::choose_socket_hooks;
use crate::stacks::{self, Stacks};
use crate::tls_calls::{self, TlsCall};
use crate::uprobes::Uprobes;
use crate::watch_error::WatchError;
use crate::watched::Watched;
use crate::{Config, Measurement, Mechanisms, SocketSpans, StackSample, shared};

/// The program at the entry of an interrupt without a handler.
const VECTOR_ENTRY: &str = "on_irq_entry";

static PROGRAMS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tailscope.bpf.o"));

/// The loaded programs, and everything in the kernel that belongs to them.
pub struct Kernel {
    // Links first: dropped in this order, the programs stop before their maps go.
    pub(crate) sdk_files: SdkFiles,
    probe_links: Vec<Link>,
    _links: Vec<Link>,
    pub(crate) take_in: Link,
    pub(crate) numbers: Numbers,
    rows: Option<Rings>,
    slices: Option<Rings>,
    stacks: Option<Stacks>,
    pub(crate) answers: Option<Answers>,
    probe_rows: Option<ProbeRows>,
    uprobes: Uprobes,
    tls_uprobes: Uprobes,
    events: Ring<Event>,
    pub(crate) watched: Watched,
    pub(crate) sdk_meters: MeterMaps,
    pub(crate) own_meters: Vec<MapHandle>,
    retentions: Retentions,
    pub(crate) mechanisms: Mechanisms,
    pub(crate) object: Object,
}

/// Rows that wait to be taken.
pub struct Ended<'k> {
    sockets: Option<&'k mut Rings>,
    slices: Option<&'k mut Rings>,
    late: Option<&'k mut Answers>,
    probes: Option<&'k mut ProbeRows>,
}

/// Where rows of spans from probes are: in the rings of the CPUs, or, where a program found its
/// ring full or in use by one that had been preempted, in a ring buffer.
struct ProbeRows {
    rings: Rings,
    reserved: Ring<Row>,
}

impl Ended<'_> {
    /// Takes the rows of spans from sockets, oldest first on each CPU.
    pub fn sockets(&mut self, mut each: impl FnMut(&Row)) {
        if let Some(rows) = &mut self.sockets {
            rows.drain(&mut each);
        }
        if let Some(answers) = &mut self.late {
            answers.drain(each);
        }
    }

    /// Takes what threads did for requests, in its order on each CPU.
    pub fn slices(&mut self, each: impl FnMut(&Slice)) {
        if let Some(slices) = &mut self.slices {
            slices.drain(each);
        }
    }

    /// Takes the rows of spans from probes, about in the order in which they ended.
    pub fn probes(&mut self, mut each: impl FnMut(&Row)) {
        if let Some(rows) = &mut self.probes {
            rows.rings.drain(&mut each);
            rows.reserved.drain(|row| each(&row));
        }
    }
}

/// The programs of a recording before they are loaded: those that this kernel can run and that are
/// wanted are switched on.
struct Selected {
    open: OpenObject,
    btf: Btf<'static>,
    cpus: usize,
    level: u32,
    mechanisms: Mechanisms,
    uprobes: Uprobes,
    tls_uprobes: Uprobes,
    faults: FaultHook,
    iterator: AnswerIterator,
}

impl Selected {
    fn of(config: &Config) -> Result<Self, LoadError> {
        let Opened {
            btf,
            object: mut open,
            cpus,
            level,
        } = open(PROGRAMS)?;
        autoload(&mut open, "list_processes", level > 0);
        let mut mechanisms = Mechanisms::default();
        configure(&mut open, config, cpus)?;
        select(&mut open, &btf, config, &mut mechanisms)?;
        let (uprobes, tls_uprobes) = probes::select(&mut open, config, &mut mechanisms);
        let fentry = fentry_refused();
        let faults = choose_fault_hook(&mut open, &btf, fentry.as_deref(), &mut mechanisms);
        choose_socket_hooks(&mut open, &btf, config, fentry.as_deref(), &mut mechanisms);
        let iterator = answers::choose_programs(&mut open, config.sockets.is_some());
        autoload(&mut open, stacks::PROGRAM, config.stacks.is_some());
        Ok(Self {
            open,
            btf,
            cpus,
            level,
            mechanisms,
            uprobes,
            tls_uprobes,
            faults,
            iterator,
        })
    }
}

impl Kernel {
    /// Where the programs would be attached, but for the probes in programs that the caller names.
    ///
    /// # Errors
    /// As for [`Kernel::load`].
    pub fn hooks(config: &Config) -> Result<Vec<Hook>, LoadError> {
        let selected = Selected::of(config)?;
        Ok(hook_list::hooks(
            &selected.open,
            &selected.btf,
            Some(VECTOR_ENTRY),
            selected.faults,
            config.stacks,
        ))
    }

    /// Loads the programs and attaches them. Nobody is watched yet.
    pub fn load(config: &Config) -> Result<Self, LoadError> {
        let Selected {
            open,
            cpus,
            level,
            mut mechanisms,
            uprobes,
            tls_uprobes,
            faults,
            iterator,
            ..
        } = Selected::of(config)?;
        let mut object = open.load().map_err(kernel("load the programs"))?;
        let own_meters = furnish(&object)?;
        let links = attach(&mut object, Some(VECTOR_ENTRY), faults, &mut mechanisms)?;
        let take_in = program(&mut object, "take_in_threads")
            .attach()
            .map_err(kernel("attach the iterator over tasks"))?;
        let answers = match config.sockets {
            Some(_) => Some(Answers::of(&mut object, iterator)?),
            None => None,
        };
        let numbers = Numbers::of(&mut object, level)?;
        let watched = Watched::of(&object)?;
        let stacks = match config.stacks {
            Some(period_ns) => Some(Stacks::begin(&mut object, period_ns)?),
            None => None,
        };
        let rings = |name| {
            Rings::map(map_of(&object, name).as_fd(), cpus, ring_bytes(cpus)).map_err(|source| {
                LoadError::System {
                    what: "map the rings of rows",
                    source,
                }
            })
        };
        let rows = config.sockets.map(|_| rings("rows")).transpose()?;
        let slices = (config.sockets == Some(SocketSpans::Slices))
            .then(|| rings("slice_rings"))
            .transpose()?;
        let probe_rows = match uprobes {
            Uprobes::Nothing => None,
            _ => Some(ProbeRows {
                rings: rings("probe_rings")?,
                reserved: process_events::rows(&map_of(&object, "probe_rows"))
                    .map_err(kernel("open the ring of rows from probes"))?,
            }),
        };
        let mut kernel = Self {
            sdk_files: SdkFiles::default(),
            probe_links: Vec::new(),
            _links: links,
            take_in,
            numbers,
            rows,
            slices,
            stacks,
            answers,
            probe_rows,
            uprobes,
            tls_uprobes,
            events: process_events::events(&map_of(&object, "events"))
                .map_err(kernel("open the ring of events"))?,
            watched,
            sdk_meters: MeterMaps::new(shared::FIRST_SDK_MAP..shared::MAX_METER_MAPS),
            own_meters,
            retentions: Retentions::all(),
            mechanisms,
            object,
        };
        kernel.calibrate();
        Ok(kernel)
    }

    /// Which mechanism measures what.
    #[must_use]
    pub fn mechanisms(&self) -> &Mechanisms {
        &self.mechanisms
    }

    /// The spans that ended since the last look, and the names that their rows' numbers stand for.
    pub fn ended(&mut self) -> (Ended<'_>, Names<'_>) {
        let ended = Ended {
            sockets: self.rows.as_mut(),
            slices: self.slices.as_mut(),
            late: self.answers.as_mut(),
            probes: self.probe_rows.as_mut(),
        };
        (ended, Names::of(&self.object))
    }

    /// The names that the numbers in rows stand for.
    #[must_use]
    pub fn names(&self) -> Names<'_> {
        Names::of(&self.object)
    }

    /// Takes the stacks that were sampled, oldest first; none unless [`Config::stacks`].
    pub fn stacks(&mut self, each: impl FnMut(StackSample)) {
        if let Some(stacks) = &mut self.stacks {
            stacks.drain(each);
        }
    }

    /// Drains the process events.
    pub fn events(&mut self, each: impl FnMut(Event)) {
        self.events.drain(each);
    }

    /// Readable when there are process events.
    #[must_use]
    pub fn events_fd(&self) -> BorrowedFd<'_> {
        self.events.epoll_fd()
    }

    /// What was lost so far.
    #[must_use]
    pub fn losses(&self) -> Losses {
        losses::read(&self.object)
    }

    /// Requests of sockets that are no rows, or whose rows say too little, so far.
    #[must_use]
    pub fn uncovered(&self) -> Uncovered {
        losses::uncovered(&self.object)
    }

    /// Process events that were lost so far: cheaper than all [`losses`](Kernel::losses).
    #[must_use]
    pub fn lost_process_events(&self) -> u64 {
        losses::counted(&self.object).events
    }

    /// Finishes the answers after which nothing has come on their connection: for
    /// two seconds, or with `all`, whenever they were. `each` gets their rows.
    ///
    /// # Errors
    /// The kernel refused to run the iterator.
    pub fn finish_answers(&mut self, all: bool, each: impl FnMut(&Row)) -> Result<(), WatchError> {
        match &mut self.answers {
            Some(answers) => answers.finish(&self.object, all, each),
            None => Ok(()),
        }
    }

    /// Sets which spans of this source are kept from now on; times in ns.
    pub fn keep(&mut self, source: Source, retention: Retention) -> Result<(), LoadError> {
        self.retentions.keep(&self.object, source, retention)
    }

    /// Attaches to a probe, in every process that has the file mapped now or later. Only in those
    /// that are watched does it begin or end spans; the others pay the kernel's own cost of it.
    pub fn attach_probe(&mut self, probe: &Probe) -> Result<(), ProbeError> {
        let links = probes::attach(&mut self.object, self.uprobes, probe)?;
        self.probe_links.extend(links);
        Ok(())
    }

    /// Has requests come from what these functions, at offsets of a file, decrypt and encrypt for watched
    /// processes ([`Config::tls`]). Others that run them pay the kernel's own cost of the probes.
    ///
    /// # Errors
    /// Why the kernel refuses; then none has a probe.
    pub fn attach_tls(
        &mut self,
        file: &Path,
        functions: &[(TlsCall, Vec<u64>)],
    ) -> Result<(), String> {
        if self.tls_uprobes == Uprobes::Nothing {
            let uprobes = self.mechanisms.get(Measurement::Uprobe);
            return Err(uprobes.map_or_else(String::new, |uprobes| uprobes.why.clone()));
        }
        let links = tls_calls::attach(&mut self.object, self.tls_uprobes, file, functions)?;
        self.probe_links.extend(links);
        Ok(())
    }

    /// Detaches from all probes, in the opposite order: a begin whose end is no longer seen would be taken for one
    /// that was given up.
    pub fn detach_probes(&mut self) {
        while self.probe_links.pop().is_some() {}
    }

    /// The meters of threads that only the kernel meters.
    #[must_use]
    pub fn own_meters(&self) -> &[MapHandle] {
        &self.own_meters
    }
}

/// Fills what the programs find when they first run: maps of meters, and their free slots.
fn furnish(object: &Object) -> Result<Vec<MapHandle>, LoadError> {
    let mut own = Vec::new();
    let free = map_of(object, "free_slots");
    // The first slots come last, and so are taken first: theirs are the fast ones (open_spans.h).
    for index in (shared::FIRST_OWN_MAP..shared::FIRST_SDK_MAP).rev() {
        let meters = new_meters().map_err(kernel("make a map of meters"))?;
        place_meters(object, index, &meters).map_err(kernel("install a map of meters"))?;
        for slot in (0..abi::TS_METERS).rev() {
            let place: u32 = index << 16 | slot;
            free.update(&[], &place.to_ne_bytes(), MapFlags::ANY)
                .map_err(kernel("fill the stack of free meters"))?;
        }
        own.push(meters);
    }
    Ok(own)
}
