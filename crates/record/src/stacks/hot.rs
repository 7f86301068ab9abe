//! In which functions the slow spans of the last seconds were, for a screen.
//!
//! Samples of rows are kept for as long as [`Live`] counts the rows. Once a second, each kind's samples of
//! spans at or above p99 divide the mean of each cause among functions, as explanations do. Functions that
//! a compiler put into others are not told apart from those.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use tailscope_symbols::functions::Functions;
use tailscope_trace::Cause;

use super::blamed::{Call, blamed, callers};
use super::frames::Stack;
use super::names::Namer;
use super::{About, Waiting};
use crate::live::{Code, Live};
use crate::tally::Breakdown;

/// Samples that are kept, at most: the latest.
const MOST_SAMPLES: usize = 1 << 16;
/// Samples that a function must have to be shown.
const FEWEST: u32 = 3;
/// Functions of a kind, at most.
const MOST_FUNCTIONS: usize = 8;
/// Callers that are shown, at most.
const MOST_CALLERS: usize = 2;
/// Perf maps are read this far apart: a process may write more into its own at any time.
const MAPS_EVERY_NS: u64 = 10_000_000_000;

#[derive(Debug)]
struct Sample {
    /// When its row was written, by the kernel's clock.
    written: u64,
    user: u32,
    span: Arc<str>,
    wall_ns: i64,
    weight: f64,
    ns: u64,
    cause: Option<Cause>,
    stack: Stack,
}

/// The functions of a stack.
#[derive(Debug)]
struct Named {
    calls: Vec<Call>,
    whole: bool,
}

impl Named {
    /// Whether it has code that a process made, and whose name was not found.
    fn lacks_names(&self) -> bool {
        self.calls.iter().any(Call::is_unnamed_jit)
    }

    /// The function to which time is put down, with its file, and its callers.
    fn function(&self, cause: Option<Cause>) -> Option<(Function<'_>, Vec<String>)> {
        let place = blamed(&self.calls, cause)?;
        let callers = callers(&self.calls, place, self.whole).take(MOST_CALLERS);
        let call = &self.calls[place];
        Some((
            (call.name(), &call.module),
            callers.map(Call::name).collect(),
        ))
    }
}

/// A function's name, and its file.
type Function<'n> = (String, &'n str);

/// What slow spans have of a function: in all, and by its callers.
#[derive(Debug, Default)]
struct InFunction {
    sum: Sum,
    callers: HashMap<Vec<String>, f64>,
}

