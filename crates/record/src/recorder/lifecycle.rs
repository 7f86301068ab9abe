//! Which processes are recorded: those that are asked for, their children, the programs that they run
//! next, and the SDK in the files of all of them.

use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::time::Instant;

use rustix::io::Errno;
use tailscope_kernel::Event;
use tailscope_process::owner::start_of;
use tailscope_sdk_server::{Address, Server};

use super::Recorder;
use crate::Process;
use crate::interpreters::{Interpreter, Interpreters};
use crate::options::RecordError;

/// How many programs that started wait to be asked for.
const MOST_PROGRAMS: usize = 65_536;

/// How many processes are searched for libraries, once a second. If there are more, they take turns.
const SCANNED: usize = 64;

impl Recorder {
    /// Records a process from now on.
    pub fn watch(&mut self, process: &Process) -> Result<(), RecordError> {
        self.kernel.watch(process.pid)?;
        // It may have ended while the kernel's programs were loaded: nobody would hear of its end.
        if !process.lives() {
            self.kernel.unwatch(process.pid);
            return Ok(());
        }
        self.processes.insert(process.pid);
        self.starts
            .extend(start_of(process.pid).map(|start| (process.pid, start)));
        self.search(process.pid);
        let found = self.interpreters.as_mut().map(Interpreters::found_soon);
        self.learn(found.unwrap_or_default());
        if let Some(tls) = &mut self.tls {
            let notices = tls.prepare(&mut self.kernel, process.pid);
            notices
                .into_iter()
                .for_each(|notice| self.notices.say_once(notice));
        }
        if let Some(sdk) = &mut self.sdk {
            sdk.attach_soon_found(&mut self.kernel.sdk(), |pid| self.processes.contains(&pid));
        }
        Ok(())
    }

    /// Has all processes with the SDK that connect from now on connect to this recorder, and not to the one
    /// whose sockets it [takes over](crate::Options::takes_over).
    ///
    /// # Errors
    /// The sockets can't be put there; the other recorder goes on.
    pub fn take_over(&mut self) -> Result<(), RecordError> {
        match &mut self.sdk {
            Some(sdk) => Ok(sdk.take_over()?),
            None => Ok(()),
        }
    }

    /// At which address it listens to the SDK; `None`: it does not.
    #[must_use]
    pub fn sdk_address(&self) -> Option<Address> {
        self.sdk.as_ref().map(Server::address)
    }

    /// Attaches to the SDK in a program file, before a process runs it or while it does. If the file can't
    /// be read, a notice says so.
    pub fn attach_sdk(&mut self, file: &Path) {
        if let Some(sdk) = &mut self.sdk {
            sdk.attach_program(file, &mut self.kernel.sdk());
        }
    }

    fn expect_sdk(&mut self, pid: u32) {
        let Some(sdk) = &mut self.sdk else { return };
        if !sdk.search(pid) {
            self.mapped.forget(pid); // it is searched a second later
        }
    }

    /// Searches processes that have mapped files since, as far as their turn has come.
    pub(super) fn search_for_libraries(&mut self) {
        let next = next_of(&self.processes, self.scanned, SCANNED);
        self.scanned = next.last().copied().unwrap_or(0);
        for pid in next {
            if !self.starts.contains_key(&pid)
                && let Some(start) = start_of(pid)
            {
                self.starts.insert(pid, start);
            }
            if self.mapped.have_changed(pid) {
                self.search(pid);
            }
        }
    }

    /// Has the files that a process has mapped by now searched for the SDK, and for an interpreter.
    fn search(&mut self, pid: u32) {
        if let Some(interpreters) = &mut self.interpreters {
            interpreters.ask(pid);
        }
        self.expect_sdk(pid);
    }

    /// Has the kernel's programs know where threads wait for their turn, and where their functions of
    /// Python are, as far as that was found.
    pub(super) fn learn_interpreters(&mut self) {
        let found = self.interpreters.as_mut().map(Interpreters::found);
        self.learn(found.unwrap_or_default());
    }

    fn learn(&mut self, found: Vec<(u32, Interpreter)>) {
        for (pid, Interpreter { lock, layout }) in found {
            let stacks = self.pipeline.stacks.as_mut();
            if stacks.is_some() && layout.is_none() {
                let supported = "only CPython 3.11 to 3.13 with the GIL is supported";
                self.notices
                    .say_once(format!("can't name functions of Python: {supported}"));
            }
            let layout = layout.filter(|_| stacks.is_some());
            let frames = layout.map(|layout| layout.frames);
            if let (Some(stacks), Some(layout)) = (stacks, layout) {
                stacks.learn_python(pid, layout);
            }
            let known = self.kernel.knows_interpreter(pid, &lock, frames);
            if known.is_err()
                && let Some(interpreters) = &mut self.interpreters
            {
                interpreters.forget(pid); // it has ended since
            }
        }
    }

