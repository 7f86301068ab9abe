//! Which requests came with lending on and which with lending off, and how long they took.
//!
//! A request belongs to the phase in which it began. Were requests left out that reach into the next
//! phase, the long ones would be missing more often. For the same reason phases are long beside the
//! server's p99 ([`Account::shortest_phase_ns`]). Requests that begin within 5 ms after a switch count
//! for neither: batch and server still change places.
//!
//! Memory is bounded: at most 256 blocks of phases, of which neighbours are merged; and at most half
//! a million requests that wait for the keeper's word about their phase. What exceeds that is counted.

use std::collections::VecDeque;

use crate::bootstrap::{Block, Intervals, Trio, estimate};
use crate::grid::Grid;
use crate::message::{Message, Usage};
use crate::slo::Slo;

/// After a switch, so long counts for neither kind of phase.
const GUARD_NS: u64 = 5_000_000;
/// A request is reported when its answer is complete, up to two seconds later.
const LATE_NS: u64 = 10_000_000_000;
const MOST_BLOCKS: usize = 256;
const MOST_WAITING: usize = 500_000;
/// Phases that requests may still come for.
const MOST_OPEN: usize = 1_024;
/// The windows in which an SLO is held or not.
const WINDOW_NS: u64 = 10_000_000_000;
/// The shortest phase of the rarer kind, as a time and as a multiple of the p99.
const SHORTEST_NS: u64 = 100_000_000;
const LONGEST_NS: u64 = 5_000_000_000;
const TIMES_P99: u64 = 20;

/// A request of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// When it began, in ns of the monotonic clock.
    pub start_ns: u64,
    /// How long it took.
    pub wall_ns: u64,
    /// How long its thread waited for a CPU in it.
    pub waited_ns: u64,
}

#[derive(Debug)]
struct Phase {
    on: bool,
    from_ns: u64,
    to_ns: u64,
    grid: Grid,
}

/// Sums over one kind of phase.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Sums {
    pub requests: u64,
    pub waited_ns: u64,
    pub time_ns: u64,
    pub batch_ns: u64,
    pub idle_ns: u64,
    /// Time of all lent CPUs together.
    pub cpu_ns: u64,
}

/// Windows of ten seconds with the SLO held, and not.
#[derive(Debug, Default)]
struct Windows {
    open: VecDeque<(u64, u64, u64)>,
    held: u64,
    broken: u64,
    unknown: u64,
}

/// The figures so far.
#[derive(Debug)]
pub struct Account {
    waiting: Vec<Span>,
    phases: VecDeque<Phase>,
    blocks: Vec<Block>,
    /// The phases that are not in a block yet.
    block: Block,
    pub(crate) on: Sums,
    pub(crate) off: Sums,
    all: Grid,
    /// The keeper's latest word.
    told_ns: u64,
    begun_ns: Option<u64>,
    last: Option<(u64, Usage)>,
    pub(crate) latest: Usage,
    /// How long switches took until the batch stood still, or ran.
    pub(crate) holds: Grid,
    pub(crate) switches: u64,
    /// Requests near a switch, of no phase.
    pub(crate) between: u64,
    /// Requests that came too late, or were too many at once.
    pub(crate) lost: u64,
    slo: Option<Slo>,
    windows: Windows,
}

impl Account {
    /// Without any request.
    #[must_use]
    pub fn new(slo: Option<Slo>) -> Self {
        Self {
            waiting: Vec::new(),
            phases: VecDeque::new(),
            blocks: Vec::new(),
            block: Block::default(),
            on: Sums::default(),
            off: Sums::default(),
            all: Grid::default(),
            told_ns: 0,
            begun_ns: None,
            last: None,
            latest: Usage::default(),
            holds: Grid::default(),
            switches: 0,
            between: 0,
            lost: 0,
            slo,
            windows: Windows::default(),
        }
    }

