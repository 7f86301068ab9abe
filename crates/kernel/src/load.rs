//! Loading: what this kernel has decides which programs run.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use libbpf_rs::btf::Btf;
use libbpf_rs::{
    Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, OpenObject, PrintLevel, ProgramMut,
};
use tailscope_signals::abi;
use tailscope_signals::ring::Rings;
use tailscope_signals::row::Row;

use crate::answers::{self, Answers};
use crate::attach::attach;
use crate::blame::Names;
use crate::config::{configure, ring_bytes};
use crate::keeping::Keepings;
use crate::losses::{self, Losses, Uncovered};
use crate::meter_maps::MeterMaps;
use crate::pid_namespace::{self, NamespaceError, Numbers, PidNamespace, user_namespace_refuses};
use crate::privilege::{Missing, missing_capabilities};
use crate::probes::{self, Uprobes};
use crate::process_events::{self, Event, Ring};
use crate::sdk_files::SdkFiles;
use crate::select::{autoload, choose_fault_hook, fentry_refused, select};
use crate::socket_hooks::choose_socket_hooks;
use crate::watch::{Watched, map_of, new_meters, place_meters};
use crate::{Config, Mechanisms, shared};

static PROGRAMS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tailscope.bpf.o"));

/// This machine, or this person, can't.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A privilege is missing.
    #[error("can't {}: {} missing", purposes(.0), names(.0))]
    Privilege(Vec<Missing>),
    /// The capabilities that there are count only inside a user namespace.
    #[error(
        "can't load eBPF programs: this process is in a user namespace, where not even root may do \
         so; run it in the initial user namespace: on the host, or in a container without one \
         (docker run --privileged --userns=host, podman as root)"
    )]
    UserNamespace,
    /// Processes can't be named by their numbers.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// The kernel does not describe its own types.
    #[error(
        "can't load eBPF programs: this kernel has no type information at /sys/kernel/btf/vmlinux; \
         use a kernel with CONFIG_DEBUG_INFO_BTF"
    )]
    NoBtf,
    /// A hook without which nothing can be measured is not there.
    #[error("can't measure: this kernel has no tracepoint {0}; use Linux 6.1 or newer")]
    NoTracepoint(&'static str),
    /// The kernel rejected the programs.
    #[error("can't {what}: {source}")]
    Kernel {
        /// What was tried.
        what: &'static str,
        /// What libbpf said.
        source: libbpf_rs::Error,
    },
    /// A system call failed.
    #[error("can't {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

fn names(missing: &[Missing]) -> String {
    missing
        .iter()
        .map(|m| m.name)
        .collect::<Vec<_>>()
        .join(", ")
}

fn purposes(missing: &[Missing]) -> String {
    missing
        .iter()
        .map(|m| m.purpose)
        .collect::<Vec<_>>()
        .join(", ")
}

pub(crate) fn kernel(what: &'static str) -> impl FnOnce(libbpf_rs::Error) -> LoadError {
    move |source| LoadError::Kernel { what, source }
}

/// Programs that are not loaded yet, on a machine and for a user that may load them.
pub(crate) struct Opened {
    pub(crate) btf: Btf<'static>,
    pub(crate) object: OpenObject,
    /// How many CPUs there may ever be.
    pub(crate) cpus: usize,
    /// The level of our PID namespace, which the programs know.
    pub(crate) level: u32,
}

/// Reads programs, after it has made sure that they can be loaded.
pub(crate) fn open(programs: &'static [u8]) -> Result<Opened, LoadError> {
    quiet();
    if user_namespace_refuses() {
        return Err(LoadError::UserNamespace);
    }
    let missing = missing_capabilities();
    if !missing.is_empty() {
        return Err(LoadError::Privilege(missing));
    }
    let btf = Btf::from_vmlinux().map_err(|_| LoadError::NoBtf)?;
    let namespace = PidNamespace::here()?.config()?;
    let mut object = ObjectBuilder::default()
        .open_memory(programs)
        .map_err(kernel("read the programs"))?;
    pid_namespace::configure(&mut object, &namespace)?;
    Ok(Opened {
        btf,
        object,
        level: namespace.level,
        cpus: libbpf_rs::num_possible_cpus().map_err(kernel("count the CPUs"))?,
    })
}

/// The loaded programs, and everything in the kernel that belongs to them.
pub struct Kernel {
    // Links first: dropped in this order, the programs stop before their maps go.
    pub(crate) sdk_files: SdkFiles,
    pub(crate) probe_links: Vec<Link>,
    _links: Vec<Link>,
    pub(crate) take_in: Link,
    pub(crate) numbers: Numbers,
    rows: Option<Rings>,
    pub(crate) answers: Option<Answers>,
    probe_rows: Option<ProbeRows>,
    pub(crate) uprobes: Uprobes,
    events: Ring<Event>,
    pub(crate) watched: Watched,
    pub(crate) sdk_meters: MeterMaps,
    pub(crate) own_meters: Vec<MapHandle>,
    pub(crate) keepings: Keepings,
    pub(crate) mechanisms: Mechanisms,
    pub(crate) object: Object,
}

/// Rows that wait to be taken.
pub struct Ended<'k> {
    sockets: Option<&'k mut Rings>,
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

    /// Takes the rows of spans from probes, about in the order in which they ended.
    pub fn probes(&mut self, mut each: impl FnMut(&Row)) {
        if let Some(rows) = &mut self.probes {
            rows.rings.drain(&mut each);
            rows.reserved.drain(|row| each(&row));
        }
    }
}

