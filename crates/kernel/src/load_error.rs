//! Why this machine, or this person, can't load the programs.

use std::io;

/// A capability that is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// Its name, as `capabilities(7)` has it.
    pub name: &'static str,
    /// What for.
    pub purpose: &'static str,
}

/// Processes can't be named by their numbers here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NamespaceError {
    /// `/proc` and system calls number processes differently.
    #[error(
        "/proc shows another PID namespace, so its process ids are not valid here; mount this \
         namespace's own /proc (mount -t proc proc /proc, unshare --mount-proc), or run in the \
         namespace that /proc shows (nsenter --pid, docker run --pid=host)"
    )]
    OtherProc,
}

/// This machine, or this person, can't.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A privilege is missing.
    #[error("can't {}: {} missing", purposes(.0), names(.0))]
    Privilege(Vec<Missing>),
    /// The capabilities that there are count only inside a user namespace.
    #[error(
        "can't load eBPF programs: this process is in a user namespace, where not even root may do \
         so; run it in the initial user namespace: on the host, or in a container without one \
         (docker run --privileged --userns=host, podman as root)"
    )]
    UserNamespace,
    /// Processes can't be named by their numbers.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// The kernel does not describe its own types.
    #[error(
        "can't load eBPF programs: this kernel has no type information at /sys/kernel/btf/vmlinux; \
         use a kernel with CONFIG_DEBUG_INFO_BTF"
    )]
    NoBtf,
    /// A hook without which nothing can be measured is not there.
    #[error("can't measure: this kernel has no tracepoint {0}; use Linux 6.1 or newer")]
    NoTracepoint(&'static str),
    /// The kernel rejected the programs.
    #[error("can't {what}: {source}")]
    Kernel {
        /// What was tried.
        what: &'static str,
        /// What libbpf said.
        source: libbpf_rs::Error,
    },
    /// A system call failed.
    #[error("can't {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

fn names(missing: &[Missing]) -> String {
    missing
        .iter()
        .map(|m| m.name)
        .collect::<Vec<_>>()
        .join(", ")
}

fn purposes(missing: &[Missing]) -> String {
    missing
        .iter()
        .map(|m| m.purpose)
        .collect::<Vec<_>>()
        .join(", ")
}

pub(crate) fn kernel(what: &'static str) -> impl FnOnce(libbpf_rs::Error) -> LoadError {
    move |source| LoadError::Kernel { what, source }
}