    /// Takes a request whose phase may not be known yet.
    pub fn enter(&mut self, span: Span) {
        if self.waiting.len() < MOST_WAITING {
            self.waiting.push(span);
        } else {
            self.lost += 1;
        }
    }

    /// Takes what the keeper says.
    pub fn hear(&mut self, message: &Message) {
        match message {
            Message::Switched {
                on,
                from_ns,
                now_ns,
                usage,
            } => {
                if self.begun_ns.is_some() {
                    self.charge(*from_ns, usage);
                    self.switches += 1;
                    self.holds.enter(now_ns.saturating_sub(*from_ns));
                } else {
                    self.latest = usage.clone();
                }
                self.begun_ns.get_or_insert(*now_ns);
                self.last = Some((*now_ns, usage.clone()));
                if let Some(phase) = self.phases.back_mut() {
                    phase.to_ns = *from_ns;
                }
                self.phases.push_back(Phase {
                    on: *on,
                    from_ns: *now_ns,
                    to_ns: u64::MAX,
                    grid: Grid::default(),
                });
                self.told_ns = *now_ns;
            }
            Message::Tick { now_ns, usage } => {
                self.charge(*now_ns, usage);
                self.told_ns = *now_ns;
            }
            Message::Ready(_) | Message::Refused { .. } | Message::Ended(_) => {}
        }
    }

    /// Charges the time since the last figures to the present phase.
    fn charge(&mut self, now_ns: u64, usage: &Usage) {
        let on = self.phases.back().is_some_and(|phase| phase.on);
        let sums = if on { &mut self.on } else { &mut self.off };
        if let Some((last_ns, last)) = &self.last {
            let passed = now_ns.saturating_sub(*last_ns);
            sums.time_ns += passed;
            sums.cpu_ns += passed * usage.cpus.len() as u64;
            sums.batch_ns += usage.batch_ns.saturating_sub(last.batch_ns);
            sums.idle_ns += usage.idle_ns.saturating_sub(last.idle_ns);
        }
        self.last = Some((now_ns, usage.clone()));
        self.latest = usage.clone();
    }

