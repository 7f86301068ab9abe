//! Which processes are recorded: those that it is told of, their children, what they run next, and
//! the SDK in the files of all of them.

use std::collections::HashSet;
use std::io;
use std::path::Path;

use rustix::io::Errno;
use tailscope_kernel::Event;
use tailscope_signals::owner::start_of;
use tailscope_signals::rooted;
use tailscope_signals::sdk_files::SdkFile;
use tailscope_signals::sdk_files::finder::Finder;

use super::Recorder;
use crate::Process;
use crate::options::RecordError;
use crate::sdk::SdkServer;

/// How many programs that started wait to be asked for.
const MOST_PROGRAMS: usize = 65_536;

/// In how many processes it looks, once a second, for libraries loaded since. Where there are more they
/// take turns.
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
        self.expect_sdk(process.pid);
        self.call_found_sdks();
        Ok(())
    }

    /// Has all processes with the SDK that come from now on come here, and not to the recorder whose
    /// socket it [takes over](crate::Options::takes_over).
    ///
    /// # Errors
    /// If the socket can't be put there; then the other one goes on.
    pub fn take_place(&mut self) -> Result<(), RecordError> {
        match &mut self.sdk {
            Some(sdk) => Ok(sdk.take_place()?),
            None => Ok(()),
        }
    }

    /// Lets the SDK in a program file know of us, before a process runs it or while it does. What
    /// can't be read is a notice.
    pub fn call_sdk(&mut self, file: &Path) {
        if self.sdk.is_none() {
            return;
        }
        let read = rooted::follow(file).and_then(|held| SdkFile::read(held, file.to_owned()));
        match read {
            Ok(Some(found)) => self.attach_sdk(&found, 0),
            Ok(None) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => {} // no process runs it yet
            Err(e) => self.say_unread(file, &e),
        }
    }

    /// Has what a process has mapped by now looked through for the SDK, which then finds a socket of its
    /// user's.
    fn expect_sdk(&mut self, pid: u32) {
        if let Some(sdk) = &mut self.sdk {
            sdk.open_for_user_of(pid);
        }
        self.look_for_sdk(pid);
    }

    /// Has what a process has mapped by now looked through for the SDK.
    pub(super) fn look_for_sdk(&mut self, pid: u32) {
        if let Some(finder) = &mut self.finder
            && !finder.look_in(pid)
        {
            self.mapped.forget(pid); // it is looked at again a second later
        }
    }

    /// Looks for it in libraries that were loaded since.
    pub(super) fn call_sdk_in_all(&mut self) {
        let next = next_of(&self.processes, self.scanned, SCANNED);
        self.scanned = next.last().copied().unwrap_or(0);
        for pid in next {
            if !self.starts.contains_key(&pid)
                && let Some(start) = start_of(pid)
            {
                self.starts.insert(pid, start);
            }
            if self.mapped.have_changed(pid) {
                self.expect_sdk(pid);
            }
        }
    }

    /// Lets the SDK know of us in the files that were found by now. What goes wrong with one of them is
    /// a notice, and no reason to leave the others.
    pub(super) fn call_found_sdks(&mut self) {
        let answers = self.finder.as_mut().map(Finder::answers);
        for answer in answers.unwrap_or_default() {
            if !self.processes.contains(&answer.pid) {
                continue;
            }
            for file in &answer.files {
                self.attach_sdk(file, answer.pid);
            }
            for (path, why) in &answer.unread {
                self.say_unread(path, why);
            }
        }
    }

    fn attach_sdk(&mut self, file: &SdkFile, pid: u32) {
        if let Err(e) = self.kernel.call_sdk(file, pid) {
            self.notices.say_once(e.to_string());
        }
    }

    fn say_unread(&mut self, file: &Path, why: &io::Error) {
        let file = file.display();
        self.notices.say_once(format!(
            "can't search {file} for the SDK: {why}; SDK spans of its processes may be missing"
        ));
    }

    /// Whether news of processes were lost since the last time. Then it forgets those that ended
    /// unheard; which programs started, only a look at all processes can tell.
    pub fn missed_news(&mut self) -> Result<bool, RecordError> {
        let lost = self.kernel.lost_news();
        if lost == self.lost_news {
            return Ok(false);
        }
        self.lost_news = lost;
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

    pub(super) fn hear_news(&mut self) {
        let mut news = Vec::new();
        self.kernel.events(|event| news.push(event));
        for event in news {
            match event {
                Event::Child { pid, .. } => {
                    self.processes.insert(pid);
                }
                Event::Program { pid } => {
                    // Whoever does not take them has not asked for them.
                    if self.programs.len() < MOST_PROGRAMS {
                        self.programs.push(pid);
                    }
                }
                Event::Exec { pid } => {
                    self.forget(pid);
                    self.expect_sdk(pid);
                }
                Event::Exit { pid } => {
                    self.processes.remove(&pid);
                    self.forget(pid);
                }
                Event::Refused { pid, errno } if errno == Errno::OPNOTSUPP.raw_os_error() => {
                    self.notices.say(format!(
                        "process {pid} starts spans on virtual threads, which have no meter; \
                         these spans are not recorded"
                    ));
                }
                Event::Refused { pid, errno } => {
                    let error = io::Error::from_raw_os_error(errno);
                    let path = SdkServer::path();
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
        self.kernel.forget_sdk(pid);
        self.forget_client(pid);
    }

    /// Takes the last of what a process with the SDK wrote.
    pub(super) fn forget_client(&mut self, pid: u32) {
        if let Some(sdk) = &mut self.sdk
            && sdk.serves(pid)
        {
            let names = self.kernel.names();
            let mut page = self.book.open(&mut self.clock, self.steal.as_ref(), &names);
            sdk.forget(pid, &mut page);
            self.kernel.take_back_meters(pid);
        }
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
