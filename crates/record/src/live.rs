//! Statistics while it runs, by kind of span: of the last seconds, and since the begin. They are
//! for looking at; estimates with intervals are made from a ledger.
//!
//! Each kind has five periods of two seconds, and the sum of all older ones. At most 64 kinds have
//! figures of their own. All further kinds together are `(other)`.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;
use tailscope_process::owner;
use tailscope_trace::{Cause, SpanName, SpanRow};

use crate::tally::Tally;

/// The last seconds are held in periods of this length, so that old ones can be let go.
const PERIOD: Duration = Duration::from_secs(2);
/// Of which there are so many: the last seconds are 8 to 10.
const PERIODS: usize = 5;
/// So many kinds have figures of their own. A kind takes some 200 KiB, 0.5 MiB at the very most.
const MOST_KINDS: usize = 64;
/// So many names of users are remembered, and so many processes' users.
const MOST_NAMES: usize = 65_536;
const MOST_OWNERS: usize = 65_536;
/// The user of a process that is gone, and of all further kinds.
const NOBODY: u32 = u32::MAX;
/// The name of all further kinds together.
const OTHER_KINDS: &str = "(other)";

/// The figures of all kinds of spans.
#[derive(Debug, Default)]
pub struct Live {
    kinds: Vec<Kind>,
    /// The kind of each user's spans of a name, as far as they were met.
    by_name: FxHashMap<(u32, SpanName), u8>,
    /// Kinds that are counted as `(other)`.
    folded: usize,
    began: Option<Instant>,
    advanced: Option<Instant>,
    /// The period that rows are entered into, and how many of the others were, up to all.
    now: usize,
    full: u32,
}

/// Whose each process is, as far as they were met.
#[derive(Debug, Default)]
pub(crate) struct Owners(FxHashMap<u32, u32>);

impl Owners {
    /// The user id. Numbers of processes are used again, so it is asked anew after a while.
    pub(crate) fn user_of(&mut self, pid: u32) -> u32 {
        if self.0.len() >= MOST_OWNERS {
            self.0.clear();
        }
        let ask = || owner::of(pid).unwrap_or(NOBODY);
        *self.0.entry(pid).or_insert_with(ask)
    }
}

/// A function in which slow spans were.
#[derive(Debug, Clone, PartialEq)]
pub struct Code {
    /// What they spent there; `None`: they were running.
    pub cause: Option<Cause>,
    /// The function, and its callers, the next first, as far as they are known.
    pub functions: Vec<String>,
    /// The mean time of a span at or above p99 of the last seconds, in ns.
    pub ns: f64,
}

/// The figures of the spans of one name.
#[derive(Debug)]
pub struct Kind {
    name: Arc<str>,
    /// Whose spans they are.
    user: u32,
    past: Tally,
    periods: [Tally; PERIODS],
    /// What was rounded off the weights so far.
    carry: f64,
    code: Vec<Code>,
}

impl Live {
    /// Enters a row as one of a user's spans of a name. `text`: what these are called, asked when the
    /// first of them comes.
    pub fn enter(
        &mut self,
        row: &SpanRow,
        (user, name): (u32, SpanName),
        text: impl FnOnce() -> Arc<str>,
    ) {
        let kind = match self.by_name.get(&(user, name)) {
            Some(kind) => *kind,
            None => self.adopt(user, name, text),
        };
        self.kinds[usize::from(kind)].enter(row, self.now);
    }

    /// A place for a new kind. Where there is none, the user who has the most kinds gives one up, or gets
    /// none: whose names are few keeps them all, whatever others do.
    fn adopt(&mut self, user: u32, span: SpanName, name: impl FnOnce() -> Arc<str>) -> u8 {
        let place = if self.kinds.len() < MOST_KINDS {
            self.kinds.push(Kind::new(name(), user));
            self.kinds.len() - 1
        } else {
            self.folded += 1;
            if self.kinds.len() == MOST_KINDS {
                self.kinds.push(Kind::new(OTHER_KINDS.into(), NOBODY));
            }
            match self.given_up_for(user) {
                Some(place) => {
                    let given_up =
                        std::mem::replace(&mut self.kinds[place], Kind::new(name(), user));
                    self.kinds[MOST_KINDS].take_in(&given_up);
                    let others = MOST_KINDS as u8;
                    for kind in self.by_name.values_mut() {
                        if usize::from(*kind) == place {
                            *kind = others;
                        }
                    }
                    place
                }
                None => MOST_KINDS,
            }
        };
        if self.by_name.len() < MOST_NAMES {
            self.by_name.insert((user, span), place as u8);
        }
        place as u8
    }

