//! Probes at the functions with which programs read what TLS has decrypted.

use std::path::Path;

use libbpf_rs::{Link, Object, OpenObject, ProgramAttachType, UprobeOpts};

use crate::object::program;
use crate::probes::{EVERYBODY, Uprobes, attach_multi, reason};
use crate::select::autoload;

/// At a call's begin and at its end.
const PROGRAMS: [(&str, bool); 2] = [
    ("on_uprobe_tls_read", false),
    ("on_uprobe_tls_return", true),
];

/// A function that reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsRead {
    /// It returns how many bytes: `SSL_read`.
    Returns,
    /// It puts that where its fourth argument points to: `SSL_read_ex`, `SSL_read_early_data`.
    Writes,
}

/// Has the programs loaded as they will be attached, or not at all.
pub(crate) fn prepare(open: &mut OpenObject, uprobes: Uprobes) {
    for (name, _) in PROGRAMS {
        autoload(open, name, uprobes != Uprobes::Nothing);
        if uprobes == Uprobes::Multi
            && let Some(mut program) = open.progs_mut().find(|program| program.name() == name)
        {
            program.set_attach_type(ProgramAttachType::TraceUprobeMulti);
        }
    }
}

/// Attaches to functions, each at offsets of a file, in every process that has the file mapped now or
/// later. The error says why the kernel refuses; then there is none.
pub(crate) fn attach(
    object: &mut Object,
    uprobes: Uprobes,
    file: &Path,
    functions: &[(TlsRead, Vec<u64>)],
) -> Result<Vec<Link>, String> {
    let mut links = Vec::new();
    // The end first: a begin alone would wait for it.
    for (name, retprobe) in PROGRAMS.into_iter().rev() {
        let program = program(object, name);
        for (function, offsets) in functions {
            let cookie = u64::from(*function == TlsRead::Writes);
            if uprobes == Uprobes::Multi {
                let places: Vec<(u64, u64)> = offsets.iter().map(|offset| (*offset, 0)).collect();
                links.push(attach_multi(&program, file, &places, cookie, retprobe));
                continue;
            }
            let options = || UprobeOpts {
                cookie,
                retprobe,
                ..Default::default()
            };
            links.extend(offsets.iter().map(|offset| {
                program.attach_uprobe_with_opts(EVERYBODY, file, *offset as usize, options())
            }));
        }
    }
    links
        .into_iter()
        .collect::<libbpf_rs::Result<_>>()
        .map_err(|e| reason(&e))
}
