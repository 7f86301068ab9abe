//! Programs on hooks, to be timed.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use libbpf_rs::{
    Link, Object, ObjectBuilder, ProgramAttachType, ProgramMut, RingBufferBuilder, UprobeOpts,
};

use crate::Mechanisms;
use crate::load_error::{LoadError, kernel};
use crate::object::{map_of, program};
use crate::open::check;
use crate::uprobes::{EVERYBODY, Uprobes, attach_multi, choose, reason};

pub(super) static PROGRAMS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/cost.bpf.o"));

/// The function that fentry and kprobes are tried on: naming a thread calls it once.
const NAMING: &str = "__set_task_comm";

/// What a program does at a hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Payload {
    /// Nothing.
    Empty,
    /// It counts in a map, by thread.
    Map,
    /// It writes 64 bytes into a ring, and wakes nobody.
    Ring,
}

impl Payload {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Empty, Self::Map, Self::Ring];

    /// As in the names of the programs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::Map => "map",
            Self::Ring => "ring",
        }
    }
}

/// A program on a hook, until this is dropped.
#[derive(Debug)]
pub struct Attached {
    _link: Link,
}

/// The programs, loaded. `fentry` and kprobes are on their own: not every kernel takes them.
#[derive(Debug)]
pub struct Hooks {
    object: Object,
    uprobes: Uprobes,
}

/// Why a hook can't be had: words for a table.
pub(super) fn why(error: &libbpf_rs::Error) -> String {
    reason(error)
}

/// Loads the programs whose names begin with one of these.
pub(super) fn load(prefixes: &[&str], uprobes: Uprobes) -> libbpf_rs::Result<Object> {
    let mut open = ObjectBuilder::default().open_memory(PROGRAMS)?;
    for mut program in open.progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        let wanted = prefixes.iter().any(|prefix| name.starts_with(prefix));
        program.set_autoload(wanted);
        if uprobes == Uprobes::Multi && name.contains("probe_") && !name.contains("kprobe") {
            program.set_attach_type(ProgramAttachType::TraceUprobeMulti);
        }
        if uprobes == Uprobes::Multi && name == "count_probe" {
            program.set_attach_type(ProgramAttachType::TraceUprobeMulti);
        }
    }
    open.load()
}

pub(super) fn attach_probe(
    program: &ProgramMut<'_>,
    uprobes: Uprobes,
    file: &Path,
    (offset, semaphore): (u64, u64),
    returns: bool,
) -> libbpf_rs::Result<Link> {
    if uprobes == Uprobes::Multi {
        return attach_multi(program, file, &[(offset, semaphore)], 0, returns);
    }
    let options = UprobeOpts {
        ref_ctr_offset: semaphore as usize,
        retprobe: returns,
        ..Default::default()
    };
    program.attach_uprobe_with_opts(EVERYBODY, file, offset as usize, options)
}

impl Hooks {
    /// Loads them.
    ///
    /// # Errors
    /// If this user may not, or the kernel refuses them.
    pub fn load() -> Result<Self, LoadError> {
        check()?;
        let uprobes = choose(&mut Mechanisms::default());
        let mut prefixes = vec!["raw_", "tracepoint_", "profile_"];
        if uprobes != Uprobes::Nothing {
            prefixes.push("probe_");
        }
        let object = load(&prefixes, uprobes).map_err(kernel("load the programs to be timed"))?;
        Ok(Self { object, uprobes })
    }

    /// Loads those on a function of the kernel: `fentry` or `kprobe`.
    ///
    /// # Errors
    /// Why this kernel has none, in words.
    pub fn load_on_function(way: &'static str) -> Result<Self, String> {
        check().map_err(|e| e.to_string())?;
        let prefix = format!("{way}_");
        let object = load(&[&prefix], Uprobes::Nothing).map_err(|e| why(&e))?;
        let mut hooks = Self {
            object,
            uprobes: Uprobes::Nothing,
        };
        hooks.function(way, Payload::Empty)?;
        Ok(hooks)
    }

