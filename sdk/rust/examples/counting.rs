//! Channels that are known, as the end-to-end tests observe them: every 100 µs `stepped` grows by one and
//! `doubled` by two, and `phase` is the parity of it. `counting SECONDS`.

use std::env;
use std::time::{Duration, Instant};

use tailscope_sdk::channel::{Counter, Tag};

static STEPPED: Counter = Counter::new("stepped");
static DOUBLED: Counter = Counter::new("doubled");
static PHASE: Tag = Tag::new("phase");

fn main() {
    let seconds = env::args().nth(1).and_then(|word| word.parse().ok());
    let end = Instant::now() + Duration::from_secs(seconds.unwrap_or(10));
    let mut next = Instant::now();
    for step in 0u64.. {
        while Instant::now() < next {
            std::hint::spin_loop();
        }
        next = Instant::now() + Duration::from_micros(100);
        STEPPED.add(1);
        DOUBLED.add(2);
        PHASE.set(step % 2);
        if next >= end {
            break;
        }
    }
}
