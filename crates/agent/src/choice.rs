//! Which processes are recorded.

mod program;
#[cfg(test)]
mod tests;
mod unit;
mod user;

use std::cell::OnceCell;
use std::fs;
use std::path::PathBuf;

use serde::Deserialize;

use program::Program;
use user::User;

/// Fits a process that is all that it says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rule {
    /// Its name, as `ps -o comm` shows it. Anybody's process may have any name.
    name: Option<String>,
    /// The file that it runs, by a path of the host or of its own root: see `Program::is_at`.
    exe: Option<PathBuf>,
    /// The systemd unit that it belongs to, or its control group's whole path: see `unit::is_in`.
    unit: Option<String>,
    /// Who started it.
    user: Option<User>,
    pid: Option<u32>,
}

/// A process, of which only what is asked for is read.
pub(crate) struct Facts {
    pub(crate) pid: u32,
    name: OnceCell<Option<String>>,
    program: OnceCell<Option<Program>>,
    cgroup: OnceCell<Option<String>>,
    user: OnceCell<Option<u32>>,
}

/// The kernel cuts names to this.
const LONGEST_NAME: usize = 15;

impl Facts {
    pub(crate) fn of(pid: u32) -> Self {
        Self {
            pid,
            name: OnceCell::new(),
            program: OnceCell::new(),
            cgroup: OnceCell::new(),
            user: OnceCell::new(),
        }
    }

    pub(crate) fn name(&self) -> Option<&str> {
        let read = || fs::read_to_string(format!("/proc/{}/comm", self.pid)).ok();
        let name = self.name.get_or_init(read).as_deref()?;
        Some(name.strip_suffix('\n').unwrap_or(name))
    }

    fn program(&self) -> Option<&Program> {
        let read = || Program::of(self.pid);
        self.program.get_or_init(read).as_ref()
    }

    fn cgroup(&self) -> Option<&str> {
        let read = || fs::read_to_string(format!("/proc/{}/cgroup", self.pid)).ok();
        self.cgroup.get_or_init(read).as_deref()
    }

    fn user(&self) -> Option<u32> {
        *self.user.get_or_init(|| user::of(self.pid))
    }
}

impl Rule {
    /// What it can't say.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self == &Self::default() {
            return Err("this [[process]] is empty; add name, exe, unit, user or pid".into());
        }
        if self.unit.as_deref() == Some("") {
            return Err("the unit's name is empty".into());
        }
        if self.pid == Some(0) {
            return Err("0 is not a process id".into());
        }
        match &self.name {
            Some(name) if name.len() > LONGEST_NAME => Err(format!(
                "'{name}' is too long: the kernel keeps {LONGEST_NAME} bytes of a name; use '{}', or exe",
                name.chars().take(LONGEST_NAME).collect::<String>()
            )),
            Some(name) if name.is_empty() => Err("the process name is empty".into()),
            _ => Ok(()),
        }?;
        match &self.exe {
            Some(exe) if !exe.is_absolute() => Err(format!(
                "'{}' is not an absolute path; write one, such as /usr/sbin/…, or use name",
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
            && self
                .user
                .as_ref()
                .is_none_or(|user| facts.user() == Some(user.number()))
            && self
                .unit
                .as_deref()
                .is_none_or(|unit| facts.cgroup().is_some_and(|text| unit::is_in(text, unit)))
            && self
                .exe
                .as_ref()
                .is_none_or(|exe| facts.program().is_some_and(|program| program.is_at(exe)))
    }

    /// The program that it names, to be known before a process runs it.
    pub(crate) fn exe(&self) -> Option<&PathBuf> {
        self.exe.as_ref()
    }
}

/// Every process there is.
pub(crate) fn everybody() -> impl Iterator<Item = u32> {
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}
