//! Where a program's library for TLS hands over what it has decrypted: there the names of its requests
//! are.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use tailscope_kernel::{Kernel, TlsRead};

use crate::Process;
use crate::locate::{Located, locate};
use crate::symbols::offsets_of;

/// OpenSSL's and BoringSSL's functions that read.
const READS: [(&str, TlsRead); 3] = [
    ("SSL_read", TlsRead::Returns),
    ("SSL_read_ex", TlsRead::Writes),
    ("SSL_read_early_data", TlsRead::Writes),
];

/// The most files that are looked into.
const MOST_FILES: usize = 64;

/// The files in which such functions were looked for.
#[derive(Debug, Default)]
pub(crate) struct TlsLibraries {
    /// Whether a file has some, by its device and inode.
    known: HashMap<(u64, u64), bool>,
    /// Those that have probes, held open so that each stays the same one.
    probed: Vec<Located>,
}

impl TlsLibraries {
    /// Has probes in the library that this process has. Whether it has one; the error is that of a
    /// kernel that refuses.
    pub(crate) fn attach(&mut self, kernel: &mut Kernel, pid: u32) -> Result<bool, String> {
        for file in candidates(&Process { pid }) {
            let Some(key) = file.key() else { continue };
            if let Some(has_some) = self.known.get(&key) {
                if *has_some {
                    return Ok(true);
                }
                continue;
            }
            if self.known.len() >= MOST_FILES {
                return Ok(false);
            }
            let has_some = attach_to(kernel, &file)?;
            self.known.insert(key, has_some);
            if has_some {
                self.probed.push(file);
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// What a person should know of a process whose requests over TLS get no names.
pub(crate) fn notice(pid: u32, why: Option<&str>) -> String {
    let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let program = program.file_name().unwrap_or(program.as_os_str());
    format!(
        "requests of {} over TLS get no names: {}",
        Path::new(program).display(),
        why.unwrap_or("it has no function SSL_read (OpenSSL, BoringSSL)")
    )
}

/// Attaches to all functions of the file that read. Whether it has any.
fn attach_to(kernel: &mut Kernel, file: &Located) -> Result<bool, String> {
    let mut has_some = false;
    for (name, function) in READS {
        let Ok(offsets) = offsets_of(file, name) else {
            continue;
        };
        kernel.attach_tls(&file.path(), function, &offsets)?;
        has_some = true;
    }
    Ok(has_some)
}

/// Files of a process in which the library may be: one of its name, else the program itself.
fn candidates(process: &Process) -> Vec<Located> {
    let here = std::slice::from_ref(process);
    // Some programs bring their own: libssl-1a2b3c4d.so.3.
    let is_library = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with("libssl") && name.contains(".so"))
    };
    let mapped = process.mapped_paths().unwrap_or_default();
    let program = fs::read_link(format!("/proc/{}/exe", process.pid));
    mapped
        .into_iter()
        .filter(is_library)
        .chain(program.ok())
        .filter_map(|path| locate(path.to_str()?, here, None).ok())
        .flatten()
        .collect()
}