impl InFunction {
    /// The callers through which most of it came.
    fn most_frequent_callers(self) -> Vec<String> {
        let most = self
            .callers
            .into_iter()
            .max_by(|a, b| a.1.total_cmp(&b.1).then_with(|| b.0.cmp(&a.0)));
        most.map(|(callers, _)| callers).unwrap_or_default()
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sum {
    ns: f64,
    samples: u32,
}

impl Sum {
    fn add(&mut self, other: Sum) {
        self.ns += other.ns;
        self.samples += other.samples;
    }
}

/// What one kind's slow spans have.
pub(super) type Sums = HashMap<(Option<Cause>, Stack), Sum>;

#[derive(Debug, Default)]
pub(super) struct Hot {
    samples: VecDeque<Sample>,
    named: HashMap<Stack, Named>,
    /// Those of the files that were met.
    pub(super) functions: HashMap<u32, Functions>,
    /// When perf maps were read last.
    maps_read: u64,
}

impl Hot {
    pub(super) fn add(&mut self, about: &About, sample: &Waiting, written: u64) {
        if self.samples.len() >= MOST_SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back(Sample {
            written,
            user: about.user,
            span: Arc::clone(&about.span),
            wall_ns: about.wall_ns,
            weight: about.weight,
            ns: sample.ns,
            cause: sample.cause,
            stack: sample.stack,
        });
    }

    /// Stacks are numbered anew. Returns how many samples are lost by that.
    pub(super) fn forget_stacks(&mut self) -> usize {
        let lost = self.samples.len();
        self.samples.clear();
        self.named.clear();
        lost
    }

    /// What the samples written since then say of each kind that has slow spans.
    pub(super) fn sums(&mut self, live: &Live, since: u64) -> Vec<(usize, Sums)> {
        let old = self
            .samples
            .partition_point(|sample| sample.written < since);
        self.samples.drain(..old);
        let met: HashSet<_> = self.samples.iter().map(|of| (of.user, &*of.span)).collect();
        let mut places = HashMap::new();
        let mut all = Vec::new();
        for (place, kind) in live.kinds().iter().enumerate() {
            let key = (kind.user_id(), kind.name());
            if met.contains(&key)
                && let Some(from) = kind.recent().tail_from(0.99)
            {
                places.insert(key, (all.len(), from));
                all.push((place, Sums::new()));
            }
        }
        for sample in &self.samples {
            if let Some((place, from)) = places.get(&(sample.user, &*sample.span))
                && sample.wall_ns >= *from as i64
            {
                let sum = all[*place].1.entry((sample.cause, sample.stack));
                sum.or_default().add(Sum {
                    ns: sample.ns as f64 * sample.weight,
                    samples: 1,
                });
            }
        }
        all
    }

    /// Whether perf maps are read now.
    pub(super) fn reads_maps(&mut self, now: u64) -> bool {
        let is_due = self.maps_read == 0 || now.saturating_sub(self.maps_read) >= MAPS_EVERY_NS;
        if is_due {
            self.maps_read = now;
        }
        is_due
    }

    /// Those of these stacks that have no names yet, or may have more by now if perf maps are read. The
    /// names of all others are forgotten.
    pub(super) fn unnamed(&mut self, sums: &[(usize, Sums)], reads_maps: bool) -> HashSet<Stack> {
        let asked = sums.iter().flat_map(|(_, sums)| sums.keys());
        let mut stacks: HashSet<Stack> = asked.map(|(_, stack)| *stack).collect();
        self.named.retain(|stack, _| stacks.contains(stack));
        stacks.retain(|stack| {
            let named = self.named.get(stack);
            named.is_none_or(|named| reads_maps && named.lacks_names())
        });
        stacks
    }

    pub(super) fn name(
        &mut self,
        stack: Stack,
        frames: impl Iterator<Item = super::frames::Frame>,
        whole: bool,
        namer: &mut Namer<'_>,
    ) {
        let calls = frames
            .flat_map(|frame| Call::of(namer.name(frame)))
            .collect();
        self.named.insert(stack, Named { calls, whole });
    }

    /// Gives the kinds their functions.
    pub(super) fn show(&self, sums: Vec<(usize, Sums)>, live: &mut Live) {
        let kinds = sums.into_iter().map(|(place, sums)| {
            let tail = live.kinds()[place].recent().tail(0.99);
            (place, self.code_of(sums, &tail))
        });
        let all: HashMap<usize, Vec<Code>> = kinds.collect();
        live.set_code(all);
    }

    fn code_of(&self, sums: Sums, tail: &Breakdown) -> Vec<Code> {
        let mut whole: HashMap<Option<Cause>, f64> = HashMap::new();
        let mut functions: HashMap<(Option<Cause>, Function<'_>), InFunction> = HashMap::new();
        for ((cause, stack), sum) in sums {
            *whole.entry(cause).or_default() += sum.ns;
            let named = self.named.get(&stack);
            if let Some((function, callers)) = named.and_then(|named| named.function(cause)) {
                let entry = functions.entry((cause, function)).or_default();
                entry.sum.add(sum);
                *entry.callers.entry(callers).or_default() += sum.ns;
            }
        }
        functions.retain(|_, of| of.sum.samples >= FEWEST);
        let mut code: Vec<Code> = functions
            .into_iter()
            .map(|((cause, (function, _)), of)| {
                let all = match cause {
                    Some(cause) => tail.cause_ns[cause.index()],
                    None => tail.running_ns(),
                };
                let share = of.sum.ns / whole[&cause].max(1.0);
                let callers = of.most_frequent_callers();
                Code {
                    cause,
                    functions: std::iter::once(function).chain(callers).collect(),
                    ns: all / tail.spans.max(1.0) * share,
                }
            })
            .collect();
        code.sort_by(|a, b| {
            b.ns.total_cmp(&a.ns)
                .then_with(|| a.functions.cmp(&b.functions))
        });
        code.truncate(MOST_FUNCTIONS);
        code
    }
}

#[cfg(test)]
mod tests;
