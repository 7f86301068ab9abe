//! The process that becomes the batch command, once it has taken its place.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use tailscope_kernel::scheduling::make_idle;

use crate::error::{BorrowError, doing};
use crate::groups::Groups;
use crate::lane::Lane;
use crate::members::MARK;

/// What the keeper starts the batch command with.
pub const STARTER: &str = "borrow-starter";
/// The exit code of a command that can't be started, as shells have it.
pub const NOT_STARTED: u8 = 127;

/// What the starter needs to know.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Start {
    pub groups: Groups,
    pub cpus: Vec<u32>,
    pub keeper: u32,
}

impl Start {
    /// Starts the batch command, with the mark of this batch.
    pub(crate) fn launch(
        &self,
        batch: &[OsString],
        mark: &str,
        output_to_stderr: bool,
    ) -> io::Result<Pid> {
        let mut command = Command::new("/proc/self/exe");
        command
            .args([STARTER, &serde_json::to_string(self)?])
            .args(batch)
            .env(MARK, mark)
            .stdin(Stdio::null())
            .process_group(0);
        if output_to_stderr {
            command.stdout(io::stderr().as_fd().try_clone_to_owned()?);
        }
        let child = command.spawn()?;
        Pid::from_raw(child.id() as i32).ok_or_else(|| io::Error::other("no process id"))
    }
}

/// Runs as the starter: takes its place among the batch, and becomes the command.
///
/// # Errors
/// If that fails; otherwise it does not return.
pub fn start(start: &str, command: &[OsString]) -> Result<(), BorrowError> {
    let start: Start =
        serde_json::from_str(start).map_err(|e| BorrowError::Usage(e.to_string()))?;
    let alive = set_parent_process_death_signal(Some(Signal::KILL));
    alive.map_err(|e| doing("arm PR_SET_PDEATHSIG")(e.into()))?;
    let keeper = Pid::from_raw(start.keeper as i32);
    if keeper.is_none() || getppid() != keeper {
        return Ok(()); // it was killed before this was armed
    }
    start.groups.join(0).map_err(doing("join the cgroups"))?;
    let lane = Lane { cpus: start.cpus };
    lane.pin(0)
        .map_err(|e| doing("take the affinity of the server")(e.into()))?;
    // Last: by this the keeper knows that it is done.
    make_idle(0).map_err(doing("take the policy SCHED_IDLE"))?;
    let (program, arguments) = command
        .split_first()
        .ok_or_else(|| BorrowError::Usage("no command".to_owned()))?;
    let error = Command::new(program).args(arguments).exec();
    Err(doing(format!("start '{}'", program.to_string_lossy()))(
        error,
    ))
}
