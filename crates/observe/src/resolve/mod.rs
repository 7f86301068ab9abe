//! From the name of a signal to where it is in memory.

mod channel;
mod counter;
#[cfg(fuzzing)]
pub mod fuzzing;
mod hsperf;
mod kernel;
mod mem;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tailscope_signals::patience::Patience;
use tailscope_symbols::nearest::nearest;

use crate::name::Name;
use crate::process::{Fate, Owner};
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

impl ResolveError {
    /// Whether a process that has just started may still make what is missing.
    fn may_pass(&self) -> bool {
        match self {
            Self::Unknown { .. } | Self::None { .. } => true,
            Self::System { source, .. } => source.kind() == io::ErrorKind::NotFound,
            Self::Gone { .. } | Self::Machine { .. } => false,
        }
    }
}

fn suggestion(near: &[String], have: &usize) -> String {
    match (near, have) {
        ([], 0) => String::new(),
        ([], have) => format!(" among its {have}"),
        (near, _) => format!(" (did you mean {}?)", near.join(", ")),
    }
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "; run as root, or grant CAP_SYS_PTRACE, to observe another user's process"
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
}

impl Resolver {
    /// The signals of all these names, in their order. What a process that has just started does not
    /// have yet is waited for, a second at most.
    pub fn resolve_all(&mut self, names: &[&Name]) -> Result<Vec<Signal>, ResolveError> {
        let patience = Patience::with(names.iter().filter_map(|name| name.pid()));
        self.resolve_while(names, || patience.once_more())
    }

    /// The same, as long as there is to be another try.
    fn resolve_while(
        &mut self,
        names: &[&Name],
        mut once_more: impl FnMut() -> bool,
    ) -> Result<Vec<Signal>, ResolveError> {
        let mut found: Vec<Signal> = Vec::new();
        loop {
            let tried = names[found.len()..]
                .iter()
                .try_for_each(|name| self.resolve(name).map(|signal| found.push(signal)));
            // A command like taskset has become the program that it is in front of.
            let runs_another = |owner: &Arc<Owner>| owner.fate(Duration::ZERO) == Fate::Execed;
            let is_old = self.owners.iter().any(runs_another);
            let is_final = match &tried {
                Ok(()) => !is_old,
                Err(error) => !error.may_pass(),
            };
            if is_final || !once_more() {
                return tried.map(|()| found);
            }
            if is_old {
                found.clear();
                self.owners.clear();
            }
        }
    }

    /// The signal of that name.
    pub fn resolve(&mut self, name: &Name) -> Result<Signal, ResolveError> {
        let pid = match name {
            Name::Channel { pid, .. }
            | Name::Hsperf { pid, .. }
            | Name::Mem { pid, .. }
            | Name::Counter { pid, .. }
            | Name::Meter { pid, .. } => pid,
            Name::Running { cpu } => return self.programs.running(name.to_string(), *cpu),
        };
        let wanted = Wanted {
            signal: name.to_string(),
            owner: self.owner(*pid, name)?,
        };
        match name {
            Name::Channel { name, .. } => channel::resolve(&wanted, name),
            Name::Hsperf { name, .. } => hsperf::resolve(&wanted, name),
            Name::Mem { symbol, offset, .. } => mem::resolve(&wanted, symbol, *offset),
            Name::Counter { tid, event, .. } => counter::resolve(&wanted, *tid, event),
            Name::Meter { tid, cause, .. } => self.programs.meter(&wanted, *tid, *cause),
            Name::Running { .. } => unreachable!("answered above"),
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
                why: format!("{pid} is a thread; give its process id"),
            },
            _ => ResolveError::System {
                signal: name.to_string(),
                what: "open the process",
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

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::process::{Command, Stdio};
    use std::time::Instant;

    use super::*;

    /// Set for the child of a test: it sleeps until its input ends.
    const CHILD: &str = "TAILSCOPE_TEST_SLEEPER";

    #[test]
    fn a_child_sleeps_until_its_input_ends() {
        if std::env::var_os(CHILD).is_some() {
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
        }
    }

    /// At first it is a shell; then it is this program, with the variable of another test.
    #[test]
    fn what_a_process_makes_as_it_starts_is_found_once_it_is_there() {
        let us = std::env::current_exe().expect("we are one");
        let mut child = Command::new("sh")
            .args(["-c", "read go && exec \"$0\" \"$@\""])
            .arg(&us)
            .args([
                "--exact",
                "resolve::tests::a_child_sleeps_until_its_input_ends",
            ])
            .env(CHILD, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("a shell");
        let pid = child.id();
        let mut gate = child.stdin.take().expect("piped");
        let names: Vec<Name> = [
            format!("mem:{pid}:environ"),
            format!("mem:{pid}:TAILSCOPE_TEST_VARIABLE"),
        ]
        .iter()
        .map(|name| name.parse().expect("a name"))
        .collect();
        let names: Vec<&Name> = names.iter().collect();
        let mut tries = 0;
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut resolver = Resolver::default();
        let found = resolver.resolve_while(&names, || {
            tries += 1;
            if tries == 1 {
                gate.write_all(b"go\n").expect("it reads");
            }
            std::thread::sleep(Duration::from_millis(1));
            Instant::now() < deadline
        });
        // Both are those of the program that it has become, and so is their owner.
        assert_eq!(found.expect("it has come").len(), 2);
        assert!(tries >= 1);
        assert_eq!(resolver.owners().len(), 1);
        assert_eq!(resolver.owners()[0].fate(Duration::ZERO), Fate::Lives);
        drop(gate);
        child.wait().expect("our child");
    }

    #[test]
    fn what_never_comes_is_refused_when_there_is_no_other_try() {
        let name = format!("channel:{}:none", std::process::id());
        let name: Name = name.parse().expect("a name");
        let mut left = 3;
        let refused = Resolver::default().resolve_while(&[&name], || {
            left -= 1;
            left > 0
        });
        let said = refused.expect_err("we have no channels").to_string();
        assert!(said.contains("has no channels"), "{said}");
        assert_eq!(left, 0);
    }

    #[test]
    fn a_process_that_is_not_there_is_refused_at_once() {
        let name: Name = "channel:999999999:none".parse().expect("a name");
        let refused = Resolver::default().resolve_while(&[&name], || panic!("no other try"));
        assert!(matches!(refused, Err(ResolveError::Gone { .. })));
    }
}
