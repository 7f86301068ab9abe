//! Probes in programs: USDT notes and functions, where spans of unprepared programs begin and end.

use std::io;
use std::path::{Path, PathBuf};

use libbpf_rs::{
    ErrorKind, Link, MapCore, MapFlags, Object, ObjectBuilder, OpenObject, ProgramAttachType,
    UprobeMultiOpts, UprobeOpts, UsdtOpts,
};
use tailscope_process::maps;

use crate::object::{map_of, program};
use crate::select::{PROBES, autoload};
use crate::{Config, Measurement, Mechanisms, shared, tls_calls};

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

/// Any process: which are recorded the programs decide, so that later children are too.
pub(crate) const EVERYBODY: i32 = -1;

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

/// How a probe in a program is attached here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Uprobes {
    /// All places of one probe with one link, without perf events.
    Multi,
    /// A perf event each.
    Single,
    Nothing,
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

/// Whether an uprobe is a perf event here, as before Linux 6.6: the kernel then asks for
/// `CAP_SYS_ADMIN`, and `CAP_PERFMON` is not enough.
pub(crate) fn uprobes_need_admin() -> bool {
    attach_to_ourselves("probe_uprobe_multi").is_err()
}

/// Tries both ways on a function of our own that nobody calls.
pub(crate) fn choose(mechanisms: &mut Mechanisms) -> Uprobes {
    let (uprobes, mechanism, why) = match attach_to_ourselves("probe_uprobe_multi") {
        Ok(()) => (Uprobes::Multi, Some("uprobe_multi"), String::new()),
        Err(multi) => match attach_to_ourselves("probe_uprobe") {
            Ok(()) => (
                Uprobes::Single,
                Some("uprobe perf events"),
                format!("uprobe_multi refused (Linux 6.6): {}", reason(&multi)),
            ),
            Err(single) => (
                Uprobes::Nothing,
                None,
                format!("uprobes refused: {}", reason(&single)),
            ),
        },
    };
    mechanisms.set(Measurement::Uprobe, mechanism, why.clone());
    mechanisms.set(Measurement::Usdt, mechanism, why);
    uprobes
}

pub(crate) fn reason(error: &libbpf_rs::Error) -> String {
    match error.kind() {
        ErrorKind::PermissionDenied => "not permitted".into(),
        ErrorKind::NotFound => "not in this kernel".into(),
        _ => format!("{error:#}"),
    }
}

fn attach_to_ourselves(name: &str) -> libbpf_rs::Result<()> {
    let offset = own_code()?;
    let mut open = ObjectBuilder::default().open_memory(PROBES)?;
    for mut program in open.progs_mut() {
        let wanted = program.name() == name;
        program.set_autoload(wanted);
    }
    let mut object = open.load()?;
    let program = program(&mut object, name);
    let file = "/proc/self/exe";
    if name == "probe_uprobe_multi" {
        attach_multi(&program, Path::new(file), &[(offset, 0)], 0, false).map(drop)
    } else {
        program
            .attach_uprobe(false, EVERYBODY, file, offset as usize)
            .map(drop)
    }
}

fn own_code() -> io::Result<u64> {
    place_in_file(own_code as *const () as u64)
}

/// Where in our own file a function is: the mapping that holds it says.
pub(crate) fn place_in_file(address: u64) -> io::Result<u64> {
    maps::own()?
        .iter()
        .find(|mapping| mapping.addresses().contains(&address))
        .map(|mapping| address - mapping.start + mapping.offset)
        .ok_or_else(|| io::Error::other("our own code is in none of our mappings"))
}

/// `places`: offsets in the file, of instructions and of their semaphores.
pub(crate) fn attach_multi(
    program: &libbpf_rs::ProgramMut<'_>,
    file: &Path,
    places: &[(u64, u64)],
    cookie: u64,
    retprobe: bool,
) -> libbpf_rs::Result<Link> {
    let options = UprobeMultiOpts {
        offsets: places.iter().map(|(offset, _)| *offset as usize).collect(),
        ref_ctr_offsets: places
            .iter()
            .map(|(_, semaphore)| *semaphore as usize)
            .collect(),
        cookies: vec![cookie; places.len()],
        retprobe,
        ..Default::default()
    };
    program.attach_uprobe_multi_with_opts(EVERYBODY, file, "", options)
}

/// Attaches to instructions, by their offsets in the file.
pub(crate) fn attach_code(
    program: &libbpf_rs::ProgramMut<'_>,
    uprobes: Uprobes,
    file: &Path,
    offsets: &[u64],
    cookie: u64,
    retprobe: bool,
) -> libbpf_rs::Result<Vec<Link>> {
    if uprobes == Uprobes::Multi {
        let places: Vec<(u64, u64)> = offsets.iter().map(|offset| (*offset, 0)).collect();
        return attach_multi(program, file, &places, cookie, retprobe).map(|link| vec![link]);
    }
    let single = |offset: &u64| {
        let options = UprobeOpts {
            cookie,
            retprobe,
            ..Default::default()
        };
        program.attach_uprobe_with_opts(EVERYBODY, file, *offset as usize, options)
    };
    offsets.iter().map(single).collect()
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

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn our_own_code_is_found_in_our_own_file() {
        let offset = own_code().expect("our maps can be read") as usize;
        let file = fs::read("/proc/self/exe").expect("our file can be read");
        // SAFETY: a function's first bytes are mapped and readable.
        let code = unsafe { std::slice::from_raw_parts(own_code as *const u8, 16) };
        assert_eq!(&file[offset..offset + 16], code);
    }
}
