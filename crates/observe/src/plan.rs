//! When the observer is on, and at which period.
//!
//! A run consists of phases with reading and pauses without. A phase lasts 4 to 8 ms, a pause 2 to
//! 4 ms, both at random. They last longer if that is too short for enough samples, or for enough
//! progress of the application. A pause follows one phase in four, or every phase under a budget.

use fastrand::Rng;
use tailscope_signals::clock::Cycles;

use crate::budget::Search;
use crate::effect::Phase;
use crate::options::Options;
use crate::pace::Period;

/// A phase has to hold so many samples,
const FEWEST_SAMPLES: u64 = 20;
/// and so much progress of the application, that one count more or less is little of it,
const FEWEST_PROGRESS: f64 = 200.0;
/// but for that it does not last longer than so many seconds.
const LONGEST: f64 = 0.1;
/// Seconds of a search before what is reported, where a run has no given end.
const SEARCH: f64 = 10.0;

/// A piece of time to come.
pub(crate) struct Next {
    pub(crate) on: bool,
    pub(crate) cycles: u64,
}

/// What follows from a phase.
pub(crate) enum Learnt {
    Nothing,
    /// The search goes on with another period.
    Period(Period),
    /// The first half of a search is over: with this one begins what is reported.
    Found(Period),
}

/// Chooses each piece of time after the one before.
pub(crate) struct Plan {
    period: Period,
    pauses: bool,
    search: Option<Search>,
    /// When what is reported begins, under a budget; never: it has begun.
    reported_from: u64,
    was_on: bool,
    hz: f64,
    /// The application's progress so far, and the cycles that it took.
    progress: f64,
    cycles: f64,
    random: Rng,
}

impl Plan {
    pub(crate) fn new(options: &Options, hz: u64) -> Self {
        let hz = hz as f64;
        let whole = options.duration.map_or(2.0 * SEARCH, |d| d.as_secs_f64());
        let search = options.budget.map(|budget| Search::new(budget.0));
        Self {
            period: match &search {
                Some(search) => Period::Cycles(search.period()),
                None => options.period,
            },
            pauses: options.pauses,
            search,
            reported_from: Cycles::now().0 + (whole / 2.0 * hz) as u64,
            was_on: false,
            hz,
            progress: 0.0,
            cycles: 0.0,
            random: Rng::with_seed(options.seed ^ Cycles::now().0),
        }
    }

    /// The period to begin with.
    pub(crate) fn period(&self) -> Period {
        self.period
    }

    /// Lengths and order are random, so that nothing periodic in the application meets them. With a
    /// budget half of the phases are without the observer, else about one in five, and shorter.
    pub(crate) fn next(&mut self) -> Next {
        let often = if self.search.is_some() { 1.0 } else { 0.25 };
        let on = !self.pauses || !self.was_on || self.random.f64() >= often;
        self.was_on = on;
        let ms = if on { 4.0 } else { 2.0 } * (1.0 + self.random.f64());
        let for_samples = match self.period {
            Period::Cycles(cycles) if on => cycles.saturating_mul(FEWEST_SAMPLES),
            _ => 0,
        };
        let for_progress = FEWEST_PROGRESS * self.cycles / self.progress.max(1.0);
        let for_progress = for_progress.min(LONGEST * self.hz) as u64;
        Next {
            on,
            cycles: ((ms / 1e3 * self.hz) as u64)
                .max(for_samples)
                .max(for_progress),
        }
    }

    /// The search never ends: what a sample takes can change at any time.
    pub(crate) fn learn(&mut self, phase: Phase) -> Learnt {
        self.progress += phase.progress as f64;
        self.cycles += phase.cycles as f64;
        let Some(search) = &mut self.search else {
            return Learnt::Nothing;
        };
        let found = search.take(phase).map(Period::Cycles);
        self.period = found.unwrap_or(self.period);
        if Cycles::now().0 >= self.reported_from {
            self.reported_from = u64::MAX;
            return Learnt::Found(self.period);
        }
        found.map_or(Learnt::Nothing, Learnt::Period)
    }
}