    /// Gives the requests that wait to their phases, as far as the keeper has told. `each` gets those
    /// that count, with whether lending was on.
    pub fn assign(&mut self, mut each: impl FnMut(bool, Span)) {
        let told_ns = self.told_ns;
        let (known, waiting): (Vec<_>, Vec<_>) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|span| span.start_ns < told_ns);
        self.waiting = waiting;
        for span in known {
            if self.begun_ns.is_none_or(|begun| span.start_ns < begun) {
                continue; // before the batch began
            }
            self.all.enter(span.wall_ns);
            if let Some(slo) = self.slo {
                self.windows.enter(span, slo);
            }
            let after = self.phases.partition_point(|p| p.from_ns <= span.start_ns);
            let Some(phase) = after.checked_sub(1).and_then(|i| self.phases.get_mut(i)) else {
                self.lost += 1;
                continue;
            };
            if span.start_ns < phase.from_ns + GUARD_NS || span.start_ns >= phase.to_ns {
                self.between += 1;
                continue;
            }
            phase.grid.enter(span.wall_ns);
            let sums = if phase.on {
                &mut self.on
            } else {
                &mut self.off
            };
            sums.requests += 1;
            sums.waited_ns += span.waited_ns;
            each(phase.on, span);
        }
        self.seal(told_ns.saturating_sub(LATE_NS));
        if let Some(slo) = self.slo {
            self.windows.close(told_ns.saturating_sub(LATE_NS), slo);
        }
    }

    /// Puts phases into blocks that ended before this moment.
    fn seal(&mut self, before_ns: u64) {
        while self.phases.len() > MOST_OPEN
            || self.phases.front().is_some_and(|p| p.to_ns < before_ns)
        {
            let Some(phase) = self.phases.pop_front() else {
                return;
            };
            if phase.on {
                self.block.on.add(&phase.grid);
            } else {
                self.block.off.add(&phase.grid);
                let block = std::mem::take(&mut self.block);
                self.blocks.push(block);
            }
            if self.blocks.len() >= MOST_BLOCKS {
                self.blocks = merged(&self.blocks);
            }
        }
    }

    /// Takes in all that is still open: nothing comes any more.
    pub fn close(&mut self) {
        self.told_ns = u64::MAX;
        self.assign(|_, _| {});
        if let Some(phase) = self.phases.back_mut() {
            phase.to_ns = phase.to_ns.min(u64::MAX - 1);
        }
        self.seal(u64::MAX);
        let block = std::mem::take(&mut self.block);
        if block.on.count() + block.off.count() > 0 {
            self.blocks.push(block);
        }
        if let Some(slo) = self.slo {
            self.windows.close(u64::MAX, slo);
        }
    }

    /// How long the rarer kind of phase should be, so that few requests reach into the next.
    #[must_use]
    pub fn shortest_phase_ns(&self) -> u64 {
        let p99 = self.all.quantile(0.99).unwrap_or(0);
        p99.saturating_mul(TIMES_P99).clamp(SHORTEST_NS, LONGEST_NS)
    }

    /// Counts requests that were lost before they came here.
    pub fn lose(&mut self, requests: u64) {
        self.lost += requests;
    }

    /// CPU time of the batch so far, in ns.
    #[must_use]
    pub fn borrowed_ns(&self) -> u64 {
        self.latest.batch_ns
    }

    /// Requests since the batch began.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.all.count()
    }

    /// How long ago the batch began.
    #[must_use]
    pub fn elapsed_ns(&self) -> u64 {
        let last = self.last.as_ref().map_or(0, |(last, _)| *last);
        last.saturating_sub(self.begun_ns.unwrap_or(last))
    }

    pub(crate) fn quantiles(&self, of: &[f64], intervals: Intervals) -> Vec<Trio> {
        let mut blocks = self.blocks.clone();
        let mut open = self.block.clone();
        for phase in &self.phases {
            let grid = if phase.on {
                &mut open.on
            } else {
                &mut open.off
            };
            grid.add(&phase.grid);
        }
        blocks.push(open);
        estimate(&blocks, of, intervals)
    }

    /// The quantile over all requests, whatever was lent.
    pub(crate) fn overall(&self, q: f64) -> Option<u64> {
        self.all.quantile(q)
    }

    /// Windows of ten seconds in which the SLO was held, was not, and could not be known.
    pub(crate) fn windows(&self) -> [u64; 3] {
        [self.windows.held, self.windows.broken, self.windows.unknown]
    }
}

/// Every two neighbours made one.
fn merged(blocks: &[Block]) -> Vec<Block> {
    let pairs = blocks.chunks(2).map(|pair| {
        let mut sum = Block::default();
        for block in pair {
            sum.on.add(&block.on);
            sum.off.add(&block.off);
        }
        sum
    });
    pairs.collect()
}

impl Windows {
    fn enter(&mut self, span: Span, slo: Slo) {
        let window = span.start_ns / WINDOW_NS;
        let place = self.open.partition_point(|(number, ..)| *number < window);
        if self.open.get(place).is_none_or(|(n, ..)| *n != window) {
            self.open.insert(place, (window, 0, 0));
        }
        let (_, requests, slow) = &mut self.open[place];
        *requests += 1;
        *slow += u64::from(span.wall_ns > slo.limit_ns);
    }

    fn close(&mut self, before_ns: u64, slo: Slo) {
        while let Some((window, requests, slow)) = self.open.front().copied() {
            if (window + 1) * WINDOW_NS > before_ns {
                return;
            }
            self.open.pop_front();
            let allowed = (1.0 - slo.quantile) * requests as f64 + 1e-6;
            if allowed < 1.0 {
                self.unknown += 1;
            } else if slow as f64 <= allowed {
                self.held += 1;
            } else {
                self.broken += 1;
            }
        }
    }
}

#[cfg(test)]
#[path = "account_tests.rs"]
mod tests;
