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