    /// The place with the fewest rows of the user who has the most kinds, if that is another, with at
    /// least two more than this one.
    fn given_up_for(&self, user: u32) -> Option<usize> {
        let of_their_own = &self.kinds[..MOST_KINDS];
        let count = |user| of_their_own.iter().filter(|kind| kind.user == user).count();
        let greedy = of_their_own
            .iter()
            .map(|kind| kind.user)
            .max_by_key(|user| count(*user))?;
        if count(greedy) < count(user) + 2 {
            return None;
        }
        (0..MOST_KINDS)
            .filter(|place| of_their_own[*place].user == greedy)
            .min_by_key(|place| of_their_own[*place].rows())
    }

    /// Lets time pass: to be called at every look, before its rows.
    pub fn advance(&mut self, now: Instant) {
        let (_, advanced) = (
            self.began.get_or_insert(now),
            self.advanced.get_or_insert(now),
        );
        let mut passed = 0;
        while now.saturating_duration_since(*advanced) >= PERIOD {
            *advanced += PERIOD;
            passed += 1;
            if passed <= PERIODS {
                self.now = (self.now + 1) % PERIODS;
                self.full = (self.full + 1).min(PERIODS as u32 - 1);
                self.kinds.iter_mut().for_each(|kind| kind.let_go(self.now));
            }
        }
    }

    /// All kinds, in the order in which they came.
    #[must_use]
    pub fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    /// Gives kinds, by their places, the functions in which their slow spans were, and others none.
    pub(crate) fn set_code(&mut self, mut code: HashMap<usize, Vec<Code>>) {
        for (place, kind) in self.kinds.iter_mut().enumerate() {
            kind.code = code.remove(&place).unwrap_or_default();
        }
    }

    /// How many kinds are counted together as `(other)`, for want of room.
    #[must_use]
    pub fn folded(&self) -> usize {
        self.folded
    }

    /// How long the last seconds are that [`Kind::recent`] counts.
    #[must_use]
    pub fn window(&self, now: Instant) -> Duration {
        self.advanced.map_or(Duration::ZERO, |advanced| {
            PERIOD * self.full + now.saturating_duration_since(advanced)
        })
    }

    /// Since when [`Kind::total`] counts.
    #[must_use]
    pub fn age(&self, now: Instant) -> Duration {
        self.began
            .map_or(Duration::ZERO, |began| now.saturating_duration_since(began))
    }

    /// All kinds together since the begin.
    #[must_use]
    pub fn total(&self) -> Tally {
        self.kinds.iter().fold(Tally::default(), |mut sum, kind| {
            kind.add_total(&mut sum);
            sum
        })
    }
}

impl Kind {
    fn new(name: Arc<str>, user: u32) -> Self {
        Self {
            name,
            user,
            past: Tally::default(),
            periods: Default::default(),
            carry: 0.0,
            code: Vec::new(),
        }
    }

    fn enter(&mut self, row: &SpanRow, period: usize) {
        // Counts are whole: what is rounded off here is counted with a later row.
        self.carry += row.weight;
        let spans = self.carry.floor();
        self.carry -= spans;
        self.periods[period].enter(row, spans as u64);
    }

    /// Empties the oldest period for what comes.
    fn let_go(&mut self, period: usize) {
        self.past.add(&self.periods[period]);
        self.periods[period].clear();
    }

    fn add_total(&self, sum: &mut Tally) {
        sum.add(&self.past);
        self.periods.iter().for_each(|period| sum.add(period));
    }

    /// Takes in the rows of a kind that is given up.
    fn take_in(&mut self, other: &Self) {
        other.add_total(&mut self.past);
    }

    fn rows(&self) -> u64 {
        self.past.rows() + self.periods.iter().map(Tally::rows).sum::<u64>()
    }

    /// The functions in which the slow ones of the last seconds were, those with the most time first. Empty
    /// unless stacks are sampled for a screen.
    #[must_use]
    pub fn code(&self) -> &[Code] {
        &self.code
    }

    /// The user id whose processes' spans they are, as [rows](Live::enter) have it.
    pub(crate) fn user_id(&self) -> u32 {
        self.user
    }

    /// The user id whose processes' spans they are; `None`: of several users, or nobody knows.
    #[must_use]
    pub fn user(&self) -> Option<u32> {
        (self.user != NOBODY).then_some(self.user)
    }

    /// The spans' name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The spans that came in the last seconds, as many as [`Live::window`] says.
    #[must_use]
    pub fn recent(&self) -> Tally {
        self.periods
            .iter()
            .fold(Tally::default(), |mut sum, period| {
                sum.add(period);
                sum
            })
    }

    /// All since the begin.
    #[must_use]
    pub fn total(&self) -> Tally {
        let mut sum = Tally::default();
        self.add_total(&mut sum);
        sum
    }
}

#[cfg(test)]
mod tests;
