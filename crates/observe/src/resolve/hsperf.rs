//! `hsperf:PID:NAME`: the counters that HotSpot keeps for its own tools (`jstat`), in a file that it
//! has mapped: `/tmp/hsperfdata_USER/PID`.
//!
//! The layout is that of HotSpot's `perfMemory.hpp`: a prologue of 32 bytes, then entries, each with
//! the offsets of its name and its value. What is told apart: `units` and `variability`.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tailscope_process::{owner, rooted};
use tailscope_signals::view::View;

use super::{ResolveError, Wanted};
use crate::signal::{Names, Reader, Role, Signal};

/// In front of the file, as its bytes are.
const MAGIC: [u8; 4] = [0xca, 0xfe, 0xc0, 0xc0];
/// Of this machine's byte order, in the prologue.
const LITTLE_ENDIAN: u8 = 1;
/// A number of 64 bits, as JNI writes its type.
const LONG: u8 = b'J';

/// HotSpot makes it 32 KiB long.
const MOST_BYTES: u64 = 1 << 20;
/// So many names in `/tmp` are looked at.
const MOST_FOLDERS: usize = 65_536;

/// A counter as it is described.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Described {
    name: String,
    kind: Role,
    value_at: usize,
}

/// Why the file tells nothing.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotHotSpots;

pub(super) fn described(bytes: &[u8]) -> Result<Vec<Described>, NotHotSpots> {
    let word = |at: usize| {
        let four: [u8; 4] = bytes.get(at..at.checked_add(4)?)?.try_into().ok()?;
        usize::try_from(i32::from_le_bytes(four)).ok()
    };
    if bytes.len() < 32 || bytes[..4] != MAGIC || bytes[4] != LITTLE_ENDIAN {
        return Err(NotHotSpots);
    }
    let (Some(first), Some(count)) = (word(24), word(28)) else {
        return Err(NotHotSpots);
    };
    let mut all = Vec::new();
    let mut at = first;
    for _ in 0..count.min(bytes.len() / 20) {
        let Some(head) = bytes.get(at..at.saturating_add(20)) else {
            break;
        };
        let (Some(length), Some(name_at), Some(value_at)) = (word(at), word(at + 4), word(at + 16))
        else {
            break;
        };
        let (elements, data_type, variability) = (word(at + 8), head[12], head[15]);
        // Longest names of HotSpot have some 60 letters.
        let end = at + name_at + 256.min(length.saturating_sub(name_at));
        if let Some(text) = bytes.get(at + name_at..end)
            && elements == Some(0)
            && data_type == LONG
        {
            let name = text.split(|byte| *byte == 0).next().unwrap_or_default();
            all.push(Described {
                name: String::from_utf8_lossy(name).into_owned(),
                // 2: it only grows. Constants and variables are read as tags.
                kind: if variability == 2 {
                    Role::Counter
                } else {
                    Role::Tag
                },
                value_at: at + value_at,
            });
        }
        if length == 0 {
            break;
        }
        at += length;
    }
    Ok(all)
}

/// The file, under the name that the JVM has for itself: in a container that is another one.
///
/// Everybody may make folders in `/tmp`. So it is taken only from one that belongs to the JVM's user
/// and that nobody else may write to, and only if it is a file of that user's.
fn file_of(pid: u32) -> Option<File> {
    let user = owner::of(pid)?;
    let own = owner::innermost_pid(pid)?.to_string();
    let root = PathBuf::from(format!("/proc/{pid}/root"));
    let folder = rooted::open_folder(&root, Path::new("/tmp")).ok()?;
    let folders = fs::read_dir(format!("/proc/self/fd/{}", folder.as_raw_fd())).ok()?;
    folders
        .take(MOST_FOLDERS)
        .flatten()
        .filter(|entry| {
            let name = entry.file_name();
            name.to_string_lossy().starts_with("hsperfdata_")
        })
        .filter(|entry| {
            entry.metadata().is_ok_and(|about| {
                about.is_dir() && about.uid() == user && about.mode() & 0o022 == 0
            })
        })
        .find_map(|entry| {
            let path = Path::new("/tmp").join(entry.file_name()).join(&own);
            let file = rooted::open(&root, &path).ok()?;
            let about = file.metadata().ok()?;
            (about.uid() == user).then_some(file)
        })
}

