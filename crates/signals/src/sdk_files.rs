//! Which files have the SDK in them, and which files a process has mapped the code of.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The names in the note of the SDK's probe (`TS__PROBE` in tailscope.h), and what stands before
/// them in a note: its owner, then three addresses.
const NAMES: &[u8] = b"tailscope\0thread\0";
const OWNER: &[u8] = b"stapsdt\0";
const BEFORE: usize = OWNER.len() + 3 * 8;
const STEP: usize = 1 << 20;

/// So many files' findings are remembered.
const MOST_INSPECTED: usize = 16_384;

/// Device, inode, and when it was last written, so that an inode that is used again is another file.
pub type FileId = (u64, u64, i64, i64);

/// Which file is at a path; `None`: none is.
#[must_use]
pub fn id_of(file: &Path) -> Option<FileId> {
    let found = fs::metadata(file).ok()?;
    Some((found.dev(), found.ino(), found.mtime(), found.mtime_nsec()))
}

/// Files that were looked into for the SDK.
#[derive(Debug, Default)]
pub struct Inspected(HashMap<FileId, bool>);

impl Inspected {
    /// Whether a file has the SDK that was not looked into before. One that is gone has not.
    pub fn finds_sdk(&mut self, file: &Path) -> bool {
        let Some(id) = id_of(file) else { return false };
        if self.0.contains_key(&id) {
            return false;
        }
        let found = has_sdk(file).unwrap_or(false);
        if self.0.len() >= MOST_INSPECTED {
            self.0.retain(|_, found| *found);
        }
        self.0.insert(id, found);
        found
    }
}

/// How much memory processes had mapped when the files that they run were last listed. A list takes
/// a tenth of a millisecond and more, that number a hundredth, and a process that is at rest or has all
/// its memory keeps it.
#[derive(Debug, Default)]
pub struct Mapped(HashMap<u32, (String, u32)>);

/// What was mapped can be just as large as what was unmapped: then it is found this many times later.
const UNCHANGED: u32 = 10;

impl Mapped {
    /// Whether it may have mapped a file since this said so the last time.
    pub fn have_changed(&mut self, pid: u32) -> bool {
        let size = fs::read_to_string(format!("/proc/{pid}/statm"))
            .ok()
            .and_then(|statm| Some(statm.split_once(' ')?.0.to_owned()));
        let Some(size) = size else { return true };
        let (before, times) = self.0.entry(pid).or_default();
        *times += 1;
        let changed = *before != size || *times > UNCHANGED;
        if changed {
            (*before, *times) = (size, 0);
        }
        changed
    }

    /// The process is gone, or runs another program.
    pub fn forget(&mut self, pid: u32) {
        self.0.remove(&pid);
    }
}

/// Whether the file has the SDK's probe. Reads it once, in bounded memory.
pub fn has_sdk(path: &Path) -> io::Result<bool> {
    let finder = memchr::memmem::Finder::new(NAMES);
    let mut file = File::open(path)?;
    let mut bytes = Vec::with_capacity(STEP + BEFORE + NAMES.len());
    loop {
        let kept = bytes.len();
        (&mut file).take(STEP as u64).read_to_end(&mut bytes)?;
        if bytes.len() == kept {
            return Ok(false);
        }
        let is_note = |at: usize| at >= BEFORE && bytes[at - BEFORE..].starts_with(OWNER);
        if finder.find_iter(&bytes).any(is_note) {
            return Ok(true);
        }
        bytes.drain(..bytes.len().saturating_sub(BEFORE + NAMES.len() - 1));
    }
}

/// The files whose code a process has mapped, each as a path that leads to the very file even in
/// another mount namespace or after it was replaced.
pub fn code_files(pid: u32) -> io::Result<Vec<PathBuf>> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let mut paths: Vec<&str> = code_mappings(&maps).map(|(_, path)| path).collect();
    paths.sort_unstable();
    paths.dedup();
    Ok(paths
        .into_iter()
        .flat_map(|path| match path {
            SDK_IN_MEMORY => descriptors_of(pid, path),
            _ => vec![PathBuf::from(format!("/proc/{pid}/root{path}"))],
        })
        .collect())
}

/// What the SDK for Java maps, which has no program file to keep its probe in (`Probe.NAME` in
/// sdk/java): a file in memory, which no path leads to.
const SDK_IN_MEMORY: &str = "/memfd:tailscope-sdk (deleted)";

/// The address range and the file of each mapping of code in `/proc/PID/maps`.
pub fn code_mappings(maps: &str) -> impl Iterator<Item = (&str, &str)> {
    maps.lines().filter_map(|line| {
        let mut fields = line.split_whitespace();
        let (range, mode) = (fields.next()?, fields.next()?);
        let path = line.find('/').map(|at| &line[at..])?;
        mode.contains('x').then_some((range, path))
    })
}

/// The descriptors through which a process holds files open that have this name in its maps. Unlike
/// the links in `map_files`, they can be followed without the powers of an administrator.
fn descriptors_of(pid: u32, name: &str) -> Vec<PathBuf> {
    fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| fs::read_link(path).is_ok_and(|to| to.as_os_str() == name))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note() -> Vec<u8> {
        [OWNER, &[7; 24], NAMES].concat()
    }

    fn is_found(bytes: &[u8]) -> bool {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(file.path(), bytes).expect("written");
        has_sdk(file.path()).expect("read")
    }

    #[test]
    fn a_process_is_looked_at_again_when_it_has_mapped_more_and_now_and_then() {
        let mut mapped = Mapped::default();
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .expect("sleep starts");
        let (pid, us) = (child.id(), std::process::id());
        assert!(mapped.have_changed(us), "not looked at yet");
        let more = std::hint::black_box(vec![1_u8; 64 << 20]); // in a mapping of its own
        assert!(mapped.have_changed(us), "64 MiB more");
        drop(more);
        // It may still be starting; once its memory is the same twice, it sleeps.
        let sleeps = (0..10_000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            !mapped.have_changed(pid)
        });
        assert!(sleeps, "its memory never stayed the same");
        let times = 1 + (0..100).take_while(|_| !mapped.have_changed(pid)).count();
        assert_eq!(times, UNCHANGED as usize);
        mapped.forget(pid);
        assert!(mapped.have_changed(pid), "forgotten");
        child.kill().expect("it can be ended");
        child.wait().expect("it ends");
        assert!(
            mapped.have_changed(pid),
            "gone: that may be all there is to know"
        );
    }

    #[test]
    fn the_note_is_found_wherever_a_read_cuts_it() {
        for at in [
            0,
            5,
            STEP - note().len(),
            STEP - 20,
            STEP - 3,
            STEP,
            2 * STEP - 1,
        ] {
            let bytes = [vec![b't'; at], note(), vec![b't'; 100]].concat();
            assert!(is_found(&bytes), "at {at}");
        }
    }

    #[test]
    fn the_names_alone_are_no_note() {
        assert!(!is_found(NAMES));
        assert!(!is_found(&[&[0; 64], NAMES].concat()));
    }

    #[test]
    fn a_file_without_it_has_none() {
        assert!(!has_sdk(Path::new("/bin/true")).expect("read"));
    }
}
