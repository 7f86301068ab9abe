//! Probes at the functions with which programs read what TLS has decrypted, and write what it is to
//! encrypt.

use std::path::Path;

use libbpf_rs::{Link, Object};

use crate::object::program;
use crate::uprobes::{Uprobes, attach_code, reason};

const AT_BEGIN: &str = "on_uprobe_tls_begin";
const AT_END_OF_READ: &str = "on_uprobe_tls_read";
const AT_END_OF_WRITE: &str = "on_uprobe_tls_write";
pub(crate) const PROGRAMS: &[&str] = &[AT_BEGIN, AT_END_OF_READ, AT_END_OF_WRITE];

/// A function of the library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TlsCall {
    /// Its name.
    pub name: &'static str,
    /// Whether it writes, rather than reads.
    pub writes: bool,
    /// Whether it puts the number of bytes where its fourth argument points to, rather than return it.
    pub tells_bytes: bool,
}

/// Attaches to functions, each at offsets of a file, in every process that has the file mapped now or
/// later. The error says why the kernel refuses; then there is none.
pub(crate) fn attach(
    object: &mut Object,
    uprobes: Uprobes,
    file: &Path,
    functions: &[(TlsCall, Vec<u64>)],
) -> Result<Vec<Link>, String> {
    let mut links = Vec::new();
    // The end first: a begin alone would wait for it.
    for is_end in [true, false] {
        for (function, offsets) in functions {
            let name = match (is_end, function.writes) {
                (false, _) => AT_BEGIN,
                (true, false) => AT_END_OF_READ,
                (true, true) => AT_END_OF_WRITE,
            };
            let program = program(object, name);
            let cookie = u64::from(function.tells_bytes);
            let attached = attach_code(&program, uprobes, file, offsets, cookie, is_end);
            links.extend(attached.map_err(|e| reason(&e))?);
        }
    }
    Ok(links)
}
