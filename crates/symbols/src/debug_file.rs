//! The separate file that holds a program's debug symbols, where they were taken out of the program
//! itself: found as gdb does, by the build id, then by the name that the program links to
//! (`.gnu_debuglink`). One of another build would lead anywhere, so it is refused.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use object::LittleEndian;
use object::elf::{ELF_NOTE_GNU, NT_GNU_BUILD_ID};
use tailscope_process::maps::Mapping;
use tailscope_process::rooted;

use crate::elf::{self, Elf, SHT_NOTE};

/// Where packages put separate debug files.
pub const DEBUG_FOLDER: &str = "/usr/lib/debug";
/// Bytes of a section of notes, or of the one that names the debug file.
const MOST_BYTES: u64 = 1 << 20;

/// Bytes of a debug file that are read for its CRC: a program chooses the name, and so the file.
const MOST_CHECKED: u64 = 4 << 30;

/// What tells one build of a program from another.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Identity {
    build_id: Option<Vec<u8>>,
    /// The name of the file that holds its symbols, and the CRC of that.
    debug_link: Option<(String, u32)>,
}

/// What came of looking for it.
#[derive(Debug, Default)]
pub struct DebugFile {
    /// It; `None`: there is none that belongs to the program.
    pub found: Option<File>,
    /// Where it was looked for until it was found.
    pub tried: Vec<PathBuf>,
    /// What is there and belongs to another build.
    pub refused: Vec<PathBuf>,
}

impl DebugFile {
    /// Of a file that a process has mapped, and that was opened; nothing if it can't be read.
    #[must_use]
    pub fn of_mapped(pid: u32, mapped: &Mapping, program: &File) -> Self {
        let root = PathBuf::from(format!("/proc/{pid}/root"));
        Self::of(program, mapped.name(), &root).unwrap_or_default()
    }

    /// Of a program: `path` is its own as a process whose root is `root` sees it.
    pub fn of(program: &File, path: &Path, root: &Path) -> io::Result<Self> {
        let identity = Identity::of(program)?;
        let mut searched = Self::default();
        for candidate in candidates(&identity, path) {
            // In the process's own files, else in ours: those of a container's program may be here.
            for root in [root, Path::new("/")] {
                let Ok(file) = rooted::open(root, &candidate) else {
                    continue;
                };
                if is_same(&file, program) {
                    continue;
                }
                if identity.is_of(&file) {
                    searched.found = Some(file);
                    return Ok(searched);
                }
                searched.refused.push(candidate.clone());
            }
            searched.tried.push(candidate);
        }
        searched.refused.dedup();
        Ok(searched)
    }
}

/// Which build of a program a file is of, in hexadecimal digits: what its linker wrote into it. A separate
/// debug file has that of its program. `None`: the file has none, or can't be read.
#[must_use]
pub fn build_id(file: &File) -> Option<String> {
    Identity::of(file).ok()?.build_id.map(|id| hex(&id))
}

/// Where the debug file of a build is in a folder of such files, as `/usr/lib/debug`.
#[must_use]
pub fn place_of(build_id: &str) -> Option<PathBuf> {
    let (first, rest) = build_id.split_at_checked(2)?;
    let is_hex = build_id.bytes().all(|b| b.is_ascii_hexdigit());
    let file = format!("{rest}.debug");
    (is_hex && !rest.is_empty()).then(|| Path::new(".build-id").join(first).join(file))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Where it may be, in gdb's order.
fn candidates(identity: &Identity, program: &Path) -> Vec<PathBuf> {
    let mut candidates = Vec::new();
    let by_id = identity.build_id.as_deref().map(hex);
    if let Some(place) = by_id.and_then(|id| place_of(&id)) {
        candidates.push(Path::new(DEBUG_FOLDER).join(place));
    }
    // A name that is a path would lead where the program's author likes.
    let link = identity.debug_link.as_ref().map(|link| link.0.as_str());
    if let Some(name) = link.filter(|name| !name.contains('/') && !matches!(*name, "" | "." | ".."))
    {
        let folder = program.parent().unwrap_or(Path::new("/"));
        let inside = folder.strip_prefix("/").unwrap_or(folder);
        candidates.push(folder.join(name));
        candidates.push(folder.join(".debug").join(name));
        candidates.push(Path::new(DEBUG_FOLDER).join(inside).join(name));
    }
    candidates
}

fn is_same(one: &File, other: &File) -> bool {
    use std::os::unix::fs::MetadataExt;
    let key = |file: &File| file.metadata().ok().map(|found| (found.dev(), found.ino()));
    key(one) == key(other)
}

impl Identity {
    fn of(file: &File) -> io::Result<Self> {
        let elf = Elf::of(file)?;
        let notes = elf.sections().iter().filter(|s| s.kind == SHT_NOTE);
        let build_id = notes
            .filter_map(|section| elf.data(section, MOST_BYTES).ok())
            .find_map(|notes| build_id_in(&notes));
        let link = elf.section(".gnu_debuglink");
        let link = link.and_then(|section| elf.data(section, MOST_BYTES).ok());
        Ok(Self {
            build_id,
            debug_link: link.and_then(|bytes| debug_link_in(&bytes)),
        })
    }

    /// Whether debug symbols are of this build: by its id where both have one, else by the CRC.
    fn is_of(&self, debug: &File) -> bool {
        let Ok(own) = Self::of(debug) else {
            return false;
        };
        match (&own.build_id, &self.build_id, &self.debug_link) {
            (Some(own), Some(wanted), _) => own == wanted,
            (_, _, Some((_, crc))) => crc_of(debug).is_ok_and(|own| own == *crc),
            _ => false,
        }
    }
}

fn build_id_in(section: &[u8]) -> Option<Vec<u8>> {
    elf::notes_in(section)
        .filter(|note| note.name() == ELF_NOTE_GNU && note.n_type(LittleEndian) == NT_GNU_BUILD_ID)
        .map(|note| note.desc().to_vec())
        .find(|id| !id.is_empty())
}

/// The name and the CRC of the debug file: a string, zeros up to a multiple of four, the CRC.
fn debug_link_in(bytes: &[u8]) -> Option<(String, u32)> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    let at = (end + 1).next_multiple_of(4);
    let crc = u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?);
    Some((String::from_utf8_lossy(&bytes[..end]).into_owned(), crc))
}

