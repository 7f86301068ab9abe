//! What one span costs in Rust, as `bench/c/sdk_cost.c` measures it in C: reads a number of rounds and a
//! pause in microseconds from each line, and prints for each round the ns of a span in a batch, less those
//! of an empty batch. `bench/sdk_cost.py --rust` drives it.
//! `span_cost BATCH`.

use std::hint::black_box;
use std::thread::sleep;
use std::time::{Duration, Instant};
use std::{env, io};

use tailscope_sdk::Span;

fn main() {
    let batch = env::args().nth(1).and_then(|word| word.parse().ok());
    let batch = batch.unwrap_or(200);
    for line in io::stdin().lines().map_while(Result::ok) {
        let mut words = line.split_whitespace().map_while(|word| word.parse().ok());
        let (Some(rounds), Some(pause_us)) = (words.next(), words.next()) else {
            break;
        };
        let ns: Vec<String> = (0..rounds)
            .map(|_| {
                sleep(Duration::from_micros(pause_us));
                spans(16); // what sleeping made cold is not what is asked
                let empty = time_of(nothing, batch);
                format!("{:.2}", time_of(spans, batch) - empty)
            })
            .collect();
        let state = match Span::begin("bench").is_metered() {
            true => "metered",
            false => "none",
        };
        println!("{{\"state\": \"{state}\", \"span\": [{}]}}", ns.join(", "));
    }
}

fn spans(count: u64) {
    for at in 0..count {
        let span = Span::begin("bench");
        black_box(at);
        span.end();
    }
}

fn nothing(count: u64) {
    for at in 0..count {
        black_box(at);
    }
}

fn time_of(run: impl Fn(u64), batch: u64) -> f64 {
    let begin = Instant::now();
    run(batch);
    begin.elapsed().as_nanos() as f64 / batch as f64
}
