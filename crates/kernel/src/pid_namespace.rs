//! The PID namespace of this process, whose numbers users and `/proc` have here.
//!
//! The kernel's programs see the numbers of the initial namespace. Inside another one they
//! translate (`bpf/pid_namespace.h`), so that all numbers on this side are the namespace's own.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;

use libbpf_rs::{Iter, Link, Object, ObjectBuilder, OpenObject, ProgramInput};

use crate::load_error::{LoadError, NamespaceError, kernel};
use crate::object::program;
use crate::shared::{self, Plain};
use crate::watch_error::{self, WatchError};

static OWN_LEVEL: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/own_level.bpf.o"));

/// Inodes of the initial namespaces (PROC_PID_INIT_INO and PROC_USER_INIT_INO of the kernel).
const INITIAL_PID: u64 = 0xEFFF_FFFC;
const INITIAL_USER: u64 = 0xEFFF_FFFD;

/// Which PID namespace this process is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PidNamespace {
    /// The initial one: numbers are the kernel's.
    Initial,
    /// One inside it, as containers have: the kernel's programs translate.
    Nested {
        /// The inode of `/proc/self/ns/pid`.
        inum: u32,
    },
}

impl PidNamespace {
    /// This process's.
    ///
    /// # Errors
    /// If `/proc` shows the processes of another one.
    pub fn here() -> Result<Self, NamespaceError> {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let inode = fs::metadata("/proc/self/ns/pid").map(|file| file.ino());
        Self::judge(&status, inode.ok())
    }

    /// `status`: of `/proc/self/status`, empty where `/proc` does not show this process.
    fn judge(status: &str, inode: Option<u64>) -> Result<Self, NamespaceError> {
        if status.is_empty() {
            return Err(NamespaceError::OtherProc);
        }
        // One number for each namespace from that of /proc down to ours.
        let numbers = status
            .lines()
            .find_map(|line| line.strip_prefix("NSpid:"))
            .map_or(1, |numbers| numbers.split_whitespace().count());
        if numbers > 1 {
            return Err(NamespaceError::OtherProc);
        }
        Ok(match inode {
            Some(INITIAL_PID) | None => Self::Initial,
            Some(inode) => Self::Nested { inum: inode as u32 },
        })
    }

    /// What the programs must know of it.
    pub(crate) fn config(self) -> Result<shared::pid_namespace_config, LoadError> {
        Ok(match self {
            Self::Initial => shared::pid_namespace_config::default(),
            Self::Nested { inum } => shared::pid_namespace_config {
                level: own_level()?,
                inum,
            },
        })
    }
}

/// Whether this process is in a user namespace whose capabilities load no programs. They do where
/// the kernel was told so, by a BPF token.
pub(crate) fn user_namespace_refuses() -> bool {
    let inside = fs::metadata("/proc/self/ns/user").is_ok_and(|file| file.ino() != INITIAL_USER);
    let refused = |e: libbpf_rs::Error| e.kind() == libbpf_rs::ErrorKind::PermissionDenied;
    inside && level_program().is_err_and(refused)
}

fn level_program() -> libbpf_rs::Result<Object> {
    ObjectBuilder::default()
        .open_memory(OWN_LEVEL)
        .and_then(OpenObject::load)
}

fn own_level() -> Result<u32, LoadError> {
    let what = "find out the level of this PID namespace";
    let mut object = level_program().map_err(kernel(what))?;
    let run = program(&mut object, "own_level").test_run(ProgramInput::default());
    match run.map_err(kernel(what))?.return_value {
        0 => Err(LoadError::System {
            what,
            source: io::Error::other("the kernel says that it is the initial one"),
        }),
        level => Ok(level),
    }
}

/// Tells programs that are not loaded yet.
pub(crate) fn configure(
    open: &mut OpenObject,
    namespace: &shared::pid_namespace_config,
) -> Result<(), LoadError> {
    open.maps_mut()
        .find(|map| map.name() == ".rodata.namespace")
        .unwrap_or_else(|| unreachable!("see src/bpf/pid_namespace.h"))
        .set_initial_value(namespace.as_bytes())
        .map_err(kernel("configure the programs' PID namespace"))
}

/// The kernel's numbers of the processes that this namespace shows.
pub(crate) enum Numbers {
    /// They are the same.
    Same,
    /// An iterator lists both.
    Listed(Link),
}

impl Numbers {
    /// Those for loaded programs.
    pub(crate) fn of(object: &mut Object, level: u32) -> Result<Self, LoadError> {
        if level == 0 {
            return Ok(Self::Same);
        }
        program(object, "list_processes")
            .attach()
            .map(Self::Listed)
            .map_err(kernel("attach the iterator over processes"))
    }

    /// The kernel's number of a process; `None`: there is no such process any more.
    pub(crate) fn kernels(&self, shown: u32) -> libbpf_rs::Result<Option<u32>> {
        let Self::Listed(link) = self else {
            return Ok(Some(shown));
        };
        let mut bytes = Vec::new();
        Iter::new(link)?
            .read_to_end(&mut bytes)
            .map_err(libbpf_rs::Error::from)?;
        Ok(bytes
            .chunks_exact(size_of::<shared::process_numbers>())
            .filter_map(shared::process_numbers::from_bytes)
            .find_map(|of| (of.shown == shown).then_some(of.kernel)))
    }
}

/// The number by which the programs know a process. `None`: it has ended.
pub(crate) fn kernels_number(numbers: &Numbers, pid: u32) -> Result<Option<u32>, WatchError> {
    let number = numbers.kernels(pid);
    number.map_err(watch_error::kernel(
        "find the process in the initial PID namespace",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const INNER: u64 = 4_026_532_500;

    #[test]
    fn a_namespace_is_nested_if_its_inode_is_not_the_initial_ones() {
        let status = "Name:\tx\nNSpid:\t7\n";
        let judge = |inode| PidNamespace::judge(status, Some(inode));
        assert_eq!(judge(INITIAL_PID), Ok(PidNamespace::Initial));
        let inum = INNER as u32;
        assert_eq!(judge(INNER), Ok(PidNamespace::Nested { inum }));
    }

    #[test]
    fn a_proc_of_another_namespace_is_refused() {
        let above = "Name:\tx\nNSpid:\t4711\t7\n";
        for (status, inode) in [(above, Some(INNER)), ("", None)] {
            let judged = PidNamespace::judge(status, inode);
            assert_eq!(judged, Err(NamespaceError::OtherProc), "{status:?}");
        }
    }

    #[test]
    fn a_kernel_without_namespaces_has_one() {
        let judged = PidNamespace::judge("Name:\tx\n", None);
        assert_eq!(judged, Ok(PidNamespace::Initial));
    }
}