/// The CRC-32 that `.gnu_debuglink` holds (polynomial 0xedb88320, as zlib's).
fn crc_of(file: &File) -> io::Result<u32> {
    let mut crc = crc32fast::Hasher::new();
    let mut bytes = vec![0; 1 << 16];
    let mut at = 0;
    if file.metadata()?.len() > MOST_CHECKED {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    loop {
        let count = file.read_at(&mut bytes, at)?;
        if count == 0 {
            return Ok(crc.finalize());
        }
        crc.update(&bytes[..count]);
        at += count as u64;
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_crc_is_zlibs() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(file.path(), b"123456789").expect("written");
        let read = File::open(file.path()).expect("there");
        assert_eq!(crc_of(&read).expect("read"), 0xcbf4_3926);
    }

    #[test]
    fn it_is_looked_for_by_the_build_id_then_by_the_link() {
        let mut identity = Identity {
            build_id: Some(vec![0xab, 0xcd, 0x01]),
            debug_link: Some(("p.debug".into(), 7)),
        };
        let shown = |identity: &Identity| -> Vec<String> {
            let all = candidates(identity, Path::new("/opt/bin/p")).into_iter();
            all.map(|path| path.display().to_string()).collect()
        };
        let by_id = "/usr/lib/debug/.build-id/ab/cd01.debug";
        let by_link = [
            "/opt/bin/p.debug",
            "/opt/bin/.debug/p.debug",
            "/usr/lib/debug/opt/bin/p.debug",
        ];
        assert_eq!(shown(&identity), [&[by_id], &by_link[..]].concat());
        for foreign in ["/etc/shadow", "../p.debug", "..", ""] {
            identity.debug_link = Some((foreign.into(), 7));
            assert_eq!(shown(&identity), [by_id], "{foreign}");
        }
    }

    fn run(folder: &Path, program: &str, arguments: &[&str]) {
        let done = Command::new(program)
            .args(arguments)
            .current_dir(folder)
            .status();
        assert!(done.expect(program).success(), "{program} {arguments:?}");
    }

    fn searched(folder: &Path) -> DebugFile {
        let path = folder.join("program");
        let program = File::open(&path).expect("there");
        DebugFile::of(&program, &path, Path::new("/")).expect("read")
    }

    /// A stripped program that links to its debug file, both in a folder of their own.
    fn split(build_id: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let here = folder.path();
        std::fs::write(here.join("program.c"), "int main(void) { return 0; }\n").expect("written");
        let build_id = format!("-Wl,--build-id={build_id}");
        run(here, "cc", &["-g", &build_id, "-o", "program", "program.c"]);
        run(
            here,
            "objcopy",
            &["--only-keep-debug", "program", "program.debug"],
        );
        run(here, "strip", &["program"]);
        run(
            here,
            "objcopy",
            &["--add-gnu-debuglink=program.debug", "program"],
        );
        folder
    }

    #[test]
    fn it_is_found_through_the_link_and_another_builds_is_refused() {
        for build_id in ["none", "0xabcdef0123456789"] {
            let folder = split(build_id);
            let here = folder.path();
            let found = searched(here);
            assert!(
                found.found.is_some() && found.refused.is_empty(),
                "{found:?}"
            );
            let debug = here.join("program.debug");
            run(
                here,
                "cc",
                &[
                    "-g",
                    "-Wl,--build-id=0x77",
                    "-o",
                    "program.debug",
                    "program.c",
                ],
            );
            let refused = searched(here);
            assert!(refused.found.is_none(), "{refused:?}");
            assert_eq!(refused.refused, std::slice::from_ref(&debug));
            std::fs::write(&debug, "no program").expect("written");
            assert_eq!(searched(here).refused, std::slice::from_ref(&debug));
            std::fs::remove_file(&debug).expect("removed");
            let none = searched(here);
            assert!(none.found.is_none() && none.refused.is_empty() && none.tried.len() >= 3);
        }
    }

    #[test]
    fn what_is_no_program_is_an_error() {
        let text = File::open("Cargo.toml").expect("the manifest");
        let error = DebugFile::of(&text, Path::new("/x"), Path::new("/")).expect_err("no program");
        assert!(error.to_string().contains("no 64-bit ELF"), "{error}");
    }
}