impl Kernel {
    /// Loads the programs and attaches them. Nobody is watched yet.
    pub fn load(config: &Config) -> Result<Self, LoadError> {
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
        let uprobes = probes::select(&mut open, config, &mut mechanisms);
        let fentry = fentry_refused();
        let faults = choose_fault_hook(&mut open, &btf, fentry.as_deref(), &mut mechanisms);
        choose_socket_hooks(&mut open, &btf, config, fentry.as_deref(), &mut mechanisms);
        for name in answers::PROGRAMS {
            autoload(&mut open, name, config.sockets.is_some());
        }
        let mut object = open.load().map_err(kernel("load the programs"))?;
        let own_meters = furnish(&object)?;
        let links = attach(&mut object, "on_irq_entry", faults, &mut mechanisms)?;
        let take_in = program(&mut object, "take_in_threads")
            .attach()
            .map_err(kernel("attach the iterator over tasks"))?;
        let answers = match config.sockets {
            Some(_) => Some(Answers::of(&mut object)?),
            None => None,
        };
        let numbers = Numbers::of(&mut object, level)?;
        let watched = Watched::of(&object)?;
        let rings = |name| {
            Rings::map(map_of(&object, name).as_fd(), cpus, ring_bytes(cpus)).map_err(|source| {
                LoadError::System {
                    what: "map the rings of rows",
                    source,
                }
            })
        };
        let rows = config.sockets.map(|_| rings("rows")).transpose()?;
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
            answers,
            probe_rows,
            uprobes,
            events: process_events::events(&map_of(&object, "events"))
                .map_err(kernel("open the ring of events"))?,
            watched,
            sdk_meters: MeterMaps::new(shared::FIRST_SDK_MAP..shared::MAX_METER_MAPS),
            own_meters,
            keepings: Keepings::all(),
            mechanisms,
            object,
        };
        kernel.calibrate_faults();
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

    /// The meters of threads that only the kernel meters.
    #[must_use]
    pub fn own_meters(&self) -> &[MapHandle] {
        &self.own_meters
    }
}

/// Has libbpf say nothing unless it is asked to.
fn quiet() {
    libbpf_rs::set_print(Some((PrintLevel::Debug, log)));
}

/// libbpf reports much that is no problem, such as a hook that is not there. TAILSCOPE_LIBBPF_LOG=1
/// shows it.
fn log(_: PrintLevel, text: String) {
    if std::env::var_os("TAILSCOPE_LIBBPF_LOG").is_some() {
        eprint!("{text}");
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

pub(crate) fn program<'o>(object: &'o mut Object, name: &str) -> ProgramMut<'o> {
    object
        .progs_mut()
        .find(|program| program.name() == name)
        .unwrap_or_else(|| unreachable!("the object has no program {name}: see src/bpf"))
}
