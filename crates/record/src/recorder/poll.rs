//! One poll: SDK connection requests are answered, and rows that ended since the last one are taken.
//!
//! A process waits for its answer, rows don't. So each connection request wakes the recorder, and rows
//! are taken when their [pause](crate::pace) is over. They are taken earlier if a ring is half full, or
//! if the caller is asked for figures.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tailscope_sdk_server::Server;
use tailscope_sdk_server::sockets::ConnectionRequest;
use tailscope_signals::clock::{Cycles, Monotonic};

use super::{Recorder, TELL_EVERY};
use crate::options::RecordError;
use crate::pipeline::RowPipeline;

/// Process events that follow others within this time are taken with them. Otherwise programs that are
/// started one after the other would each cost a look. A process that connects is answered at once all
/// the same, and process events are read before that. Rows are not taken more often than this.
const APART: Duration = Duration::from_millis(4);

impl Recorder {
    /// Waits for the next poll, or for a connection request, or for the end of a process.
    pub(super) fn wait(&self, wake: Option<BorrowedFd<'_>>) -> Result<(), RecordError> {
        let patience = self.patience();
        let rest = self
            .events_came
            .map_or(Duration::ZERO, |came| APART.saturating_sub(came.elapsed()));
        let mut fds: Vec<BorrowedFd<'_>> = self.sdk.iter().flat_map(Server::fds).collect();
        fds.extend(wake);
        if !rest.is_zero() && (any_readable(&fds, rest.min(patience))? || patience <= rest) {
            return Ok(());
        }
        fds.push(self.kernel.events_fd());
        any_readable(&fds, patience.saturating_sub(rest)).map(drop)
    }

    fn patience(&self) -> Duration {
        let sdk = self.sdk.as_ref();
        let is_undecided = |pid| self.programs.contains(&pid);
        if sdk.is_some_and(|sdk| sdk.any_waits(is_undecided)) {
            return Duration::ZERO; // the caller that takes the programs decides now
        }
        if self.rows_wait {
            return Duration::ZERO;
        }
        let any_rows_may_come = !self.processes.is_empty() || !self.ended_processes.is_empty();
        let pause = self.pace.pause().saturating_sub(self.polled.elapsed());
        match sdk.and_then(Server::poll_again_in) {
            Some(soon) => soon.min(pause),
            None if !any_rows_may_come => TELL_EVERY,
            None => pause,
        }
    }

    /// Answers processes that connect. True: it is too soon to take rows. They are taken soon if `wake` is
    /// readable.
    pub(super) fn answer_only(
        &mut self,
        wake: Option<BorrowedFd<'_>>,
    ) -> Result<bool, RecordError> {
        if self.polled.elapsed() >= self.pace.pause() {
            return Ok(false);
        }
        self.answer_processes();
        let asked = wake.map_or(Ok(false), |wake| any_readable(&[wake], Duration::ZERO))?;
        // The code that a process has mapped can be read only while it lives.
        let is_soon = asked || self.pipeline.stacks.is_some();
        let pause = if is_soon { APART } else { self.pace.pause() };
        Ok(self.polled.elapsed() < pause && !self.rows_wait)
    }

    fn answer_processes(&mut self) {
        let requests = self.sdk.as_mut().map(Server::accept).unwrap_or_default();
        self.drain_process_events();
        self.answer(requests);
    }

    pub(super) fn poll(&mut self) -> Result<(), RecordError> {
        self.answer_processes();
        self.rows_wait = false;
        if let Some(steal) = &mut self.steal
            && !self.processes.is_empty()
        {
            steal.tick(self.pace.is_idle());
        }
        let before_drain = Monotonic::now().0;
        let (mut ended, names) = self.kernel.ended();
        let mut batch = self
            .pipeline
            .open(&mut self.clock, self.steal.as_ref(), &names);
        ended.sockets(|row| batch.enter_socket(row));
        ended.slices(|slice| self.requests.take(slice));
        for finished in self.requests.advance(before_drain) {
            batch.enter_request(finished);
        }
        batch.settle_requests(false);
        ended.probes(|row| batch.enter_probe(row));
        if let Some(sdk) = &mut self.sdk {
            sdk.drain(&mut batch);
        }
        self.attach_tls();
        self.learn_interpreters();
        let joined = self.join_stacks();
        let ticked = self.pipeline.output.tick(Instant::now());
        match self.pipeline.trouble.take() {
            Some(e) => Err(e.into()),
            None => Ok(joined.and(ticked)?),
        }
    }

    /// Gives the rows that ended their stacks. What the kernel sampled before a span's end is there
    /// when its row is: so the samples are taken after the rows.
    pub(super) fn join_stacks(&mut self) -> Result<(), tailscope_trace::Error> {
        let ended = std::mem::take(&mut self.ended_processes);
        let Some(stacks) = &mut self.pipeline.stacks else {
            return Ok(());
        };
        self.kernel.stacks(|sample| stacks.take(&sample));
        let now = Monotonic::now().0;
        for pid in ended {
            stacks.forget_process(pid, now);
        }
        stacks.join(self.pipeline.output.ledger(), now)
    }

    /// Shows in which functions the slow spans of the last seconds were.
    pub(super) fn show_code(&mut self) {
        let RowPipeline { stacks, live, .. } = &mut self.pipeline;
        if let Some(stacks) = stacks {
            let now = Monotonic::now().0;
            let window = live.window(Instant::now()).as_nanos() as u64;
            stacks.show(live, now.saturating_sub(window), now);
        }
    }

    /// Has requests over TLS read in the processes in which some came in of late: their names, and the
    /// frames of HTTP/2.
    fn attach_tls(&mut self) {
        let mut new = self.requests.take_encrypted();
        let Some(tls) = &mut self.tls else { return };
        new.retain(|pid| self.processes.contains(pid));
        let mut notices = tls.attach(&mut self.kernel, &new);
        if self.requests.has_http2_over_tls()
            && let Some(notice) = tls.attach_to_writes(&mut self.kernel)
        {
            if notice.is_ok() {
                self.requests.sees_writes_from(Monotonic::now().0);
            }
            notices.push(notice.unwrap_or_else(|why| why));
        }
        notices
            .into_iter()
            .for_each(|notice| self.notices.say_once(notice));
    }

    fn answer(&mut self, requests: Vec<ConnectionRequest>) {
        let outdated = self.sdk.as_ref().map(|sdk| sdk.outdated(&requests));
        for pid in outdated.unwrap_or_default() {
            self.forget_client(pid);
        }
        let Some(sdk) = &mut self.sdk else { return };
        let (processes, programs) = (&self.processes, &self.programs);
        sdk.answer(
            requests,
            &mut self.kernel.sdk(),
            |pid| processes.contains(&pid),
            |pid| programs.contains(&pid),
        );
        sdk.heartbeat(Cycles::now(), self.clock.hz());
        for problem in sdk.take_problems() {
            self.notices.say(problem);
        }
    }
}

/// Waits until one of these is readable, at most for `patience`; interrupted by a signal, it counts as if one were.
fn any_readable(fds: &[BorrowedFd<'_>], patience: Duration) -> Result<bool, RecordError> {
    let mut fds: Vec<PollFd<'_>> = fds
        .iter()
        .map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN))
        .collect();
    let patience = Timespec {
        tv_sec: patience.as_secs() as i64,
        tv_nsec: patience.subsec_nanos().into(),
    };
    match poll(&mut fds, Some(&patience)) {
        Ok(readable) => Ok(readable > 0),
        Err(rustix::io::Errno::INTR) => Ok(true),
        Err(e) => Err(RecordError::Wait(e.into())),
    }
}
