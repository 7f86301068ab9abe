//! The phases of a recording: with the recorder, and without it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Error;
use tailscope_cost::Estimate;
use tailscope_cost::duty_cycle::{DutyCycle, Spent};
use tailscope_cost::phases::Moment;
use tailscope_record::{End, Listener, Live, Progress, RecordError};
use tailscope_trace::Overhead;

use super::program::Program;
use crate::args::Record;
use crate::record::summary;
use crate::screen::Screen;
use crate::subject::{Resting, Session};

/// The shortest phase, with the time to attach and to detach, and how much of it at least is recorded.
pub const SHORTEST: Duration = Duration::from_millis(1_200);
const SHORTEST_RECORDED: Duration = Duration::from_millis(300);
/// How often a rest is looked at, and after how many looks the processes are.
const LOOK: Duration = Duration::from_millis(20);
const LOOKS: u32 = 20;

/// How the phases ended.
pub struct Outcome {
    /// The recording.
    pub resting: Resting,
    /// Why there are no more.
    pub ended: Result<End, RecordError>,
    /// Why it could not attach again, if that is why.
    pub refused: Option<Error>,
}

/// All phases of a recording.
pub struct Phases<'a> {
    args: &'a Record,
    stop: &'a AtomicBool,
    program: Program,
    cycle: DutyCycle,
    began: Instant,
    /// When this phase began, and what the program had done by then.
    since: Instant,
    before: Moment,
    attached: Duration,
    count: u64,
}

impl<'a> Phases<'a> {
    /// To be made before the recorder attaches for the first time.
    pub fn begin(
        args: &'a Record,
        stop: &'a AtomicBool,
        program: Program,
        cycle: DutyCycle,
    ) -> Self {
        let now = Instant::now();
        Self {
            args,
            stop,
            cycle,
            began: now,
            since: now,
            before: program.now(),
            program,
            attached: Duration::ZERO,
            count: 0,
        }
    }

    /// Since it began.
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Goes from phase to phase, until the time is over, the processes have ended, or a signal comes.
    pub fn run(&mut self, mut session: Session, screen: &mut Screen) -> Outcome {
        loop {
            let (resting, ended) = self.record(session, screen);
            let with = self.program.now().since(&self.before);
            self.attached += with.length();
            // Each phase is that of the same processes from its first moment to its last.
            self.program.follow(&resting.processes());
            let middle = self.program.now();
            let ended = match ended {
                Ok(End::Duration) => self.rest(with.length(), &resting),
                ended => ended.map(Some),
            };
            let after = self.program.now();
            if matches!(ended, Ok(None | Some(End::Duration))) {
                self.cycle.add(with, after.since(&middle));
            }
            if let Some(ended) = ended.transpose() {
                return Outcome {
                    resting,
                    ended,
                    refused: None,
                };
            }
            (self.since, self.before) = (Instant::now(), after);
            session = match resting.resume(&self.args.subject) {
                Ok(session) => session,
                Err((resting, why)) => {
                    return Outcome {
                        resting: *resting,
                        ended: Ok(End::Stopped),
                        refused: Some(why),
                    };
                }
            };
        }
    }

    /// The phase with the recorder.
    fn record(
        &mut self,
        mut session: Session,
        screen: &mut Screen,
    ) -> (Resting, Result<End, RecordError>) {
        let whole = self.cycle.with(self.left());
        let length = whole
            .saturating_sub(self.since.elapsed())
            .max(SHORTEST_RECORDED);
        let mut listener = Whole {
            screen,
            began: self.began,
        };
        let ended = session.recorder.run(Some(length), self.stop, &mut listener);
        let (resting, taken) = session.pause();
        self.count += 1;
        (resting, ended.and_then(|ended| taken.map(|()| ended)))
    }

    /// The phase without it, after one with it of this length, to attach and to detach included. `None`:
    /// the next one comes.
    fn rest(&self, with: Duration, resting: &Resting) -> Result<Option<End>, RecordError> {
        let begin = Instant::now();
        let length = self.cycle.without(with);
        let mut looks = 0;
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Ok(Some(End::Stopped));
            }
            looks += 1;
            if looks % LOOKS == 0 && resting.processes().is_empty() {
                return Ok(Some(End::Exited));
            }
            match self.left() {
                Some(Duration::ZERO) => return Ok(Some(End::Duration)),
                // What is left is too short for another phase.
                Some(left) if self.cycle.with(Some(left)) < SHORTEST => {}
                _ if begin.elapsed() >= length => return Ok(None),
                _ => {}
            }
            sleep(LOOK);
        }
    }

    /// What is left of the recording, if somebody said how long it is.
    fn left(&self) -> Option<Duration> {
        let duration = self.args.duration?;
        Some(duration.saturating_sub(self.elapsed()))
    }

    /// What it has cost so far.
    pub fn spent(&self) -> Spent {
        let whole = self.elapsed().max(self.attached);
        self.cycle.spent(self.attached.div_duration_f64(whole))
    }

    /// The same for the ledger.
    pub fn overhead(&self, budget: f64, spent: &Spent) -> Overhead {
        let three = |of: Estimate| [of.value, of.low, of.high];
        Overhead {
            budget,
            whole_ns: self.elapsed().as_nanos() as u64,
            attached_ns: self.attached.as_nanos() as u64,
            phases: self.count,
            predicted: spent.predicted.map(three),
            measured: spent.overall.map(three),
        }
    }
}

/// Shows the progress of all phases together.
struct Whole<'a> {
    screen: &'a mut Screen,
    began: Instant,
}

impl Listener for Whole<'_> {
    fn show(&mut self, live: &Live) {
        self.screen.show(live);
    }

    fn tell(&mut self, progress: &Progress, notices: &[String]) {
        let elapsed = self.began.elapsed();
        notices.iter().for_each(|notice| self.screen.notice(notice));
        let whole = Progress {
            elapsed,
            ..progress.clone()
        };
        self.screen.progress(elapsed, &summary(&whole));
    }
}
