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
mod tests {
    use std::time::Instant;

    use tailscope_trace::{Names, SpanRow};

    use super::*;

    const USER: u32 = 1000;

    struct Stage {
        hot: Hot,
        live: Live,
        names: Names,
    }

    impl Stage {
        /// 200 requests of 1 ms, of which four took 10 ms, with 8 ms for a lock.
        fn new() -> Self {
            let mut stage = Self {
                hot: Hot::default(),
                live: Live::default(),
                names: Names::default(),
            };
            stage.live.advance(Instant::now());
            let span = stage.names.intern("get");
            for number in 0..200 {
                let is_slow = number % 50 == 7;
                let mut row = SpanRow {
                    wall_ns: if is_slow { 10_000_000 } else { 1_000_000 },
                    weight: 1.0,
                    ..SpanRow::default()
                };
                row.cause_ns[Cause::Lock.index()] = if is_slow { 8_000_000 } else { 0 };
                let text = || Arc::clone(stage.names.text(span));
                stage.live.enter(&row, (USER, span), text);
            }
            stage
        }

        fn sample(&mut self, wall_ns: i64, cause: Option<Cause>, ns: u64, stack: u32) {
            let about = About {
                row: 0,
                span: "get".into(),
                pid: 1,
                user: USER,
                start_ns: 0,
                wall_ns,
                weight: 1.0,
                to_unix: 0,
            };
            let stack = Stack(stack);
            let at = 0;
            let waiting = Waiting {
                at,
                ns,
                cause,
                stack,
            };
            self.hot.add(&about, &waiting, 100);
        }

        fn name(&mut self, stack: u32, functions: &[&str]) {
            let call = |name: &&str| Call {
                function: (*name).to_owned(),
                module: "/srv/server".into(),
                ..Call::default()
            };
            let calls = functions.iter().map(call).collect();
            let named = Named { calls, whole: true };
            self.hot.named.insert(Stack(stack), named);
        }

        fn shown(&mut self, since: u64) -> Vec<(Option<Cause>, Vec<String>, f64)> {
            let sums = self.hot.sums(&self.live, since);
            self.hot.show(sums, &mut self.live);
            let code = self.live.kinds()[0].code().iter().cloned();
            code.map(|code| (code.cause, code.functions, (code.ns / 1e4).round() / 100.0))
                .collect()
        }
    }

    #[test]
    fn slow_spans_divide_the_mean_of_a_cause_among_their_functions() {
        let mut stage = Stage::new();
        stage.name(1, &["store", "handle", "serve", "main"]);
        stage.name(2, &["__lll_lock_wait", "load", "handle"]);
        stage.name(3, &["parse"]);
        for _ in 0..3 {
            stage.sample(10_000_000, Some(Cause::Lock), 3_000_000, 1);
            stage.sample(10_000_000, Some(Cause::Lock), 1_000_000, 2);
            stage.sample(10_000_000, None, 1_000_000, 3);
            stage.sample(1_000_000, None, 1_000_000, 1); // not slow
        }
        stage.sample(10_000_000, Some(Cause::Io), 1_000_000, 3); // once says nothing
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let expected = [
            (Some(Cause::Lock), names(&["store", "handle", "serve"]), 6.0),
            (Some(Cause::Lock), names(&["load", "handle"]), 2.0),
            (None, names(&["parse"]), 2.0),
        ];
        assert_eq!(stage.shown(100), expected);
        assert_eq!(stage.shown(101), [], "they are old");
    }

    #[test]
    fn a_function_counts_once_whoever_calls_it() {
        let mut stage = Stage::new();
        for (stack, caller) in [(1, "put"), (2, "get"), (3, "get")] {
            stage.name(stack, &["copy", caller]);
            stage.sample(10_000_000, None, 1_000_000, stack);
        }
        stage.hot.samples[1].ns += 1; // `get` has more of it
        stage.name(4, &["parse", "get"]);
        (0..2).for_each(|_| stage.sample(10_000_000, None, 1_000_000, 4));
        let shown = stage.shown(0);
        assert_eq!(shown.len(), 1, "two samples say nothing: {shown:?}");
        assert_eq!(shown[0].1, ["copy", "get"]);
    }

    #[test]
    fn a_stack_is_named_once_unless_it_has_jit_code_without_a_name() {
        let mut stage = Stage::new();
        for stack in [1, 2, 3] {
            stage.sample(10_000_000, None, 1, stack);
        }
        stage.name(1, &["store", ""]);
        stage.name(2, &["jit", "main"]);
        stage.name(4, &["gone"]);
        let calls = &mut stage.hot.named.get_mut(&Stack(2)).expect("named").calls;
        (calls[0].function, calls[0].module) = (String::new(), "[JIT]".into());
        let sums = stage.hot.sums(&stage.live, 0);
        let mut unnamed = |reads_maps| {
            let mut stacks: Vec<_> = stage.hot.unnamed(&sums, reads_maps).into_iter().collect();
            stacks.sort_by_key(|stack| stack.0);
            stacks
        };
        assert_eq!(unnamed(false), [Stack(3)]);
        assert_eq!(unnamed(true), [Stack(2), Stack(3)]);
        assert_eq!(stage.hot.named.len(), 2, "what no sample has is forgotten");
        assert_eq!(stage.hot.forget_stacks(), 3);
        assert_eq!(stage.shown(0), []);
    }

    #[test]
    fn maps_are_read_now_and_then() {
        let mut hot = Hot::default();
        let due = [1, 2, MAPS_EVERY_NS, MAPS_EVERY_NS + 1].map(|now| hot.reads_maps(now));
        assert_eq!(due, [true, false, false, true]);
    }
}