    /// Whether process events were lost since the last time. Then it forgets those that ended
    /// unheard; which programs started, only a look at all processes can tell.
    pub fn missed_process_events(&mut self) -> Result<bool, RecordError> {
        let lost = self.kernel.lost_process_events();
        if lost == self.lost_process_events {
            return Ok(false);
        }
        self.lost_process_events = lost;
        // Starts that wait to be read may be of processes whose ends were lost.
        self.drain_process_events();
        for pid in self.processes.iter().copied().collect::<Vec<u32>>() {
            let now = start_of(pid);
            let known = self.starts.get(&pid).copied();
            if now.is_none() || known.is_some_and(|known| now != Some(known)) {
                // Gone, or another process has its number, which nobody chose.
                self.kernel.unwatch(pid);
                self.processes.remove(&pid);
                self.forget(pid);
            }
        }
        Ok(true)
    }

    pub(super) fn drain_process_events(&mut self) {
        let mut events = Vec::new();
        self.kernel.events(|event| events.push(event));
        self.rows_wait |= events.contains(&Event::Rows);
        events.retain(|event| *event != Event::Rows);
        if events.is_empty() {
            return;
        }
        self.events_came = Some(Instant::now());
        let ended: HashSet<u32> = events.iter().filter_map(ended).collect();
        for event in events {
            match event {
                Event::Child { pid, parent } => {
                    self.processes.insert(pid);
                    if let Some(stacks) = &mut self.pipeline.stacks {
                        stacks.inherit_python(pid, parent);
                    }
                }
                Event::Program { pid } => {
                    // Whoever does not take them has not asked for them.
                    if self.programs.len() < MOST_PROGRAMS {
                        self.programs.push(pid);
                    }
                }
                Event::Exec {
                    pid,
                    program,
                    user,
                    at,
                } => {
                    self.forget(pid); // so it is searched a second later, if not now
                    if let Some(stacks) = &mut self.pipeline.stacks {
                        stacks.forget_process(pid, at);
                    }
                    if let Some(sdk) = &mut self.sdk
                        && !ended.contains(&pid)
                    {
                        sdk.search_program(pid, program, user);
                    }
                }
                Event::Exit { pid } => {
                    self.processes.remove(&pid);
                    self.ended_processes.push(pid);
                    self.requests.end_process(pid);
                    self.forget(pid);
                }
                Event::Rows => {}
                Event::Refused { pid, errno } if errno == Errno::OPNOTSUPP.raw_os_error() => {
                    self.notices.say(format!(
                        "process {pid} starts spans on virtual threads, which have no meter; \
                         these spans are not recorded"
                    ));
                }
                Event::Refused { pid, errno } => {
                    let error = io::Error::from_raw_os_error(errno);
                    let path = self
                        .sdk
                        .as_ref()
                        .map(Server::socket_path)
                        .unwrap_or_default();
                    self.notices.say(format!(
                        "process {pid} can't reach the recorder at {}: {error}; its SDK spans are not recorded",
                        path.display()
                    ));
                }
            }
        }
    }

    fn forget(&mut self, pid: u32) {
        self.mapped.forget(pid);
        self.starts.remove(&pid);
        self.requests.forget_process(pid);
        if let Some(interpreters) = &mut self.interpreters {
            interpreters.forget(pid);
        }
        self.kernel.sdk().forget(pid);
        self.forget_client(pid);
    }

    /// Takes the last of what a process with the SDK has written.
    pub(super) fn forget_client(&mut self, pid: u32) {
        if let Some(sdk) = &mut self.sdk {
            let names = self.kernel.names();
            let mut batch = self
                .pipeline
                .open(&mut self.clock, self.steal.as_ref(), &names);
            if sdk.forget(pid, &mut batch) {
                self.kernel.sdk().take_back_meters(pid);
            }
        }
    }
}

/// The process that this is the end of.
fn ended(event: &Event) -> Option<u32> {
    match event {
        Event::Exit { pid } => Some(*pid),
        _ => None,
    }
}

/// The next so many processes after this one, going round.
fn next_of(processes: &HashSet<u32>, after: u32, most: usize) -> Vec<u32> {
    let mut all: Vec<u32> = processes.iter().copied().collect();
    // Those behind it first.
    all.sort_unstable_by_key(|pid| (*pid <= after, *pid));
    all.truncate(most);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_take_turns_where_there_are_many() {
        let all = HashSet::from_iter(1..=10);
        assert_eq!(next_of(&all, 0, 4), [1, 2, 3, 4]);
        assert_eq!(next_of(&all, 4, 4), [5, 6, 7, 8]);
        assert_eq!(next_of(&all, 8, 4), [9, 10, 1, 2]);
        assert_eq!(next_of(&all, 8, 100).len(), 10);
        assert!(next_of(&HashSet::new(), 8, 4).is_empty());
    }
}
