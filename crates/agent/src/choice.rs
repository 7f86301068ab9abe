//! Which processes are recorded.

use std::cell::OnceCell;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// Fits a process that is all that it says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rule {
    /// Its name, as `ps -o comm` shows it.
    name: Option<String>,
    /// The program that it runs, as it sees that itself.
    exe: Option<PathBuf>,
    /// Where that leads to on this machine, if it is a link, as `/usr/bin/java` is.
    #[serde(skip)]
    led_to: OnceCell<Option<PathBuf>>,
    /// The systemd unit that it belongs to: the last part of its control group's path, or one
    /// before it.
    unit: Option<String>,
    pid: Option<u32>,
}

/// A process, of which only what is asked for is read.
pub(crate) struct Facts {
    pub(crate) pid: u32,
    name: OnceCell<Option<String>>,
    exe: OnceCell<Option<PathBuf>>,
    cgroup: OnceCell<Option<String>>,
}

/// The kernel cuts names to this.
const LONGEST_NAME: usize = 15;

impl Facts {
    pub(crate) fn of(pid: u32) -> Self {
        Self {
            pid,
            name: OnceCell::new(),
            exe: OnceCell::new(),
            cgroup: OnceCell::new(),
        }
    }

    pub(crate) fn name(&self) -> Option<&str> {
        let read = || fs::read_to_string(format!("/proc/{}/comm", self.pid)).ok();
        let name = self.name.get_or_init(read).as_deref()?;
        Some(name.strip_suffix('\n').unwrap_or(name))
    }

    fn exe(&self) -> Option<&PathBuf> {
        let read = || fs::read_link(format!("/proc/{}/exe", self.pid)).ok();
        self.exe.get_or_init(read).as_ref()
    }

    fn cgroup(&self) -> Option<&str> {
        let read = || fs::read_to_string(format!("/proc/{}/cgroup", self.pid)).ok();
        self.cgroup.get_or_init(read).as_deref()
    }
}

impl Rule {
    /// What it can't say.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self == &Self::default() {
            return Err("this [[process]] says nothing: give it a name, exe, unit or pid".into());
        }
        if self.unit.as_deref() == Some("") {
            return Err("no unit has an empty name".into());
        }
        if self.pid == Some(0) {
            return Err("no process has the id 0".into());
        }
        match &self.name {
            Some(name) if name.len() > LONGEST_NAME => Err(format!(
                "'{name}' is longer than the {LONGEST_NAME} bytes that the kernel keeps of a name: use '{}', or exe",
                name.chars().take(LONGEST_NAME).collect::<String>()
            )),
            Some(name) if name.is_empty() => Err("no process has an empty name".into()),
            _ => Ok(()),
        }?;
        match &self.exe {
            Some(exe) if !exe.is_absolute() => Err(format!(
                "'{}' is no whole path, and a program is known by that: use /usr/sbin/…, or name",
                exe.display()
            )),
            _ => Ok(()),
        }
    }

    pub(crate) fn fits(&self, facts: &Facts) -> bool {
        // The cheap first.
        self.pid.is_none_or(|pid| pid == facts.pid)
            && self
                .name
                .as_deref()
                .is_none_or(|name| facts.name() == Some(name))
            && self.exe.as_ref().is_none_or(|exe| self.names(exe, facts))
            && self
                .unit
                .as_deref()
                .is_none_or(|unit| facts.cgroup().is_some_and(|cgroup| is_in(cgroup, unit)))
    }

    /// Whether a process runs the program of this path, or did before another took its place there.
    fn names(&self, path: &Path, facts: &Facts) -> bool {
        let Some(exe) = facts.exe() else {
            return false; // a thread of the kernel's own
        };
        let text = exe.as_os_str().as_bytes();
        let shown = OsStr::from_bytes(text.strip_suffix(b" (deleted)").unwrap_or(text));
        let is_at = |path: &Path| path == exe || path == Path::new(shown);
        let led_to = self.led_to.get_or_init(|| fs::canonicalize(path).ok());
        is_at(path) || led_to.as_deref().is_some_and(is_at)
    }

    /// The program that it names, to be known before a process runs it.
    pub(crate) fn exe(&self) -> Option<&PathBuf> {
        self.exe.as_ref()
    }
}

/// Whether a path in the text of `/proc/PID/cgroup` has this unit in it.
fn is_in(cgroup: &str, unit: &str) -> bool {
    cgroup
        .lines()
        .filter_map(|line| line.splitn(3, ':').nth(2))
        .any(|path| path.split('/').any(|part| part == unit))
}

/// Every process there is.
pub(crate) fn everybody() -> impl Iterator<Item = u32> {
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_rule_fits_a_process_that_is_all_that_it_says() {
        let me = Facts::of(std::process::id());
        let exe = std::env::current_exe().ok();
        let name = me.name().map(str::to_owned);
        let by_name = Rule {
            name,
            ..Rule::default()
        };
        assert!(by_name.fits(&me));
        let by_both = Rule {
            exe: exe.clone(),
            ..by_name.clone()
        };
        assert!(by_both.fits(&me));
        let other = Rule {
            exe: Some("/bin/false".into()),
            ..by_name
        };
        assert!(!other.fits(&me));
        assert!(!by_both.fits(&Facts::of(u32::MAX)));
    }

    #[test]
    fn a_program_is_known_through_links_and_when_another_has_taken_its_place() {
        let home = tempfile::tempdir().expect("a folder");
        let [program, link, other] =
            ["program", "link", "other"].map(|name| home.path().join(name));
        fs::copy("/bin/sleep", &program).expect("copied");
        fs::copy("/bin/sleep", &other).expect("copied");
        std::os::unix::fs::symlink(&program, &link).expect("linked");
        let mut sleeping = Command::new(&program).arg("60").spawn().expect("it starts");
        let facts = || Facts::of(sleeping.id());
        let by = |exe: &Path| Rule {
            exe: Some(exe.to_owned()),
            ..Rule::default()
        };
        let seen = [&program, &link, &other].map(|exe| by(exe).fits(&facts()));
        fs::rename(&other, &program).expect("replaced");
        let replaced = by(&program).fits(&facts());
        sleeping.kill().expect("it runs");
        sleeping.wait().expect("it ends");
        assert_eq!((seen, replaced), ([true, true, false], true));
    }

    #[test]
    fn a_unit_is_a_part_of_the_path() {
        let cgroup = "1:name=systemd:/x\n0::/system.slice/postgresql@15-main.service/sub\n";
        assert!(is_in(cgroup, "postgresql@15-main.service"));
        assert!(is_in(cgroup, "system.slice"));
        assert!(!is_in(cgroup, "postgresql"));
    }
}
