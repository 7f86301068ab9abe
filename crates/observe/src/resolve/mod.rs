//! From the name of a signal to where it is in memory.

mod channel;
mod code;
mod core;
mod counter;
mod hsperf;
mod kernel;
mod lines;
mod maps;
mod mem;
mod places;
mod symbol;

use std::io;
use std::sync::Arc;

pub use code::Functions;
pub use places::Places;
pub(crate) use places::method;

use tailscope_signals::moved::MovedPage;
use tailscope_signals::nearest::nearest;

use crate::name::Name;
use crate::process::Owner;
use crate::signal::Signal;

/// A signal can't be read.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// There is no such process.
    #[error("{signal}: there is no process {pid}: it has ended, or the number is wrong")]
    Gone {
        /// The signal.
        signal: String,
        /// The process.
        pid: u32,
    },
    /// The process has nothing of that name.
    #[error("{signal}: process {pid} ({program}) has no {what} of that name{}", suggestion(.near, .have))]
    Unknown {
        /// The signal.
        signal: String,
        /// The process.
        pid: u32,
        /// Its name.
        program: String,
        /// What was looked for.
        what: &'static str,
        /// Names like it.
        near: Vec<String>,
        /// How many there are.
        have: usize,
    },
    /// The process has none of that kind at all.
    #[error("{signal}: {why}")]
    None {
        /// The signal.
        signal: String,
        /// What is missing, and what to do.
        why: String,
    },
    /// This machine has nothing of that kind, or does not let it be used.
    #[error("{signal}: {why}")]
    Machine {
        /// The signal.
        signal: String,
        /// What is missing, and what to do.
        why: String,
    },
    /// The system refused.
    #[error("{signal}: can't {what}: {source}{}", remedy(.source))]
    System {
        /// The signal.
        signal: String,
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

fn suggestion(near: &[String], have: &usize) -> String {
    match (near, have) {
        ([], 0) => String::new(),
        ([], have) => format!(" among its {have}"),
        (near, _) => format!(" (is it {}?)", near.join(", ")),
    }
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "; another user's process can be observed by root, or with CAP_SYS_PTRACE"
        }
        _ => "",
    }
}

/// What the resolvers of all kinds are given.
struct Wanted {
    /// As it was asked for.
    signal: String,
    owner: Arc<Owner>,
}

impl Wanted {
    fn unknown<'n>(
        &self,
        what: &'static str,
        name: &str,
        names: impl IntoIterator<Item = &'n str>,
    ) -> ResolveError {
        let names: Vec<&str> = names.into_iter().collect();
        ResolveError::Unknown {
            signal: self.signal.clone(),
            pid: self.owner.pid,
            program: self.owner.name.clone(),
            what,
            have: names.len(),
            near: nearest(name, names)
                .into_iter()
                .map(str::to_owned)
                .collect(),
        }
    }

    fn none(&self, why: impl Into<String>) -> ResolveError {
        ResolveError::None {
            signal: self.signal.clone(),
            why: why.into(),
        }
    }

    fn machine(&self, why: impl Into<String>) -> ResolveError {
        ResolveError::Machine {
            signal: self.signal.clone(),
            why: why.into(),
        }
    }

    fn system(&self, what: &'static str) -> impl Fn(io::Error) -> ResolveError {
        let signal = self.signal.clone();
        move |source| ResolveError::System {
            signal: signal.clone(),
            what,
            source,
        }
    }
}

/// Finds signals, each process once.
#[derive(Default)]
pub struct Resolver {
    owners: Vec<Arc<Owner>>,
    programs: kernel::Programs,
    /// Those that were moved, each once.
    pages: Vec<Arc<MovedPage>>,
}

impl Resolver {
    /// The signal of that name.
    pub fn resolve(&mut self, name: &Name) -> Result<Signal, ResolveError> {
        let pid = match name {
            Name::Channel { pid, .. }
            | Name::Hsperf { pid, .. }
            | Name::Mem { pid, .. }
            | Name::Counter { pid, .. }
            | Name::Meter { pid, .. } => pid,
            Name::Running { cpu } => return self.programs.running(name.to_string(), *cpu),
            Name::Core { event, .. } => return core::resolve(name.to_string(), event),
        };
        let wanted = Wanted {
            signal: name.to_string(),
            owner: self.owner(*pid, name)?,
        };
        match name {
            Name::Channel { name, .. } => channel::resolve(&wanted, name),
            Name::Hsperf { name, .. } => hsperf::resolve(&wanted, name),
            Name::Mem {
                symbol,
                offset,
                moved,
                ..
            } => mem::resolve(&wanted, (symbol.as_str(), *offset), *moved, &mut self.pages),
            Name::Counter { tid, event, .. } => counter::resolve(&wanted, *tid, event),
            Name::Meter { tid, cause, .. } => self.programs.meter(&wanted, *tid, *cause),
            Name::Running { .. } | Name::Core { .. } => unreachable!("answered above"),
        }
    }

    fn owner(&mut self, pid: u32, name: &Name) -> Result<Arc<Owner>, ResolveError> {
        if let Some(known) = self.owners.iter().find(|owner| owner.pid == pid) {
            return Ok(Arc::clone(known));
        }
        let owner = Owner::of(pid).map_err(|source| match source.raw_os_error() {
            Some(errno) if errno == rustix::io::Errno::SRCH.raw_os_error() => ResolveError::Gone {
                signal: name.to_string(),
                pid,
            },
            // What is there, but is a thread: the kernel says EINVAL or, since 6.15, ENOENT.
            _ if std::fs::exists(format!("/proc/{pid}")).unwrap_or(false) => ResolveError::None {
                signal: name.to_string(),
                why: format!("{pid} is a thread: name its process"),
            },
            _ => ResolveError::System {
                signal: name.to_string(),
                what: "take hold of the process",
                source,
            },
        })?;
        let owner = Arc::new(owner);
        self.owners.push(Arc::clone(&owner));
        Ok(owner)
    }

    /// The processes that signals were found in.
    #[must_use]
    pub fn owners(&self) -> &[Arc<Owner>] {
        &self.owners
    }
}
