//! One look: who connects is answered, and rows that ended since the last one are taken.

use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tailscope_signals::clock::Cycles;
use tailscope_signals::door::{Door, Knock};
use tailscope_signals::sdk_files::program_of;

use super::{Recorder, TELL_EVERY};
use crate::options::RecordError;
use crate::sdk::SdkServer;

/// A connection waits for its answer so long at most, and is looked at again this often meanwhile.
const PATIENCE: Duration = Duration::from_secs(1);
const SOON: Duration = Duration::from_millis(5);
/// So many connections wait until it is decided whether their processes are watched.
const MOST_UNTOLD: usize = 256;

impl Recorder {
    /// Waits for the next look, or for a process that knocks or ends.
    pub(super) fn wait(&self, wake: Option<BorrowedFd<'_>>) -> Result<(), RecordError> {
        let mut fds = vec![PollFd::from_borrowed_fd(
            self.kernel.events_fd(),
            PollFlags::IN,
        )];
        fds.extend(
            self.sdk
                .iter()
                .flat_map(SdkServer::fds)
                .chain(wake)
                .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)),
        );
        let is_untold = |knock: &Knock| knock.pid().is_some_and(|pid| self.programs.contains(&pid));
        let patience = if self.knocks.iter().any(is_untold) {
            Duration::ZERO
        } else if !self.knocks.is_empty() {
            SOON
        } else if self.sdk.as_ref().is_some_and(SdkServer::pauses) {
            Door::PAUSE.min(self.pace.pause())
        } else if self.processes.is_empty() {
            TELL_EVERY
        } else {
            self.pace.pause()
        };
        let patience = Timespec {
            tv_sec: patience.as_secs() as i64,
            tv_nsec: patience.subsec_nanos().into(),
        };
        match poll(&mut fds, Some(&patience)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(RecordError::Wait(e.into())),
        }
    }

    /// Those that are answered now. Programs that nobody has been told of yet may be about to be watched,
    /// and files of processes may still be looked through: theirs wait, over as many looks as that takes.
    fn those_to_answer(&mut self, knocks: Vec<Knock>) -> Vec<Knock> {
        self.call_found_sdks();
        // A program with the SDK in its own file asks only after that is listened to.
        let is_heard = |pid| program_of(pid).is_some_and(|file| self.kernel.has_called_sdk(file));
        let is_looked_in = |pid| {
            let finder = self.finder.as_ref();
            finder.is_some_and(|finder| finder.is_looking_in(pid)) && !is_heard(pid)
        };
        let is_early = |knock: &Knock| {
            let waits = |pid| self.programs.contains(&pid) || is_looked_in(pid);
            knock.age() < PATIENCE && !knock.left() && knock.pid().is_some_and(waits)
        };
        let (mut later, now): (Vec<_>, Vec<_>) = knocks.into_iter().partition(is_early);
        later.truncate(MOST_UNTOLD);
        self.knocks = later;
        now
    }

    pub(super) fn look(&mut self) -> Result<(), RecordError> {
        // The kernel tells of a child or a new program before that can knock, so the news are
        // heard between the knock and the answer: a child would be turned away as a stranger,
        // and an exec heard later would throw out the program that has just come in.
        let mut knocks = std::mem::take(&mut self.knocks);
        let new: Vec<Knock> = self.sdk.iter_mut().flat_map(SdkServer::knocks).collect();
        self.hear_news();
        // The SDK for Java makes its file in memory just before it connects, and runs the probe as
        // soon as it is answered.
        let pids: BTreeSet<u32> = new.iter().filter_map(Knock::pid).collect();
        for pid in pids {
            if self.sdk.as_ref().is_some_and(|sdk| sdk.is_anothers(pid)) {
                self.forget_client(pid);
            }
            if self.processes.contains(&pid) {
                self.look_for_sdk(pid);
            }
        }
        knocks.extend(new);
        let knocks = self.those_to_answer(knocks);
        if let Some(sdk) = &mut self.sdk {
            let processes = &self.processes;
            sdk.welcome(knocks, &mut self.kernel, |pid| processes.contains(&pid));
            sdk.beat(Cycles::now(), self.clock.hz());
        }
        if let Some(steal) = &mut self.steal
            && !self.processes.is_empty()
        {
            steal.tick(self.pace.is_idle());
        }
        let (mut ended, names) = self.kernel.ended();
        let mut page = self.book.open(&mut self.clock, self.steal.as_ref(), &names);
        ended.sockets(|row| page.enter_socket(row));
        ended.probes(|row| page.enter_probe(row));
        if let Some(sdk) = &mut self.sdk {
            sdk.drain(&mut page);
        }
        let ticked = self.book.output.tick(Instant::now());
        match self.book.trouble.take() {
            Some(e) => Err(e.into()),
            None => Ok(ticked?),
        }
    }
}
