//! Probes at the functions with which programs read what TLS has decrypted.

use std::path::Path;

use libbpf_rs::{Link, Object};

use crate::object::program;
use crate::probes::{Uprobes, attach_code, reason};

const AT_BEGIN: &str = "on_uprobe_tls_read";
const AT_END: &str = "on_uprobe_tls_return";
pub(crate) const PROGRAMS: &[&str] = &[AT_BEGIN, AT_END];

/// A function that reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsRead {
    /// It returns how many bytes: `SSL_read`.
    Returns,
    /// It puts that where its fourth argument points to: `SSL_read_ex`, `SSL_read_early_data`.
    Writes,
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
    for (name, is_end) in [(AT_END, true), (AT_BEGIN, false)] {
        let program = program(object, name);
        for (function, offsets) in functions {
            let cookie = u64::from(*function == TlsRead::Writes);
            let attached = attach_code(&program, uprobes, file, offsets, cookie, is_end);
            links.extend(attached.map_err(|e| reason(&e))?);
        }
    }
    Ok(links)
}
