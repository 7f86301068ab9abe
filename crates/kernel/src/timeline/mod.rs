//! The timeline's programs: what the whole stack does, as events in rings that are never full.
//!
//! They know nothing of meters and of [`Kernel`](crate::Kernel); both may be loaded at a time.

mod jvm;
mod size;
mod tick;
mod tier;

use std::io;
use std::os::fd::AsFd;

use libbpf_rs::btf::Btf;
use libbpf_rs::{Link, MapCore, MapFlags, Object, OpenObject};
use tailscope_signals::event_ring::EventRings;

use crate::attach::attach;
use crate::hook_list::{self, Hook};
use crate::load_error::{LoadError, kernel};
use crate::losses;
use crate::meter_maps::MeterMaps;
use crate::object::map_of;
use crate::open::{Opened, open};
use crate::probes::{self, Probe, ProbeError};
use crate::sdk::{SdkPrograms, Table};
use crate::sdk_files::SdkFiles;
use crate::select::{
    FaultHook, Tracepoint, choose_fault_hook, fentry_refused, no_fault_hook, select_tracepoints,
};
use crate::shared::{self, Plain};
use crate::uprobes::{Uprobes, choose};
use crate::watched::Watched;
use crate::{Measurement, Mechanisms};
use size::RingSize;
pub use tier::Tier;

static PROGRAMS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/timeline.bpf.o"));

/// The tracepoints of a timeline.
const TRACEPOINTS: &[Tracepoint] = &[
    ("on_switch", "sched_switch", None),
    ("on_waking", "sched_waking", None),
    ("on_waking_new", "sched_wakeup_new", None),
    (
        "on_migrate",
        "sched_migrate_task",
        Some(Measurement::Migrate),
    ),
    ("on_new_task", "task_newtask", None),
    ("on_exec", "sched_process_exec", None),
    ("on_exit", "sched_process_exit", None),
    (
        "on_softirq_entry",
        "softirq_entry",
        Some(Measurement::Softirq),
    ),
    (
        "on_softirq_exit",
        "softirq_exit",
        Some(Measurement::Softirq),
    ),
    ("on_syscall_entry", "sys_enter", Some(Measurement::Syscall)),
    ("on_syscall_exit", "sys_exit", Some(Measurement::Syscall)),
    ("on_packet", "netif_receive_skb", Some(Measurement::Packet)),
    ("on_tcp", "tcp_probe", Some(Measurement::Tcp)),
    ("on_ready", "sk_data_ready", Some(Measurement::Ready)),
    ("on_receive", "sock_recv_length", Some(Measurement::Receive)),
    ("on_send", "sock_send_length", Some(Measurement::Send)),
    (
        "on_transmit",
        "net_dev_start_xmit",
        Some(Measurement::Transmit),
    ),
    ("on_idle", "cpu_idle", Some(Measurement::Idle)),
    ("on_block_issue", "block_rq_issue", Some(Measurement::Block)),
    (
        "on_block_done",
        "block_rq_complete",
        Some(Measurement::Block),
    ),
];

// One type maps both tables of the watched.
/// Whether a process's or thread's number in an event is of one that our PID namespace does not
/// show. It tells that one from others, and nobody else knows it.
#[must_use]
pub fn is_outside(number: u32) -> bool {
    number & shared::PID_OUTSIDE != 0
}

/// How many watched processes are read from the kernel with one call.
const PROCESSES_AT_ONCE: u32 = 256;
/// The program at the entry of an interrupt without a handler.
const VECTOR_ENTRY: &str = "on_vector_entry";

/// What is decided before loading.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// Bytes that all rings together may take.
    pub memory: u64,
    /// Whether children of watched processes are watched too.
    pub follow_children: bool,
    /// Whether spans are told of that probes in programs begin and end.
    pub probes: bool,
    /// Which events are written.
    pub tier: Tier,
}

/// What could not be recorded, since the programs were loaded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lost {
    /// Events that the kernel skipped, because the same program was running on that CPU already.
    pub skipped: u64,
    /// Children that could not be followed.
    pub processes: u64,
    /// The latest process whose SDK could not reach us, and the number of the error that it met.
    pub refused: Option<(u32, i32)>,
}

