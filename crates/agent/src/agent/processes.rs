//! Finding the processes that the configuration chooses.

use tailscope_record::{Process, RecordError};

use super::{Agent, AgentError};
use crate::choice::{Facts, everybody};

impl Agent {
    /// Programs that started: those that are chosen are watched before they have done much.
    pub(super) fn meet(&mut self) -> Result<(), AgentError> {
        for pid in self.recorder.take_programs() {
            self.consider(pid, false)?;
        }
        Ok(())
    }

    /// Looks at every process.
    pub(super) fn search(&mut self) -> Result<(), AgentError> {
        let watched = self.recorder.processes();
        self.chosen.retain(|pid| watched.contains(pid));
        for pid in everybody() {
            self.consider(pid, true)?;
        }
        Ok(())
    }

    /// Watches a process if it is chosen; with all that it has started, if it is not new.
    fn consider(&mut self, pid: u32, is_old: bool) -> Result<(), AgentError> {
        if pid == std::process::id() || self.recorder.processes().contains(&pid) {
            return Ok(());
        }
        let facts = Facts::of(pid);
        let rules = &self.config.process;
        if !rules.iter().any(|rule| rule.as_ref().fits(&facts)) {
            return Ok(());
        }
        // It may be gone by now, or a thread of the kernel's own that took the name.
        let Ok(process) = Process::find(pid, true) else {
            return Ok(());
        };
        self.watch(&process)?;
        self.chosen.push(pid);
        if is_old && self.config.record.children {
            for child in process.descendants() {
                self.watch(&child)?;
            }
        }
        Ok(())
    }

    fn watch(&mut self, process: &Process) -> Result<(), AgentError> {
        match self.recorder.watch(process) {
            // One too many is no reason to leave the others.
            Err(e @ RecordError::Watch(_)) => {
                (self.say)(&format!("process {} is not recorded: {e}", process.pid));
                Ok(())
            }
            done => Ok(done?),
        }
    }
}