    fn attach(
        &mut self,
        way: &str,
        payload: Payload,
        attach: impl FnOnce(&ProgramMut<'_>) -> libbpf_rs::Result<Link>,
    ) -> Result<Attached, String> {
        let name = format!("{way}_{}", payload.name());
        let program = program(&mut self.object, &name);
        let link = attach(&program).map_err(|e| why(&e))?;
        Ok(Attached { _link: link })
    }

    /// On a tracepoint, without perf's wrapping, as `rawtracepoint:` of bpftrace and as Tailscope.
    ///
    /// # Errors
    /// Why not, in words.
    pub fn raw_tracepoint(&mut self, name: &str, payload: Payload) -> Result<Attached, String> {
        self.attach("raw", payload, |p| p.attach_raw_tracepoint(name))
    }

    /// On a tracepoint, through a perf event, as `tracepoint:` of bpftrace.
    ///
    /// # Errors
    /// Why not, in words.
    pub fn tracepoint(
        &mut self,
        group: &str,
        name: &str,
        payload: Payload,
    ) -> Result<Attached, String> {
        self.attach("tracepoint", payload, |p| {
            let category = libbpf_rs::TracepointCategory::Custom(group.to_owned());
            p.attach_tracepoint(category, name)
        })
    }

    /// On an instruction in a file, or on the return from the function there.
    ///
    /// # Errors
    /// Why not, in words.
    pub fn probe(
        &mut self,
        file: &Path,
        offset: u64,
        returns: bool,
        payload: Payload,
    ) -> Result<Attached, String> {
        if self.uprobes == Uprobes::Nothing {
            return Err("uprobes refused by this kernel".into());
        }
        let uprobes = self.uprobes;
        self.attach("probe", payload, |p| {
            attach_probe(p, uprobes, file, (offset, 0), returns)
        })
    }

    /// On the samples of a perf event.
    ///
    /// # Errors
    /// Why not, in words.
    pub fn samples(&mut self, event: &impl AsFd, payload: Payload) -> Result<Attached, String> {
        // The link closes the descriptor that it is given.
        let own = event
            .as_fd()
            .try_clone_to_owned()
            .map_err(|e| e.to_string())?;
        let attached = self.attach("profile", payload, |p| p.attach_perf_event(own.as_raw_fd()));
        if attached.is_ok() {
            std::mem::forget(own);
        }
        attached
    }

    /// On the function that names a thread; only after [`Hooks::load_on_function`].
    ///
    /// # Errors
    /// Why not, in words.
    pub fn function(&mut self, way: &str, payload: Payload) -> Result<Attached, String> {
        self.attach(way, payload, |p| match way {
            "fentry" => p.attach(),
            _ => p.attach_kprobe(false, NAMING),
        })
    }

    /// Empties the ring that the programs write into.
    pub fn drain(&self) {
        let ring = map_of(&self.object, "ring");
        let mut builder = RingBufferBuilder::new();
        // A ring that can't be mapped stays full, and a write into it is then refused: `ring` costs
        // look too small, which the comparison with `empty` shows.
        if builder.add(&ring, |_| 0).is_ok()
            && let Ok(ring) = builder.build()
        {
            let _ = ring.consume();
        }
    }

    /// How often the kernel skipped a program because one ran on that CPU already.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        let ids: Vec<u32> = self
            .object
            .progs()
            .filter_map(|program| id_of(program.as_fd().as_raw_fd()))
            .collect();
        libbpf_rs::query::ProgInfoIter::default()
            .filter(|info| ids.contains(&info.id))
            .map(|info| info.recursion_misses)
            .sum()
    }
}

/// A program's number, as the kernel shows it of the descriptor.
fn id_of(fd: i32) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("prog_id:"))?;
    line.trim().parse().ok()
}

/// The number of a tracepoint, for perf events.
///
/// # Errors
/// If tracefs is not mounted, or has no such tracepoint.
pub fn tracepoint_id(group: &str, name: &str) -> io::Result<u64> {
    let mut failed = io::Error::from(io::ErrorKind::NotFound);
    for root in ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"] {
        match fs::read_to_string(format!("{root}/events/{group}/{name}/id")) {
            Ok(text) => return text.trim().parse().map_err(io::Error::other),
            Err(e) => failed = e,
        }
    }
    Err(failed)
}
