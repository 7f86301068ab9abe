//! What is on disk about those who lend: so that nothing is left behind, and for `status` and `stop`.
//!
//! Each keeper has a file `PID.json`, written before it makes anything. Its borrower writes the
//! figures into `PID.status` once a second. Both are removed at the end.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use tailscope_output::Folder;
use tailscope_process::owner::start_of;

use crate::BorrowError;
use crate::error::doing;
use crate::groups::Groups;
use crate::members::{has_mark, marked, signal};

/// Another folder for these files.
const FOLDER_VARIABLE: &str = "TAILSCOPE_BORROW_STATE";
/// How long what is left may take to end.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a borrower may take to end when it is asked.
const STOP_PATIENCE: Duration = Duration::from_secs(10);

/// A process that can't be mistaken for a later one of the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Its number.
    pub pid: u32,
    /// When it began, in ticks since the machine did.
    pub start: u64,
}

impl Identity {
    /// Of a process that runs, or that has ended and was not waited for.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        start_of(pid).map(|start| Self { pid, start })
    }

    /// Whether it runs.
    #[must_use]
    pub fn lives(&self) -> bool {
        Self::of(self.pid) == Some(*self) && !has_ended(self.pid)
    }
}

/// Whether a process has ended, and only its parent has not taken note yet.
fn has_ended(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit_once(')').map(|(_, fields)| fields.trim_start());
    fields.is_none_or(|fields| fields.starts_with(['Z', 'X']))
}

/// One batch command that runs, or that was left behind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Who lends.
    pub borrower: Identity,
    /// Who keeps the batch.
    pub keeper: Identity,
    /// The server.
    pub server: u32,
    /// The batch command.
    pub command: Vec<String>,
    pub(crate) mark: String,
    pub(crate) groups: Option<Groups>,
}

/// The folder of the files.
#[must_use]
pub fn folder() -> PathBuf {
    if let Some(folder) = std::env::var_os(FOLDER_VARIABLE) {
        return folder.into();
    }
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(folder) if !rustix::process::geteuid().is_root() => {
            Path::new(&folder).join("tailscope-borrow")
        }
        _ => "/run/tailscope-borrow".into(),
    }
}

impl Entry {
    fn path(&self) -> PathBuf {
        folder().join(format!("{}.json", self.keeper.pid))
    }

    /// The file with the latest figures.
    #[must_use]
    pub fn status_path(&self) -> PathBuf {
        folder().join(format!("{}.status", self.keeper.pid))
    }

    /// Writes it, in a folder that only this user may write to.
    pub(crate) fn write(&self) -> Result<(), BorrowError> {
        let folder = folder();
        let failed = format!("write the state file in {}", folder.display());
        Folder::make(&folder).map_err(doing(&*failed))?;
        let json = serde_json::to_vec(self).map_err(|e| BorrowError::Machine(e.to_string()))?;
        tailscope_output::write(&self.path(), json).map_err(doing(failed))
    }

    pub(crate) fn remove(&self) {
        let _ = fs::remove_file(self.path());
        let _ = fs::remove_file(self.status_path());
    }

    /// Whether it is still written down.
    pub(crate) fn is_there(&self) -> bool {
        self.path().exists()
    }

    /// Whether somebody looks after the batch.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.keeper.lives()
    }

    /// Ends all processes of the batch and removes its groups; whether nothing is left.
    pub(crate) fn clear(&self) -> bool {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let in_groups = self.groups.as_ref().filter(|groups| groups.are_ours());
            in_groups.iter().for_each(|groups| groups.kill());
            let inside = in_groups.map_or_else(Vec::new, Groups::processes);
            for pid in &inside {
                signal(*pid, Signal::KILL, |pid| {
                    in_groups.is_some_and(|groups| groups.has(pid))
                });
            }
            let marked = marked(&self.mark);
            for pid in &marked {
                signal(*pid, Signal::KILL, |pid| has_mark(pid, &self.mark));
            }
            in_groups.iter().for_each(|groups| groups.hurry());
            let removed = self.groups.as_ref().is_none_or(Groups::remove);
            if inside.is_empty() && marked.is_empty() && removed {
                self.remove();
                return true;
            }
            if Instant::now() > deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// All that lend now, and all that was left behind.
#[must_use]
pub fn entries() -> Vec<Entry> {
    let files = fs::read_dir(folder()).into_iter().flatten();
    let mut entries: Vec<Entry> = files
        .filter_map(|file| {
            let path = file.ok()?.path();
            let is_entry = path.extension().is_some_and(|kind| kind == "json");
            serde_json::from_slice(&fs::read(path).ok().filter(|_| is_entry)?).ok()
        })
        .collect();
    entries.sort_by_key(|entry| entry.keeper.pid);
    entries
}

/// Ends what was left behind when borrower and keeper were both killed. What was ended, and what
/// could not be.
#[must_use]
pub fn restore() -> (Vec<Entry>, Vec<Entry>) {
    entries()
        .into_iter()
        .filter(|entry| !entry.is_kept())
        .partition(Entry::clear)
}

/// Asks a borrower to end, and waits until its batch is gone.
///
/// # Errors
/// If it goes on.
pub fn stop(entry: &Entry) -> Result<(), BorrowError> {
    let borrower = entry.borrower;
    signal(borrower.pid, Signal::TERM, |_| borrower.lives());
    let deadline = Instant::now() + STOP_PATIENCE;
    while entry.is_kept() || borrower.lives() {
        if Instant::now() > deadline {
            return Err(BorrowError::Machine(format!(
                "process {} has not ended {} s after SIGTERM; end it with SIGKILL, which ends its batch too",
                borrower.pid,
                STOP_PATIENCE.as_secs()
            )));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_not_mistaken_for_another_of_its_number() {
        let us = Identity::of(std::process::id()).expect("we live");
        assert!(us.lives());
        let earlier = Identity {
            start: us.start + 1,
            ..us
        };
        assert!(!earlier.lives());
    }
}
