//! A process that runs tasks for its parent. A recorder can watch one such process and not another.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::tasks::{Task, Tasks};
use crate::calibrate::strace::Ended;

/// The process, as its parent sees it.
pub struct Process {
    to: ChildStdin,
    from: ChildStdout,
    child: Ended,
}

impl Process {
    /// Starts it on the CPUs of this thread. `command`: what calls [`obey`].
    pub fn start(command: &[OsString]) -> Result<Self, String> {
        let (program, words) = command
            .split_first()
            .ok_or("there is no program that could be recorded")?;
        let mut child = Command::new(program)
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| format!("can't start a process that is recorded: {e}"))?;
        let ends = child.stdin.take().zip(child.stdout.take());
        let child = Ended(child);
        let (to, from) = ends.ok_or("the process has no pipes")?;
        Ok(Self { to, from, child })
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        let child: &Child = &self.child.0;
        child.id()
    }

    /// Has it do something so often; ns each.
    pub fn each(&mut self, task: Task, times: u64) -> Result<f64, String> {
        let mut ask = || -> io::Result<f64> {
            let mut order = [task as u8; 9];
            order[1..].copy_from_slice(&times.to_le_bytes());
            self.to.write_all(&order)?;
            let mut took = [0; 8];
            self.from.read_exact(&mut took)?;
            Ok(f64::from_le_bytes(took))
        };
        match ask() {
            Ok(ns) if ns.is_finite() => Ok(ns / times as f64),
            Ok(_) => Err("the process that is recorded could not do it".to_owned()),
            Err(e) => Err(format!("the process that is recorded failed: {e}")),
        }
    }
}

/// Runs the parent's tasks until the parent closes the pipe.
///
/// # Errors
/// If the parent is gone while it is answered.
pub fn obey() -> io::Result<()> {
    let (mut orders, mut answers) = (io::stdin().lock(), io::stdout().lock());
    let mut tasks = Tasks::default();
    let mut order = [0; 9];
    while orders.read_exact(&mut order).is_ok() {
        let times = order[1..]
            .iter()
            .rev()
            .fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        let took = Task::of(order[0]).and_then(|task| tasks.run(task, times).ok());
        answers.write_all(&took.unwrap_or(f64::NAN).to_le_bytes())?;
        answers.flush()?;
    }
    Ok(())
}
