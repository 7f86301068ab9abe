//! What happens after each poll of the recorder: requests go to their phases, and it is decided
//! how much is lent.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::to_vec;
use tailscope_borrow::{
    Account, BorrowError, Controller, Ending, Intervals, Lender, Pace, Report, Slo, Span,
};
use tailscope_record::{Listener, Live, Progress, Tap};
use tailscope_trace::Cause;

use crate::screen::Screen;
use crate::units::time;

/// How often it is decided anew how much is lent.
const STEER_EVERY: Duration = Duration::from_millis(500);
/// How often the figures for `status` are renewed.
const STATUS_EVERY: Duration = Duration::from_secs(1);
/// With an SLO, without an order for so long, the keeper holds the batch back.
const LEASE_NS: u64 = 3_000_000_000;
/// The most requests that wait for the next poll.
const MOST_TAPPED: usize = 500_000;

/// The requests since the last poll, and how many were too many.
type Tapped = Arc<Mutex<(Vec<Span>, u64)>>;

/// The lender's side of a recording.
pub struct Watch {
    lender: Lender,
    account: Account,
    controller: Option<Controller>,
    pace: Pace,
    tapped: Tapped,
    stop: Arc<AtomicBool>,
    screen: Screen,
    steered: Instant,
    saved: Instant,
    error: Option<BorrowError>,
    /// The batch has been ended: nothing is lent and nothing is saved any more.
    over: bool,
}

impl Watch {
    pub fn new(
        lender: Lender,
        slo: Option<Slo>,
        pace: Pace,
        screen: Screen,
        stop: Arc<AtomicBool>,
    ) -> Self {
        let controller = slo.map(|slo| Controller::new(slo, pace.on_share));
        let pace = Pace {
            lease_ns: controller.is_some().then_some(LEASE_NS),
            on_share: controller.as_ref().map_or(pace.on_share, Controller::share),
            ..pace
        };
        Self {
            lender,
            account: Account::new(slo),
            controller,
            pace,
            tapped: Tapped::default(),
            stop,
            screen,
            steered: Instant::now(),
            saved: Instant::now(),
            error: None,
            over: false,
        }
    }

    /// What every recorded request goes through. `unix_at_0`: Unix time when the monotonic clock was 0.
    pub fn tap(&self, unix_at_0: i64) -> Tap {
        let tapped = Arc::clone(&self.tapped);
        Box::new(move |row, _, _| {
            let waited = [Cause::Runqueue, Cause::Preempted].map(|c| row.cause_ns[c.index()]);
            let span = Span {
                start_ns: row.start_ns.saturating_sub(unix_at_0).max(0) as u64,
                wall_ns: row.wall_ns.max(0) as u64,
                waited_ns: waited.iter().sum::<i64>().max(0) as u64,
            };
            let mut tapped = tapped.lock().unwrap_or_else(PoisonError::into_inner);
            if tapped.0.len() < MOST_TAPPED {
                tapped.0.push(span);
            } else {
                tapped.1 += 1;
            }
        })
    }

    /// Starts the batch command.
    pub fn begin(&mut self) {
        self.lender.lend(self.pace);
        self.lender.go();
    }

    /// Takes what the keeper and the recorder have told since the last time.
    fn take(&mut self) {
        match self.lender.messages() {
            Ok(messages) => messages.iter().for_each(|m| self.account.hear(m)),
            Err(e) => {
                self.error.get_or_insert(e);
            }
        }
        self.assign();
    }

    fn assign(&mut self) {
        let (spans, lost) =
            std::mem::take(&mut *self.tapped.lock().unwrap_or_else(PoisonError::into_inner));
        spans.into_iter().for_each(|span| self.account.enter(span));
        self.account.lose(lost);
        let controller = &mut self.controller;
        self.account.assign(|on, span| {
            if let Some(controller) = controller {
                controller.enter(on, span.wall_ns);
            }
        });
    }

    fn steer(&mut self) {
        let passed = self.steered.elapsed();
        if passed < STEER_EVERY {
            return;
        }
        self.steered = Instant::now();
        if let Some(controller) = &mut self.controller {
            self.pace.on_share = controller.step(passed);
        }
        self.pace.shortest_ns = self.account.shortest_phase_ns();
        self.lender.lend(self.pace);
    }

    fn save(&mut self) {
        if self.saved.elapsed() < STATUS_EVERY {
            return;
        }
        self.saved = Instant::now();
        let report = self.report_with(Intervals::Without);
        if let Ok(json) = to_vec(&report) {
            // Who can't be asked goes on lending.
            let _ = tailscope_output::write(&self.lender.entry.status_path(), json);
        }
    }

    fn report_with(&self, intervals: Intervals) -> Report {
        let slo = self.controller.as_ref().map(|c| (c.slo(), c.share()));
        let entry = &self.lender.entry;
        Report::of(
            &self.account,
            &self.lender.mechanism,
            entry.server,
            &entry.command,
            slo,
            intervals,
        )
    }

    /// Ends the batch command. How it ended, if the keeper knows.
    pub fn end_batch(&mut self) -> Result<Option<Ending>, BorrowError> {
        self.over = true;
        if self.error.is_none() && self.lender.ending().is_none() {
            match self.lender.end() {
                Ok(messages) => messages.iter().for_each(|m| self.account.hear(m)),
                Err(e) => self.error = Some(e),
            }
        }
        self.screen.clear();
        match self.error.take() {
            Some(e) => Err(e),
            None => Ok(self.lender.ending()),
        }
    }

    /// The final figures: nothing comes any more.
    pub fn report(&mut self) -> Report {
        self.assign();
        self.account.close();
        self.report_with(Intervals::With)
    }
}

impl Listener for Watch {
    fn show(&mut self, _: &Live) {
        if self.over {
            return; // the report assigns what the recorder still finds
        }
        self.take();
        if self.lender.ending().is_some() {
            self.over = true;
        }
        if !self.over {
            self.steer();
            self.save();
        }
        if self.error.is_some() || self.lender.ending().is_some() {
            self.stop.store(true, Relaxed);
        }
    }

    fn tell(&mut self, progress: &Progress, notices: &[String]) {
        notices.iter().for_each(|notice| self.screen.notice(notice));
        let p99 = progress.p99_ns.map_or_else(|| "-".to_owned(), time);
        let line = format!(
            "borrowed {} in {}; p99 of the server {p99}",
            time(self.account.borrowed_ns()),
            time(self.account.elapsed_ns()),
        );
        self.screen.progress(progress.elapsed, &line);
    }
}
