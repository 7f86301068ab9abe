//! `record -- CMD`: a command that waits to be recorded from its first instruction.

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use tailscope_symbols::sdk;

/// A command that was started by us.
#[derive(Debug)]
pub struct Launched {
    child: Child,
    program: PathBuf,
    runs: bool,
}

/// The command can't be started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// No program of that name.
    #[error("can't start '{0}': it is not on the PATH, or not executable; check the name")]
    NotFound(String),
    /// The system refused.
    #[error("can't start '{program}': {source}")]
    System {
        /// What was to be started.
        program: String,
        /// What the system said.
        source: io::Error,
    },
}

/// What becomes of what a command prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prints {
    /// It goes where ours does.
    Through,
    /// It is dropped: the terminal is in use.
    Nowhere,
}

/// How long the SDK in the command waits for the recorder, in ms: on a machine so busy that we get no
/// CPU for a while, its first spans would go unmetered, and nobody waits for those but us. Who has
/// set it for us has set it for the command.
const PATIENCE_MS: (&str, &str) = ("TAILSCOPE_PATIENCE_MS", "5000");

impl Launched {
    /// Starts a command and stops it before its program begins.
    pub fn stopped(command: &[OsString], prints: Prints) -> Result<Self, LaunchError> {
        let name = command
            .first()
            .map(|n| n.to_string_lossy().into_owned())
            .unwrap_or_default();
        let program =
            find_program(Path::new(&name)).ok_or_else(|| LaunchError::NotFound(name.clone()))?;
        let system = |source| LaunchError::System {
            program: name.clone(),
            source,
        };
        let mut shell = Command::new("/bin/sh");
        if prints == Prints::Nowhere {
            shell
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
        }
        if env::var_os(PATIENCE_MS.0).is_none() {
            shell.env(PATIENCE_MS.0, PATIENCE_MS.1);
        }
        let child = shell
            .args(["-c", "kill -STOP $$; exec \"$0\" \"$@\""])
            .args(command)
            .process_group(0)
            .spawn()
            .map_err(system)?;
        let launched = Self {
            child,
            program,
            runs: false,
        };
        if let Some(pid) = launched.pid_for_wait() {
            waitpid(Some(pid), WaitOptions::UNTRACED).map_err(|e| system(e.into()))?;
        }
        Ok(launched)
    }

    fn pid_for_wait(&self) -> Option<Pid> {
        Pid::from_raw(self.child.id() as i32)
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The program that it will run.
    #[must_use]
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Whether that program has the SDK in it.
    #[must_use]
    pub fn has_sdk(&self) -> bool {
        sdk::has_sdk(&self.program).unwrap_or(false)
    }

    /// Lets it run.
    pub fn go(&mut self) -> io::Result<()> {
        self.runs = true;
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        self.pid_for_wait()
            .map_or(Ok(()), |pid| Ok(kill_process(pid, signal)?))
    }

    /// Asks it to end, and waits for two seconds at most.
    fn ends_when_asked(&mut self) -> bool {
        let _ = self.signal(Signal::TERM);
        // Where something has stopped it meanwhile: it wakes with the request already there.
        let _ = self.signal(Signal::CONT);
        (0..100).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            matches!(self.ended(), Ok(Some(_)))
        })
    }

    /// How it ended, where the kernel has told of its end: it can be waited for a little later.
    pub fn ended_soon(&mut self) -> io::Result<Option<ExitStatus>> {
        for _ in 0..100 {
            if let Some(status) = self.ended()? {
                return Ok(Some(status));
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        Ok(None)
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }
}

impl Drop for Launched {
    /// What we started we end: asked first, so that it can save what it has. What was never let go
    /// has nothing to save, and must not run an instruction of its program now.
    fn drop(&mut self) {
        if matches!(self.ended(), Ok(Some(_))) || (self.runs && self.ends_when_asked()) {
            return;
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program that a command's first word names: a path, or a name on the PATH.
#[must_use]
pub fn find_program(name: &Path) -> Option<PathBuf> {
    let runs = |path: &Path| {
        path.metadata()
            .is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
    };
    if name.components().count() > 1 {
        return runs(name).then(|| name.to_owned());
    }
    env::split_paths(&env::var_os("PATH")?)
        .map(|dir| dir.join(name))
        .find(|path| runs(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_waits_until_it_is_let_go() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let mark = dir.path().join("mark");
        let mut launched =
            Launched::stopped(&["touch".into(), mark.clone().into()], Prints::Through)
                .expect("touch is there");
        assert!(!mark.exists());
        launched.go().expect("our child");
        let status = loop {
            if let Some(status) = launched.ended().expect("our child") {
                break status;
            }
            std::thread::yield_now();
        };
        assert!(status.success() && mark.exists());
    }

    #[test]
    fn a_command_that_is_never_let_go_never_runs() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let mark = dir.path().join("mark");
        for _ in 0..20 {
            drop(Launched::stopped(
                &["touch".into(), mark.clone().into()],
                Prints::Through,
            ));
            assert!(!mark.exists());
        }
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let error = Launched::stopped(&["no-such-program".into()], Prints::Nowhere)
            .expect_err("it is not there");
        assert!(error.to_string().contains("'no-such-program'"));
    }
}
