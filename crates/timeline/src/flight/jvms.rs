//! Finds the JVMs among the watched processes: by the library that they have mapped.

use std::collections::{HashMap, HashSet};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use tailscope_kernel::jvm_probes::Listening;
use tailscope_kernel::timeline::Events;
use tailscope_process::maps::{CodeFile, code_files};
use tailscope_symbols::elf::Elf;
use tailscope_symbols::usdt;

/// A process maps the library some time after its begin: it is looked at so many times, and from
/// then on at every so many looks, as it may become another program.
const EAGER: u32 = 10;
const THEN_EVERY: u32 = 10;
/// So many different JVMs are listened to.
const MOST_LIBRARIES: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Jvms {
    looks: HashMap<u32, u32>,
    /// Libraries by device and inode.
    known: HashSet<(u64, u64)>,
    told: HashSet<String>,
}

impl Jvms {
    /// Their probes were detached: looks at all again.
    pub(super) fn attach_again(&mut self) {
        self.looks.clear();
        self.known.clear();
    }

    /// Looks at the watched processes, and listens to those that are JVMs. To be called about once
    /// a second. What is worth telling is in words.
    pub(super) fn poll(&mut self, events: &mut Events) -> Vec<String> {
        let watched = events.watched();
        self.looks.retain(|pid, _| watched.contains(pid));
        let mut told = Vec::new();
        for pid in watched {
            let looks = self.looks.entry(pid).or_default();
            *looks += 1;
            if *looks > EAGER && !looks.is_multiple_of(THEN_EVERY) {
                continue;
            }
            let Some(library) = library_of(pid) else {
                continue;
            };
            // Not a file, another one by now, or not for us to read.
            let Ok(file) = library.open() else { continue };
            let Ok(about) = file.metadata() else { continue };
            if self.known.len() >= MOST_LIBRARIES || !self.known.insert((about.dev(), about.ino()))
            {
                continue;
            }
            if let Err(e) = Elf::of(&file).and_then(|elf| usdt::notes(&elf)) {
                told.push(format!(
                    "can't read the probes in the JVM of process {pid}: {e}"
                ));
                continue;
            }
            // Through the descriptor: the name may lead elsewhere by now.
            let held = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
            match events.listen(&held) {
                Listening::To(_) => {}
                Listening::NoProbes => told.push(format!(
                    "the JVM of process {pid} has no probes, so its collections and class loading \
                     are missing; use a JVM built with --enable-dtrace, such as Debian's"
                )),
                Listening::Refused(why) => told.push(format!(
                    "can't attach to the probes in the JVM of process {pid}: {why}"
                )),
            }
        }
        told.retain(|note| self.told.insert(note.clone()));
        told
    }
}

/// The file of a process's `libjvm.so`.
fn library_of(pid: u32) -> Option<CodeFile> {
    let files = code_files(pid).ok()?;
    files.into_iter().find(CodeFile::is_jvm)
}
