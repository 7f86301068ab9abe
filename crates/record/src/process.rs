//! The processes that can be recorded, as `/proc` shows them.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::PathBuf;

use tailscope_process::maps::{self, CodeFile};
use tailscope_symbols::sdk::{Address, SdkFile};

/// A process that can be recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its id, as `/proc` shows it here.
    pub pid: u32,
}

/// A process can't be recorded.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProcessError {
    /// There is none of that id.
    #[error("there is no process {0}: it has ended, or the number is wrong")]
    Gone(u32),
    /// The id is that of a thread.
    #[error("{tid} is a thread of process {pid}: record the whole process with -p {pid}")]
    Thread {
        /// What was given.
        tid: u32,
        /// Whose thread it is.
        pid: u32,
    },
    /// It belongs to somebody else.
    #[error(
        "process {pid} belongs to user {owner}, not to you: run as root, or grant CAP_SYS_PTRACE"
    )]
    NotOurs {
        /// The process.
        pid: u32,
        /// Its user id.
        owner: u32,
    },
    /// It is part of the kernel.
    #[error("{0} is a kernel thread, which has no requests; name a server's process")]
    Kernel(u32),
}

fn field<'t>(status: &'t str, name: &str) -> Option<&'t str> {
    status
        .lines()
        .find_map(|line| line.strip_prefix(name)?.split_whitespace().next())
}

impl Process {
    /// Finds a process and checks that it may be recorded. `others_too`: whether this user may
    /// look at other users' processes.
    pub fn find(pid: u32, others_too: bool) -> Result<Self, ProcessError> {
        let status = fs::read_to_string(format!("/proc/{pid}/status"))
            .map_err(|_| ProcessError::Gone(pid))?;
        let number = |name| field(&status, name).and_then(|text| text.parse::<u32>().ok());
        match number("Tgid:") {
            Some(group) if group != pid => {
                return Err(ProcessError::Thread {
                    tid: pid,
                    pid: group,
                });
            }
            Some(_) => {}
            None => return Err(ProcessError::Gone(pid)),
        }
        if field(&status, "VmSize:").is_none() {
            let zombie = field(&status, "State:") == Some("Z");
            return Err(if zombie {
                ProcessError::Gone(pid)
            } else {
                ProcessError::Kernel(pid)
            });
        }
        let owner = number("Uid:").unwrap_or(0);
        if !others_too && owner != rustix::process::geteuid().as_raw() {
            return Err(ProcessError::NotOurs { pid, owner });
        }
        Ok(Self { pid })
    }

    /// Whether it still runs.
    #[must_use]
    pub fn lives(&self) -> bool {
        Self::find(self.pid, true).is_ok()
    }

    /// Its children, their children, and so on, as far as they are there now.
    #[must_use]
    pub fn descendants(&self) -> Vec<Self> {
        Self::descendants_of(&[self.pid])
    }

    /// Those of several processes, at the price of one look at the machine's processes.
    #[must_use]
    pub fn descendants_of(roots: &[u32]) -> Vec<Self> {
        let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
        for pid in all_processes() {
            let parent = fs::read_to_string(format!("/proc/{pid}/status"))
                .ok()
                .and_then(|status| field(&status, "PPid:")?.parse().ok());
            if let Some(parent) = parent {
                children.entry(parent).or_default().push(pid);
            }
        }
        let mut found = Vec::new();
        let mut next = roots.to_vec();
        while let Some(parent) = next.pop() {
            for child in children.remove(&parent).unwrap_or_default() {
                // Started from the shell that it records, the recorder is no part of it.
                if child != std::process::id() {
                    next.push(child);
                    found.push(Self { pid: child });
                }
            }
        }
        found
    }

    /// Whether a file whose code it has mapped has the SDK in it.
    #[must_use]
    pub fn has_sdk(&self) -> bool {
        self.code_files()
            .unwrap_or_default()
            .iter()
            .filter_map(|file| file.open().ok())
            .any(|file| {
                matches!(
                    SdkFile::read(file, PathBuf::new(), Address::First),
                    Ok(Some(_))
                )
            })
    }

    /// The root of the files that it sees.
    #[must_use]
    pub fn root(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root", self.pid))
    }

    /// The files whose code it has mapped, by their names in its own files.
    pub(crate) fn mapped_paths(&self) -> io::Result<Vec<PathBuf>> {
        let mut paths: Vec<PathBuf> = maps::code(self.pid)?
            .iter()
            .filter(|mapping| !mapping.is_deleted())
            .map(|mapping| mapping.name().to_owned())
            .collect();
        paths.sort_unstable();
        paths.dedup();
        Ok(paths)
    }

    /// Those of them whose names lead elsewhere by now, each with a path that leads to it still.
    pub(crate) fn deleted_files(&self) -> io::Result<HashMap<PathBuf, PathBuf>> {
        Ok(maps::code(self.pid)?
            .iter()
            .filter(|mapping| mapping.is_deleted())
            .map(|mapping| (mapping.name().to_owned(), mapping.link(self.pid)))
            .collect())
    }

    /// The files whose code it has mapped.
    pub fn code_files(&self) -> io::Result<Vec<CodeFile>> {
        maps::code_files(self.pid)
    }
}

fn all_processes() -> Vec<u32> {
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_can_be_found() {
        let me = Process::find(std::process::id(), false).expect("we live");
        assert!(me.lives());
        assert!(!me.code_files().expect("our own maps").is_empty());
    }

    #[test]
    fn a_pid_beyond_all_is_gone() {
        assert_eq!(
            Process::find(u32::MAX, true),
            Err(ProcessError::Gone(u32::MAX))
        );
    }

    #[test]
    fn a_thread_is_not_a_process() {
        let tid = std::thread::spawn(|| {
            let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
            (tid, Process::find(tid, true))
        });
        let (tid, found) = tid.join().expect("the thread ends");
        assert_eq!(
            found,
            Err(ProcessError::Thread {
                tid,
                pid: std::process::id()
            })
        );
    }

    #[test]
    fn children_are_descendants() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .expect("sleep is there");
        let me = Process {
            pid: std::process::id(),
        };
        assert!(me.descendants().contains(&Process { pid: child.id() }));
        child.kill().expect("our child");
        child.wait().expect("our child");
    }
}
