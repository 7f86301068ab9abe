//! Probes in programs: USDT notes and functions, where spans of unprepared programs begin and end.

use std::path::PathBuf;

use libbpf_rs::{Link, MapCore, MapFlags, Object, OpenObject, ProgramAttachType, UsdtOpts};

use crate::object::{map_of, program};
use crate::select::autoload;
use crate::uprobes::{EVERYBODY, Uprobes, attach_code, attach_multi, choose, reason};
use crate::{Config, Mechanisms, shared, tls_calls};

/// How many sources of spans can have probes at a time.
pub const MAX_PROBE_SOURCES: usize = shared::MAX_SOURCES as usize;

/// Programs that are loaded only where spans come from probes.
const PROGRAMS: &[&str] = &[
    "on_usdt_begin",
    "on_usdt_end",
    "on_uprobe_begin",
    "on_uprobe_end",
    "on_uprobe_return",
    "on_exec_in_span",
];

/// Maps that only those programs use.
const MAPS: &[&str] = &[
    "open_spans",
    "probe_rings",
    "probe_rows",
    "text_numbers",
    "texts",
];

/// What a probe stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edge {
    /// A span begins.
    Begin,
    /// The latest span of its source on this thread ends.
    End,
    /// The span that began at the entry of the same call ends.
    Return,
}

/// Where in a file it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Spot {
    /// The notes of this provider and name.
    Usdt {
        /// The provider.
        provider: String,
        /// The probe.
        name: String,
        /// Where its instructions are in the file, each with where its semaphore is (0: it has none).
        /// Empty: that is not known, and libbpf finds them.
        places: Vec<(u64, u64)>,
    },
    /// Instructions, by their offset in the file.
    Code(Vec<u64>),
}

/// A probe to attach to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// Which source of spans it belongs to; below [`MAX_PROBE_SOURCES`].
    pub source: u8,
    /// What happens there.
    pub edge: Edge,
    /// The file, as a path that leads to it from here.
    pub file: PathBuf,
    /// Where in the file.
    pub spot: Spot,
    /// Which argument is the span's id.
    pub id: Option<u8>,
    /// Which argument is a string that is the span's name.
    pub name: Option<u8>,
}

/// The kernel refuses a probe.
#[derive(Debug, thiserror::Error)]
#[error("can't attach a probe to {file}: {why}", file = .file.display())]
pub struct ProbeError {
    file: PathBuf,
    why: String,
}

/// Finds out how, and switches off what is not needed. The second is that of what TLS decrypts.
pub(crate) fn select(
    open: &mut OpenObject,
    config: &Config,
    mechanisms: &mut Mechanisms,
) -> (Uprobes, Uprobes) {
    let (mut uprobes, mut tls) = (Uprobes::Nothing, Uprobes::Nothing);
    if config.probes || config.tls {
        let here = choose(mechanisms);
        uprobes = if config.probes { here } else { uprobes };
        tls = if config.tls { here } else { tls };
    }
    let wanted = uprobes != Uprobes::Nothing;
    for mut map in open.maps_mut() {
        if MAPS.iter().any(|name| map.name() == *name) {
            map.set_autocreate(wanted)
                .unwrap_or_else(|e| unreachable!("the object is not loaded yet: {e}"));
        }
    }
    prepare(open, uprobes);
    prepare_programs(open, tls_calls::PROGRAMS, tls);
    (uprobes, tls)
}

/// Has the programs of spans loaded as they will be attached, or not at all.
pub(crate) fn prepare(open: &mut OpenObject, uprobes: Uprobes) {
    prepare_programs(open, PROGRAMS, uprobes);
}

fn prepare_programs(open: &mut OpenObject, names: &[&str], uprobes: Uprobes) {
    for name in names {
        autoload(open, name, uprobes != Uprobes::Nothing);
    }
    if uprobes != Uprobes::Multi {
        return;
    }
    for mut program in open.progs_mut() {
        let name = program.name().to_string_lossy();
        if name.starts_with("on_uprobe_") && names.contains(&&*name) {
            program.set_attach_type(ProgramAttachType::TraceUprobeMulti);
        }
    }
}

impl Probe {
    /// Where it is, if it can be attached to like any other instruction: what libbpf keeps of a note's
    /// arguments, and looks up at each run, is of no use to it.
    fn plain_places(&self, uprobes: Uprobes) -> Option<Vec<(u64, u64)>> {
        let wants_arguments = self.id.is_some() || self.name.is_some();
        match &self.spot {
            _ if uprobes != Uprobes::Multi => None,
            Spot::Usdt { places, .. } if wants_arguments || places.is_empty() => None,
            Spot::Usdt { places, .. } => Some(places.clone()),
            Spot::Code(offsets) => Some(offsets.iter().map(|offset| (*offset, 0)).collect()),
        }
    }

    /// What its program learns of it at each run.
    fn cookie(&self) -> u64 {
        let argument = |number: Option<u8>| number.map_or(0, |n| u64::from(n) + 1);
        u64::from(self.source)
            | argument(self.id) << shared::COOKIE_ID
            | argument(self.name) << shared::COOKIE_NAME
    }
}

/// Attaches to a probe, in every process that has the file mapped now or later, the program of this
/// object that goes with it.
pub(crate) fn attach(
    object: &mut Object,
    uprobes: Uprobes,
    probe: &Probe,
) -> Result<Vec<Link>, ProbeError> {
    let cookie = probe.cookie();
    let plain = probe.plain_places(uprobes);
    let by_libbpf = plain.is_none() && matches!(probe.spot, Spot::Usdt { .. });
    let name = match (by_libbpf, probe.edge) {
        (true, Edge::Begin) => "on_usdt_begin",
        (true, _) => "on_usdt_end",
        (false, Edge::Begin) => "on_uprobe_begin",
        (false, Edge::End) => "on_uprobe_end",
        (false, Edge::Return) => "on_uprobe_return",
    };
    let retprobe = probe.edge == Edge::Return;
    let program = program(object, name);
    let links: libbpf_rs::Result<Vec<Link>> = match (&probe.spot, plain) {
        (_, Some(places)) => {
            attach_multi(&program, &probe.file, &places, cookie, retprobe).map(|link| vec![link])
        }
        (Spot::Usdt { provider, name, .. }, None) => {
            let options = UsdtOpts {
                cookie,
                ..Default::default()
            };
            program
                .attach_usdt_with_opts(EVERYBODY, &probe.file, provider, name, options)
                .map(|link| vec![link])
        }
        (Spot::Code(offsets), None) => {
            attach_code(&program, uprobes, &probe.file, offsets, cookie, retprobe)
        }
    };
    links.map_err(|e| ProbeError {
        file: probe.file.clone(),
        why: reason(&e),
    })
}

/// The name that an argument gave, by the number in a row. `None`: there were too many.
pub(crate) fn text(object: &Object, number: u16) -> Option<String> {
    let bytes = map_of(object, "texts")
        .lookup(&u32::from(number).to_ne_bytes(), MapFlags::ANY)
        .ok()??;
    let end = bytes.iter().position(|byte| *byte == 0)?;
    Some(String::from_utf8_lossy(&bytes[..end]).into_owned())
}
