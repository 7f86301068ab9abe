//! `record -- CMD`: a command that waits to be recorded from its first instruction.

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};

use crate::files;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

/// A command that was started by us.
#[derive(Debug)]
pub struct Launched {
    child: Child,
    program: PathBuf,
}

/// The command can't be started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// No program of that name.
    #[error("no program '{0}' on the PATH, or it is not executable")]
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

impl Launched {
    /// Starts a command and stops it before its program begins.
    pub fn stopped(command: &[OsString]) -> Result<Self, LaunchError> {
        let name = command
            .first()
            .map(|n| n.to_string_lossy().into_owned())
            .unwrap_or_default();
        let program = find(Path::new(&name)).ok_or_else(|| LaunchError::NotFound(name.clone()))?;
        let system = |source| LaunchError::System {
            program: name.clone(),
            source,
        };
        let child = Command::new("/bin/sh")
            .args(["-c", "kill -STOP $$; exec \"$0\" \"$@\""])
            .args(command)
            .process_group(0)
            .spawn()
            .map_err(system)?;
        let launched = Self { child, program };
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
        files::has_sdk(&self.program).unwrap_or(false)
    }

    /// Lets it run.
    pub fn go(&self) -> io::Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        self.pid_for_wait()
            .map_or(Ok(()), |pid| Ok(kill_process(pid, signal)?))
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }
}

impl Drop for Launched {
    /// What we started we end: asked first, so that it can save what it has.
    fn drop(&mut self) {
        if matches!(self.ended(), Ok(Some(_))) {
            return;
        }
        let _ = self.signal(Signal::CONT);
        let _ = self.signal(Signal::TERM);
        for _ in 0..100 {
            if matches!(self.ended(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn find(name: &Path) -> Option<PathBuf> {
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
            Launched::stopped(&["touch".into(), mark.clone().into()]).expect("touch is there");
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
    fn a_program_that_is_not_there_is_named() {
        let error = Launched::stopped(&["no-such-program".into()]).expect_err("it is not there");
        assert!(error.to_string().contains("'no-such-program'"));
    }
}
