//! Finds the JVMs among the watched processes: by the library that they have mapped.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use tailscope_kernel::timeline::{Events, Listening};

/// A process maps the library some time after its begin: it is looked at so many times, and from
/// then on at every so many looks, as it may become another program.
const EAGER: u32 = 10;
const THEN_EVERY: u32 = 10;

#[derive(Debug, Default)]
pub(super) struct Jvms {
    looks: HashMap<u32, u32>,
    /// Libraries by device and inode.
    known: HashSet<(u64, u64)>,
}

impl Jvms {
    /// Looks at the watched processes, and listens to those that are JVMs. To be called about once
    /// a second. What is worth telling is in words.
    pub(super) fn look(&mut self, events: &mut Events) -> Vec<String> {
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
            let Ok(file) = fs::metadata(&library) else {
                continue;
            };
            if !self.known.insert((file.dev(), file.ino())) {
                continue;
            }
            match events.listen(&library) {
                Listening::To(_) => {}
                Listening::NoProbes => told.push(format!(
                    "the JVM of process {pid} has no probes, so its collections and class loading \
                     are not told: use one that was built with --enable-dtrace, as Debian's is"
                )),
                Listening::Refused(why) => told.push(format!(
                    "the probes in the JVM of process {pid} can't be listened to: {why}"
                )),
            }
        }
        told
    }
}

/// The file of a process's `libjvm.so`, as it sees it, in its container too.
fn library_of(pid: u32) -> Option<PathBuf> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    let path = maps.lines().find_map(|line| {
        let path = &line[line.find('/')?..];
        path.ends_with("/libjvm.so").then_some(path)
    })?;
    Some(PathBuf::from(format!("/proc/{pid}/root{path}")))
}
