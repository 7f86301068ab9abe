//! The recorder of an agent, or what it left while it rests.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tailscope_record::{Closing, Counted, Kind, Live, Options, Paused, RecordError, Recorder};

/// How often a rest is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// One of both is there.
pub(super) struct Recording {
    attached: Option<Box<Recorder>>,
    resting: Option<Box<Paused>>,
}

impl Recording {
    pub(super) fn of(recorder: Recorder) -> Self {
        Self {
            attached: Some(Box::new(recorder)),
            resting: None,
        }
    }

    /// The recorder, unless it rests.
    pub(super) fn attached(&mut self) -> Option<&mut Recorder> {
        self.attached.as_deref_mut()
    }

    /// The same, to be read.
    pub(super) fn recorder(&self) -> Option<&Recorder> {
        self.attached.as_deref()
    }

    /// A recorder takes the place of the present one, which is given back.
    pub(super) fn replace(&mut self, next: Recorder) -> Option<Box<Recorder>> {
        self.attached.replace(Box::new(next))
    }

    /// Waits for the next look, and takes what came since the last. During a rest it waits for `wake` alone.
    pub(super) fn round(&mut self, wake: BorrowedFd<'_>) -> Result<(), RecordError> {
        if let Some(recorder) = &mut self.attached {
            return recorder.round(Some(wake));
        }
        let look = Timespec {
            tv_sec: 0,
            tv_nsec: LOOK.subsec_nanos().into(),
        };
        let mut wake = [PollFd::new(&wake, PollFlags::IN)];
        // Interrupted by a signal, it looks a little early.
        let _ = poll(&mut wake, Some(&look));
        Ok(())
    }

    /// Detaches from everything. What goes wrong with the last rows is given back.
    pub(super) fn rest(&mut self) -> Result<(), RecordError> {
        let Some(recorder) = self.attached.take() else {
            return Ok(());
        };
        let (paused, taken) = recorder.pause();
        self.resting = Some(Box::new(paused));
        taken
    }

    /// Attaches again after a rest. Nobody is watched yet; gives back what had been counted, and the
    /// processes that were watched and still run.
    pub(super) fn resume(
        &mut self,
        options: &Options,
    ) -> Result<Option<(Counted, Vec<u32>)>, RecordError> {
        let Some(resting) = self.resting.take() else {
            return Ok(None);
        };
        let counted = resting.counted().clone();
        let watched = resting.processes().map(|process| process.pid).collect();
        match resting.resume(options) {
            Ok(recorder) => {
                self.attached = Some(Box::new(recorder));
                Ok(Some((counted, watched)))
            }
            Err((resting, why)) => {
                self.resting = Some(resting);
                Err(why)
            }
        }
    }

    /// What the present recorder has counted, or had before it rested.
    pub(super) fn counted(&self) -> Counted {
        let resting = || {
            self.resting
                .as_ref()
                .map(|resting| resting.counted().clone())
        };
        let attached = self.attached.as_ref().map(|recorder| recorder.counted());
        attached.or_else(resting).unwrap_or_default()
    }

    /// The figures of all kinds of spans so far.
    pub(super) fn kinds(&self) -> &[Kind] {
        let resting = || self.resting.as_ref().map(|resting| resting.live());
        let live = self.recorder().map(Recorder::live).or_else(resting);
        live.map_or(&[], Live::kinds)
    }

    /// How many processes are watched, or will be again.
    pub(super) fn watched(&self) -> usize {
        let resting = || {
            self.resting
                .as_ref()
                .map(|resting| resting.processes().count())
        };
        let attached = self.recorder().map(|recorder| recorder.processes().len());
        attached.or_else(resting).unwrap_or(0)
    }

    /// Ends the ledger: it gets no more rows, and nobody else does.
    pub(super) fn end_ledger(&mut self) -> Option<Closing> {
        if let Some(recorder) = &mut self.attached {
            let closing = recorder.end_ledger();
            recorder.tap(None);
            return closing;
        }
        let resting = self.resting.as_mut()?;
        resting.untap();
        resting.end_ledger()
    }
}