/// The loaded programs, and everything in the kernel that belongs to them.
pub struct Events {
    links: Vec<Link>, // first: the programs stop before their maps go
    sdk_files: SdkFiles,
    watched: Watched,
    mechanisms: Mechanisms,
    uprobes: Uprobes,
    faults: FaultHook,
    /// Where interrupts are recorded.
    vector_entry: Option<&'static str>,
    /// By process with the SDK.
    meters: MeterMaps,
    object: Object,
    slots: u32,
    cpus: usize,
}

/// The programs before they are loaded: those that this kernel can run and that are wanted are
/// switched on.
struct Selected {
    open: OpenObject,
    btf: Btf<'static>,
    cpus: usize,
    size: RingSize,
    mechanisms: Mechanisms,
    uprobes: Uprobes,
    faults: FaultHook,
    vector_entry: Option<&'static str>,
}

impl Selected {
    fn of(config: Config) -> Result<Self, LoadError> {
        let Opened {
            btf,
            object: mut open,
            cpus,
            ..
        } = open(PROGRAMS)?;
        let mut mechanisms = Mechanisms::default();
        let size = RingSize::within(config.memory, cpus);
        configure(&mut open, config, cpus, size).map_err(kernel("configure the programs"))?;
        let tier = config.tier;
        let wanted = |what| tier.has(what);
        select_tracepoints(&mut open, &btf, TRACEPOINTS, wanted, &mut mechanisms)?;
        let uprobes = if config.probes {
            choose(&mut mechanisms)
        } else {
            Uprobes::Nothing
        };
        probes::prepare(&mut open, uprobes);
        let faults = match tier.has(Measurement::Fault) {
            true => {
                let refused = fentry_refused();
                choose_fault_hook(&mut open, &btf, refused.as_deref(), &mut mechanisms)
            }
            false => no_fault_hook(&mut open),
        };
        tier.leave_out(&mut mechanisms);
        Ok(Self {
            open,
            btf,
            cpus,
            size,
            mechanisms,
            uprobes,
            faults,
            vector_entry: tier.has(Measurement::Irq).then_some(VECTOR_ENTRY),
        })
    }
}

/// Attaches all programs but those of probes. The tick comes first: it belongs to the thread that ran,
/// and the timer's interrupt begins behind it.
fn attach_all(
    object: &mut Object,
    vector_entry: Option<&str>,
    faults: FaultHook,
    mechanisms: &mut Mechanisms,
) -> Result<Vec<Link>, LoadError> {
    let tick = tick::attach(object, mechanisms);
    let mut links = attach(object, vector_entry, faults, mechanisms)?;
    links.extend(tick);
    Ok(links)
}

impl Events {
    /// Where the programs would be attached, but for the probes in programs that the caller names.
    ///
    /// # Errors
    /// As for [`Events::load`].
    pub fn hooks(config: Config) -> Result<Vec<Hook>, LoadError> {
        let Selected {
            open,
            btf,
            faults,
            vector_entry,
            ..
        } = Selected::of(config)?;
        let mut hooks = hook_list::hooks(&open, &btf, vector_entry, faults, None);
        hooks.extend(tick::hook(&btf));
        Ok(hooks)
    }

    /// Loads the programs and attaches them. From here on events are written; nobody is watched.
    pub fn load(config: Config) -> Result<Self, LoadError> {
        let Selected {
            open,
            cpus,
            size,
            mut mechanisms,
            uprobes,
            faults,
            vector_entry,
            ..
        } = Selected::of(config)?;
        let mut object = open
            .load()
            .map_err(kernel("load the timeline's programs"))?;
        let links = attach_all(&mut object, vector_entry, faults, &mut mechanisms)?;
        let watched = Watched::of(&object)?;
        Ok(Self {
            links,
            sdk_files: SdkFiles::default(),
            watched,
            mechanisms,
            uprobes,
            faults,
            vector_entry,
            meters: MeterMaps::new(0..shared::TL_MAX_SDK),
            object,
            slots: size.events(),
            cpus,
        })
    }

    /// Detaches from everything: nothing is written, nobody's end is seen, and none of the programs'
    /// hooks costs anything. What was written stays.
    pub fn detach(&mut self) {
        self.links.clear();
    }

    /// Attaches again after [`Events::detach`], but for probes.
    pub fn attach(&mut self) -> Result<(), LoadError> {
        let mechanisms = &mut self.mechanisms;
        self.links = attach_all(&mut self.object, self.vector_entry, self.faults, mechanisms)?;
        Ok(())
    }

