//! Finding the processes that the configuration chooses.

use tailscope_record::{Process, RecordError, Recorder};

use super::{Agent, AgentError};
use crate::choice::{Facts, everybody};
use crate::config::Config;

impl Agent {
    /// Programs that started: those that are chosen are watched before they have done much.
    pub(super) fn adopt(&mut self) -> Result<(), AgentError> {
        let Some(recorder) = self.recording.attached() else {
            return Ok(());
        };
        for pid in recorder.take_programs() {
            if choose(recorder, &self.config, &self.say, pid)? {
                self.chosen.push(pid);
            }
        }
        Ok(())
    }

    /// Looks at every process, unless it rests.
    pub(super) fn search(&mut self) -> Result<(), AgentError> {
        let Some(recorder) = self.recording.attached() else {
            return Ok(());
        };
        let watched = recorder.processes();
        self.chosen.retain(|pid| watched.contains(pid));
        self.by_process.lock().refresh();
        let found = choose_all(recorder, &self.config, &self.say)?;
        self.chosen.extend(found);
        Ok(())
    }
}

/// Has a recorder watch all processes that are chosen and that it does not watch yet, with what they
/// have started. Gives back the chosen ones.
pub(super) fn choose_all(
    recorder: &mut Recorder,
    config: &Config,
    say: &dyn Fn(&str),
) -> Result<Vec<u32>, AgentError> {
    let mut found = Vec::new();
    for pid in everybody() {
        if !choose(recorder, config, say, pid)? {
            continue;
        }
        found.push(pid);
        if config.record.children {
            for child in (Process { pid }).descendants() {
                watch(recorder, say, &child)?;
            }
        }
    }
    Ok(found)
}

/// Has a recorder watch processes that were watched before, with what they have started since.
pub(super) fn watch_again(
    recorder: &mut Recorder,
    config: &Config,
    say: &dyn Fn(&str),
    pids: &[u32],
) -> Result<(), AgentError> {
    let mut all: Vec<Process> = pids.iter().map(|pid| Process { pid: *pid }).collect();
    if config.record.children {
        all.extend(Process::descendants_of(pids));
    }
    all.iter().try_for_each(|one| watch(recorder, say, one))
}

/// Watches a process if it is chosen, and says whether it was.
fn choose(
    recorder: &mut Recorder,
    config: &Config,
    say: &dyn Fn(&str),
    pid: u32,
) -> Result<bool, AgentError> {
    if pid == std::process::id() || recorder.processes().contains(&pid) {
        return Ok(false);
    }
    let facts = Facts::of(pid);
    if !config.process.iter().any(|rule| rule.as_ref().fits(&facts)) {
        return Ok(false);
    }
    // It may be gone by now, or a thread of the kernel's own that took the name.
    let Ok(process) = Process::find(pid, true) else {
        return Ok(false);
    };
    watch(recorder, say, &process)?;
    Ok(true)
}

fn watch(recorder: &mut Recorder, say: &dyn Fn(&str), process: &Process) -> Result<(), AgentError> {
    match recorder.watch(process) {
        // One too many is no reason to leave the others.
        Err(e @ RecordError::Watch(_)) => {
            say(&format!("can't record process {}: {e}", process.pid));
            Ok(())
        }
        done => Ok(done?),
    }
}
