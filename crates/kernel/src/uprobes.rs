//! How instructions of programs get a probe: with one link for all of them, or with a perf event each.

use std::io;
use std::path::Path;

use libbpf_rs::{ErrorKind, Link, ObjectBuilder, UprobeMultiOpts, UprobeOpts};
use tailscope_process::maps;

use crate::object::program;
use crate::select::PROBES;
use crate::{Measurement, Mechanisms};

/// Any process: which are recorded the programs decide, so that later children are too.
pub(crate) const EVERYBODY: i32 = -1;

/// How a probe in a program is attached here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Uprobes {
    /// All places of one probe with one link, without perf events.
    Multi,
    /// A perf event each.
    Single,
    Nothing,
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
