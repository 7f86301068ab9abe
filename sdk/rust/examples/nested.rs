//! Spans in spans, on some threads, each pair with an id of its own, as the end-to-end tests record
//! them: `nested [PAIRS [SECONDS [PAUSE_MS]]]`. For so many seconds they
//! begin again and again. With pauses, the first thread makes them all.

use std::env;
use std::hint::black_box;
use std::time::{Duration, Instant};

use tailscope_sdk::Span;

const THREADS: i64 = 3;

fn work() {
    for i in 0..5000 {
        black_box(i);
    }
}

fn run_pairs(thread: i64, pairs: i64) {
    for pair in 0..pairs {
        let id = thread * pairs + pair;
        let outer = Span::begin("outer");
        work();
        {
            let _scoped = Span::begin("scoped");
            let inner = Span::begin("inner");
            work();
            inner.end_with_id(id);
        }
        outer.end_with_id(id);
    }
}

fn run_threads(pairs: i64) {
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || run_pairs(thread, pairs));
        }
    });
}

fn main() {
    let number = |at: usize| env::args().nth(at).and_then(|word| word.parse().ok());
    let pairs = number(1).unwrap_or(500);
    let pause = Duration::from_millis(number(3).unwrap_or(0) as u64);
    let until = Instant::now() + Duration::from_secs(number(2).unwrap_or(0) as u64);
    loop {
        if pause.is_zero() {
            run_threads(pairs);
        } else {
            run_pairs(0, pairs);
        }
        if Instant::now() >= until {
            break;
        }
        std::thread::sleep(pause);
    }
    println!("{{\"pairs\": {}}}", THREADS * pairs);
}