/// Its first bytes, which no longer change.
fn read(file: &File) -> io::Result<Vec<u8>> {
    let length = file.metadata()?.len().min(MOST_BYTES);
    let mut bytes = vec![0; length as usize];
    let mut at = 0;
    while at < bytes.len() {
        match file.read_at(&mut bytes[at..], at as u64)? {
            0 => break,
            count => at += count,
        }
    }
    bytes.truncate(at);
    Ok(bytes)
}

pub(super) fn resolve(wanted: &Wanted, name: &str) -> Result<Signal, ResolveError> {
    let pid = wanted.owner.pid;
    let Some(file) = file_of(pid) else {
        return Err(wanted.none(format!(
            "process {pid} ({}) has no readable file in /tmp/hsperfdata_USER: it is not a JVM, \
             or runs with -XX:-UsePerfData or -XX:+PerfDisableSharedMem",
            wanted.owner.name
        )));
    };
    let bytes = read(&file).map_err(wanted.system("read its counters"))?;
    let all = described(&bytes).map_err(|NotHotSpots| {
        wanted.none("its file in /tmp/hsperfdata_USER is not in HotSpot's format")
    })?;
    let Some(found) = all.iter().find(|counter| counter.name == name) else {
        return Err(wanted.unknown("counter", name, all.iter().map(|c| &*c.name)));
    };
    // Should it be cut short from here on, loads read zeros, and the report says so (`cut_short`).
    let view: Arc<View> =
        View::map(&file, 0, bytes.len()).map_err(wanted.system("map its counters"))?;
    let word = view
        .word(found.value_at, 8)
        .ok_or_else(|| wanted.none("its value is not where HotSpot puts values"))?;
    Ok(Signal {
        name: wanted.signal.clone(),
        kind: Some(found.kind),
        owner: Some(Arc::clone(&wanted.owner)),
        names: Names::None,
        how: "a load from HotSpot's shared memory".into(),
        reader: Reader::Load(word),
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;

    use super::*;

    fn view(bytes: &[u8]) -> Arc<View> {
        let mut file = tempfile::tempfile().expect("a temporary file");
        file.write_all(bytes).expect("written");
        View::map(&file, 0, bytes.len()).expect("mapped")
    }

    fn written(counters: &[(&str, u8, u64)]) -> Vec<u8> {
        let mut bytes = vec![0; 32];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = LITTLE_ENDIAN;
        bytes[24..28].copy_from_slice(&32u32.to_le_bytes());
        bytes[28..32].copy_from_slice(&(counters.len() as u32).to_le_bytes());
        for (name, variability, value) in counters {
            let name_length = (name.len() + 1).next_multiple_of(8);
            let value_at = (20 + name_length).next_multiple_of(8);
            let mut entry = Vec::new();
            for word in [value_at as u32 + 8, 20, 0] {
                entry.extend(word.to_le_bytes());
            }
            entry.extend([LONG, 0, 1, *variability]);
            entry.extend((value_at as u32).to_le_bytes());
            entry.extend(name.as_bytes());
            entry.resize(value_at, 0);
            entry.extend(value.to_le_bytes());
            bytes.extend(entry);
        }
        bytes.resize(bytes.len().next_multiple_of(4096), 0);
        bytes
    }

    #[test]
    fn counters_are_found_as_hotspot_writes_them() {
        let counters = [
            ("sun.gc.collector.0.invocations", 2, 7),
            ("sun.os.hrt.frequency", 1, 9),
        ];
        let bytes = written(&counters);
        let (all, view) = (
            described(&bytes).expect("the layout is right"),
            view(&bytes),
        );
        for ((name, variability, value), found) in counters.iter().zip(&all) {
            assert_eq!(found.name, *name);
            assert_eq!(found.kind == Role::Counter, *variability == 2);
            assert_eq!(
                view.word(found.value_at, 8).expect("aligned").load(),
                *value
            );
        }
        assert_eq!(all.len(), 2);
    }

    proptest! {
        #[test]
        fn foreign_files_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 64..600), right: bool) {
            if right {
                bytes[..5].copy_from_slice(&[0xca, 0xfe, 0xc0, 0xc0, LITTLE_ENDIAN]);
                bytes[24..32].copy_from_slice(&[32, 0, 0, 0, 9, 0, 0, 0]);
            }
            let _ = described(&bytes);
        }
    }
}
