//! Which file a `PATH` of `--span` means: as the recorded processes see it.

use std::collections::HashSet;
use std::env;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tailscope_process::rooted;

use crate::Process;

/// A program file that probes go into, held open so that it stays the same one.
#[derive(Debug)]
pub struct Located {
    /// Its path, for people: as its processes have it.
    pub shown: PathBuf,
    pub(crate) file: File,
    /// The root in whose files its debug symbols are looked for.
    pub(crate) root: PathBuf,
    /// Where the path leads at this moment, to see that it was replaced.
    followed: PathBuf,
    /// A process runs it, and another file is in its place.
    pub(crate) replaced: bool,
}

/// Device and inode.
type Key = (u64, u64);

impl Located {
    fn new(file: File, shown: &Path, root: &Path) -> Self {
        let inside = shown.strip_prefix("/").unwrap_or(shown);
        Self {
            file,
            shown: shown.to_owned(),
            root: root.to_owned(),
            followed: root.join(inside),
            replaced: false,
        }
    }

    /// A path that leads to this very file whatever happens to its name.
    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }

    fn key(&self) -> Option<Key> {
        self.file.metadata().ok().map(|m| (m.dev(), m.ino()))
    }

    /// Whether another file has taken its place since it was found.
    pub(crate) fn is_replaced_now(&self) -> bool {
        match fs::metadata(&self.followed) {
            Ok(now) => self.key().is_some_and(|key| key != (now.dev(), now.ino())),
            Err(e) => e.kind() == io::ErrorKind::NotFound,
        }
    }
}

/// The file that is meant, one for each different one that the processes have under that name.
/// `launched`: the program of the command that is about to start.
///
/// With a `/` it is a path, absolute ones as the processes see them. Without one it is the
/// program that a process runs, a library that it has mapped, or a program on the PATH.
pub(crate) fn locate(
    name: &str,
    processes: &[Process],
    launched: Option<&Path>,
) -> Result<Vec<Located>, String> {
    let mut found = if name.contains('/') {
        by_path(Path::new(name), processes)?
    } else {
        by_name(name, processes, launched)?
    };
    let mut seen = HashSet::new();
    found.retain(|located| located.key().is_some_and(|key| seen.insert(key)));
    Ok(found)
}

fn by_path(path: &Path, processes: &[Process]) -> Result<Vec<Located>, String> {
    let here = Path::new("/");
    if path.is_relative() {
        let real = path
            .canonicalize()
            .map_err(|e| format!("can't find {}: {e}", path.display()))?;
        return by_path(&real, &[]).map(|found| with_running(found, &real, processes));
    }
    let mut found = Vec::new();
    let mut failed = None;
    let mut roots: Vec<PathBuf> = processes.iter().map(Process::root).collect();
    roots.push(here.to_owned());
    for root in roots {
        match rooted::open(&root, path) {
            Ok(file) => found.push(Located::new(file, path, &root)),
            Err(e) => failed = Some(e),
        }
        // Ours counts only where no process has it.
        if found.len() == processes.len() && !processes.is_empty() {
            break;
        }
    }
    if found.len() > 1 {
        found.retain(|located| located.root != here);
    }
    let found = with_running(found, path, processes);
    match failed {
        Some(e) if found.is_empty() => Err(format!("can't open {}: {e}", path.display())),
        _ => Ok(found),
    }
}

/// Adds the files of that name which processes still run though others are in their place.
fn with_running(mut found: Vec<Located>, path: &Path, processes: &[Process]) -> Vec<Located> {
    for process in processes {
        for (mapped, handle) in process.deleted_files().unwrap_or_default() {
            if mapped.file_name() != path.file_name() {
                continue;
            }
            if let Ok(file) = rooted::follow(&handle) {
                let mut located = Located::new(file, path, &process.root());
                located.replaced = true;
                found.push(located);
            }
        }
    }
    found
}

fn by_name(
    name: &str,
    processes: &[Process],
    launched: Option<&Path>,
) -> Result<Vec<Located>, String> {
    let named = |path: &Path| {
        path.file_name()
            .and_then(|file| file.to_str())
            .is_some_and(|file| {
                file == name
                    || file
                        .strip_prefix(name)
                        .is_some_and(|rest| rest.starts_with(".so"))
            })
    };
    let mut found = Vec::new();
    for process in processes {
        let paths = process.mapped_paths().unwrap_or_default();
        for path in paths.iter().filter(|path| named(path)) {
            found.extend(by_path(path, std::slice::from_ref(process))?);
        }
        let deleted = process.deleted_files().unwrap_or_default();
        for path in deleted.keys().filter(|path| named(path)) {
            found.extend(with_running(
                Vec::new(),
                path,
                std::slice::from_ref(process),
            ));
        }
    }
    if let Some(program) = launched.filter(|program| named(program)) {
        found.extend(by_path(program, &[])?);
    }
    if found.is_empty() {
        let on_path = env::var_os("PATH").and_then(|folders| {
            env::split_paths(&folders)
                .map(|folder| folder.join(name))
                .find(|program| program.is_file())
        });
        match on_path {
            Some(program) => found.extend(by_path(&program, &[])?),
            None => {
                return Err(format!(
                    "can't find '{name}': no recorded process runs or maps a file of this name, and none is \
                     on the PATH; give its path (with a /)"
                ));
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn me() -> Process {
        Process {
            pid: std::process::id(),
        }
    }

    #[test]
    fn a_bare_name_is_what_a_process_runs() {
        let exe = fs::read_link("/proc/self/exe").expect("we have one");
        let name = exe
            .file_name()
            .and_then(|n| n.to_str())
            .expect("it has a name");
        let found = locate(name, &[me()], None).expect("we run it");
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].shown, exe);
        assert!(!found[0].is_replaced_now());
    }

    #[test]
    fn a_bare_name_is_a_library_without_its_version() {
        let found = locate("libc", &[me()], None).expect("tests are linked with libc");
        assert!(found[0].shown.to_string_lossy().contains("libc.so"));
    }

    #[test]
    fn a_path_is_the_file_there() {
        let found = locate("/bin/sh", &[me()], None).expect("it is there");
        assert_eq!(found.len(), 1);
        assert!(
            fs::read(found[0].path())
                .expect("held open")
                .starts_with(b"\x7fELF")
        );
    }

    #[test]
    fn what_is_not_there_is_said() {
        let error = locate("/no/such/file", &[], None).expect_err("it is not there");
        assert!(error.contains("/no/such/file"), "{error}");
        let error = locate("no-such-program", &[me()], None).expect_err("it is not there");
        assert!(
            error.contains("no-such-program") && error.contains("PATH"),
            "{error}"
        );
    }

    #[test]
    fn a_file_that_gives_way_to_another_is_seen() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("program");
        fs::copy("/bin/true", &path).expect("copied");
        let located = locate(path.to_str().expect("plain"), &[], None).expect("there");
        assert!(!located[0].is_replaced_now());
        fs::remove_file(&path).expect("ours");
        assert!(located[0].is_replaced_now());
        fs::copy("/bin/true", &path).expect("copied again");
        assert!(located[0].is_replaced_now());
    }
}