    /// Tells of the spans that this probe begins or ends, in the watched processes.
    pub fn attach_probe(&mut self, probe: &Probe) -> Result<(), ProbeError> {
        let links = probes::attach(&mut self.object, self.uprobes, probe)?;
        self.links.extend(links);
        Ok(())
    }

    /// Maps the rings, for one reader.
    pub fn rings(&self) -> io::Result<EventRings> {
        EventRings::map(map_of(&self.object, "rings").as_fd(), self.cpus, self.slots)
    }

    /// Which mechanism tells what.
    #[must_use]
    pub fn mechanisms(&self) -> &Mechanisms {
        &self.mechanisms
    }

    /// Watches a process: its system calls, page faults, receives and sends are told from now on.
    /// False: no more can be watched.
    pub fn watch(&self, pid: u32) -> bool {
        let processes = map_of(&self.object, "processes");
        let began = 0u64.to_ne_bytes();
        let placed = processes.update(&pid.to_ne_bytes(), &began, MapFlags::NO_EXIST);
        match placed {
            Ok(()) => {
                self.watched.add(pid);
                true
            }
            Err(e) => e.kind() == libbpf_rs::ErrorKind::AlreadyExists,
        }
    }

    /// What the programs do for processes with the SDK. Their threads claim meters, and nothing is ever
    /// charged to those.
    pub fn sdk(&mut self) -> SdkPrograms<'_> {
        SdkPrograms {
            object: &mut self.object,
            files: &mut self.sdk_files,
            meters: &mut self.meters,
            table: Table::SdkProcesses,
        }
    }

    /// Stops watching it.
    pub fn unwatch(&self, pid: u32) {
        if map_of(&self.object, "processes")
            .delete(&pid.to_ne_bytes())
            .is_ok()
        {
            self.watched.remove(pid);
        }
    }

    /// The processes that are watched now: those that were named, and children that live.
    #[must_use]
    pub fn watched(&self) -> Vec<u32> {
        self.programs().into_iter().map(|(pid, _)| pid).collect()
    }

    /// The processes that are watched now, and when each began to run its program, in ns; 0: before it
    /// was watched.
    #[must_use]
    pub fn programs(&self) -> Vec<(u32, u64)> {
        let processes = map_of(&self.object, "processes");
        // A call for each would take longer than all that is done with them.
        let found = processes.lookup_batch(PROCESSES_AT_ONCE, MapFlags::ANY, MapFlags::ANY);
        let entry = |(key, value): (Vec<u8>, Vec<u8>)| {
            let pid = u32::from_ne_bytes(key.try_into().ok()?);
            Some((pid, u64::from_ne_bytes(value.try_into().ok()?)))
        };
        found.into_iter().flatten().filter_map(entry).collect()
    }

    /// Whether this process is watched now.
    #[must_use]
    pub fn is_watched(&self, pid: u32) -> bool {
        let processes = map_of(&self.object, "processes");
        let found = processes.lookup(&pid.to_ne_bytes(), MapFlags::ANY);
        found.is_ok_and(|value| value.is_some())
    }

    /// Whether any process is watched now.
    #[must_use]
    pub fn any_is_watched(&self) -> bool {
        map_of(&self.object, "processes").keys().next().is_some()
    }

    /// What was lost so far.
    #[must_use]
    pub fn lost(&self) -> Lost {
        let counted = map_of(&self.object, ".bss.lost")
            .lookup(&0u32.to_ne_bytes(), MapFlags::ANY)
            .ok()
            .flatten()
            .and_then(|bytes| shared::tl_lost::from_bytes(&bytes))
            .unwrap_or_default();
        Lost {
            skipped: losses::skipped(&self.object),
            processes: counted.processes,
            refused: (counted.refused_process != 0)
                .then_some((counted.refused_process, counted.refused_errno as i32)),
        }
    }
}

fn configure(
    open: &mut OpenObject,
    config: Config,
    cpus: usize,
    size: RingSize,
) -> libbpf_rs::Result<()> {
    let mut values = shared::tl_config {
        follow_children: config.follow_children.into(),
        clients: (config.tier == Tier::All).into(),
        ..Default::default()
    };
    size.configure(&mut values);
    for mut map in open.maps_mut() {
        if map.name() == ".rodata.config" {
            map.set_initial_value(values.as_bytes())?;
        } else if map.name() == "rings" {
            map.set_max_entries(cpus as u32)?;
            map.set_value_size(EventRings::value_size(size.events()))?;
        }
    }
    Ok(())
}
