//! In which functions the slow spans of the last seconds were, for a screen.
//!
//! Samples of rows are kept for as long as [`Live`] counts the rows. Once a second, each kind's samples of
//! spans at or above p99 divide the mean of each cause among functions, as explanations do.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use tailscope_symbols::functions::Functions;
use tailscope_trace::Cause;

use super::blamed::{Call, blamed, callers};
use super::frames::Stack;
use super::names::Namer;
use super::{About, Waiting};
use crate::live::{Code, Live};

/// Samples that are kept, at most: the latest.
const MOST_SAMPLES: usize = 1 << 16;
/// A function is shown from so many samples on.
const FEWEST: u32 = 3;
/// Functions of a kind, at most.
const MOST_FUNCTIONS: usize = 8;
/// Callers that are shown, at most.
const MOST_CALLERS: usize = 2;
/// A stack with code that has no name may get one later: a process writes its perf map at any time.
const NAMED_AGAIN_NS: u64 = 5_000_000_000;

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
    /// Since when it has these names.
    at: u64,
}

impl Named {
    fn has_all(&self) -> bool {
        self.calls.iter().all(|call| !call.function.is_empty())
    }

    /// The function to which time is put down, and its callers.
    fn functions(&self, cause: Option<Cause>) -> Option<Vec<String>> {
        let place = blamed(&self.calls, cause)?;
        let callers = callers(&self.calls, place, self.whole).take(MOST_CALLERS);
        let all = std::iter::once(&self.calls[place]).chain(callers);
        Some(all.map(Call::name).collect())
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

    /// Stacks are numbered anew.
    pub(super) fn forget_stacks(&mut self) {
        self.samples.clear();
        self.named.clear();
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

    /// Those of these stacks that have no names yet, or may have more by now.
    pub(super) fn unnamed(&self, sums: &[(usize, Sums)], now: u64) -> HashSet<Stack> {
        let asked = sums.iter().flat_map(|(_, sums)| sums.keys());
        let mut stacks: HashSet<Stack> = asked.map(|(_, stack)| *stack).collect();
        stacks.retain(|stack| match self.named.get(stack) {
            Some(named) => !named.has_all() && now.saturating_sub(named.at) >= NAMED_AGAIN_NS,
            None => true,
        });
        stacks
    }

    pub(super) fn name(
        &mut self,
        stack: Stack,
        frames: impl Iterator<Item = super::frames::Frame>,
        whole: bool,
        namer: &mut Namer<'_>,
        at: u64,
    ) {
        let calls = frames
            .flat_map(|frame| Call::of(namer.name(frame)))
            .collect();
        self.named.insert(stack, Named { calls, whole, at });
    }

    /// Gives the kinds their functions.
    pub(super) fn show(&self, sums: Vec<(usize, Sums)>, live: &mut Live) {
        let mut told: HashMap<usize, Vec<Code>> = HashMap::new();
        for (place, sums) in sums {
            let tail = live.kinds()[place].recent().tail(0.99);
            let mut whole: HashMap<Option<Cause>, f64> = HashMap::new();
            let mut functions: HashMap<(Option<Cause>, Vec<String>), Sum> = HashMap::new();
            for ((cause, stack), sum) in sums {
                *whole.entry(cause).or_default() += sum.ns;
                let named = self.named.get(&stack);
                if let Some(named) = named.and_then(|named| named.functions(cause)) {
                    functions.entry((cause, named)).or_default().add(sum);
                }
            }
            let mut code: Vec<Code> = functions
                .into_iter()
                .filter(|(_, sum)| sum.samples >= FEWEST)
                .map(|((cause, functions), sum)| {
                    let all = match cause {
                        Some(cause) => tail.cause_ns[cause.index()],
                        None => tail.running_ns(),
                    };
                    let mean = all / tail.spans.max(1.0);
                    Code {
                        cause,
                        functions,
                        ns: mean * sum.ns / whole[&cause].max(1.0),
                    }
                })
                .collect();
            code.sort_by(|a, b| {
                b.ns.total_cmp(&a.ns)
                    .then_with(|| a.functions.cmp(&b.functions))
            });
            code.truncate(MOST_FUNCTIONS);
            told.insert(place, code);
        }
        live.set_code(told);
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
            let (whole, at) = (true, 0);
            let named = Named { calls, whole, at };
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
    fn a_stack_is_named_once_unless_some_of_it_has_no_name() {
        let mut stage = Stage::new();
        for stack in [1, 2, 3] {
            stage.sample(10_000_000, None, 1, stack);
        }
        stage.name(1, &["store"]);
        stage.name(2, &["", "main"]);
        let sums = stage.hot.sums(&stage.live, 0);
        let at = |now| {
            let mut stacks: Vec<_> = stage.hot.unnamed(&sums, now).into_iter().collect();
            stacks.sort_by_key(|stack| stack.0);
            stacks
        };
        assert_eq!(at(1), [Stack(3)]);
        assert_eq!(at(NAMED_AGAIN_NS), [Stack(2), Stack(3)]);
        stage.hot.forget_stacks();
        assert_eq!(stage.shown(0), []);
    }
}
