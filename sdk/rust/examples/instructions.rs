//! Spans whose number of instructions is known: a loop in assembly of two instructions a round. The
//! span's id says how many. `instructions SPANS NAP_US LENGTHS`, as `lab/c/countbench.c` in C:
//!
//! - `plain` spans do nothing else; `yields` and `sleeps` are put off the CPU in their middle, by the bare
//!   system call, while another thread computes: what that one and the kernel execute is not theirs
//! - `first` and `second` overlap: each ends in the middle of the other
//! - `deep` ones are the last of twenty that are open
//! - `moved` ones end on another thread, which the crate's types forbid: they must not be recorded wrong
//!
//! `instructions empty SPANS NAP_US`: `outer` spans of a hundred empty spans, for what those cost.

use std::arch::asm;
use std::env;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tailscope_sdk::Span;

/// Exactly so many, an even number from 2 on.
#[inline(always)]
fn execute(instructions: i64) {
    // SAFETY: counts down a register.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!("2: dec {0}", "jnz 2b", inout(reg) instructions / 2 => _, options(nomem, nostack));
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!("2: subs {0}, {0}, #1", "b.ne 2b", inout(reg) instructions / 2 => _, options(nomem, nostack));
    }
}

/// A system call of two arguments, which takes a handful of instructions itself.
#[inline(always)]
fn ask_kernel((call, one, two): (usize, usize, usize)) {
    // SAFETY: gives up the CPU, or sleeps for a time that outlives the call.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!("syscall", inlateout("rax") call => _, in("rdi") one, in("rsi") two,
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!("svc 0", in("x8") call, inlateout("x0") one => _, in("x1") two, options(nostack));
    }
}

#[cfg(target_arch = "x86_64")]
const YIELD_AND_SLEEP: (usize, usize) = (24, 35);
#[cfg(target_arch = "aarch64")]
const YIELD_AND_SLEEP: (usize, usize) = (124, 101);

fn in_two(name: &'static str, length: i64, call: (usize, usize, usize)) {
    let span = Span::begin(name);
    execute(length / 2);
    ask_kernel(call);
    execute(length / 2);
    span.end_with_id(length);
}

fn overlapping(length: i64) {
    let first = Span::begin("first");
    let mut kept = vec![Span::begin("second")];
    execute(length);
    first.end_with_id(length);
    if let Some(second) = kept.pop() {
        second.end_with_id(length);
    }
}

fn deep(length: i64) {
    let others: Vec<Span> = (1..20).map(|_| Span::begin("other")).collect();
    let span = Span::begin("deep");
    execute(length);
    span.end_with_id(length);
    drop(others);
}

fn moved(length: i64) {
    struct Carried(Span);
    // SAFETY: none: that a span is not sent is what the crate asks for. This is who does it all the same.
    unsafe impl Send for Carried {}
    impl Carried {
        fn end(self, length: i64) {
            self.0.end_with_id(length);
        }
    }
    let carried = Carried(Span::begin("moved"));
    execute(length);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            Span::begin("other").end(); // this thread counts, too
            carried.end(length);
        });
    });
}

fn run(spans: i64, nap_us: u64, length: i64) {
    let nap = [nap_us / 1_000_000, nap_us % 1_000_000 * 1000]; // struct timespec
    let (to_yield, to_sleep) = YIELD_AND_SLEEP;
    for _ in 0..spans {
        let span = Span::begin("plain");
        execute(length);
        span.end_with_id(length);
        in_two("yields", length, (to_yield, 0, 0));
        in_two("sleeps", length, (to_sleep, nap.as_ptr() as usize, 0));
        overlapping(length);
        deep(length);
    }
    moved(length);
}

fn hundred_empty_spans(spans: i64, nap: Duration) {
    for _ in 0..spans {
        let outer = Span::begin("outer");
        for _ in 0..100 {
            Span::begin("empty").end();
        }
        outer.end_with_id(100);
        std::thread::sleep(nap); // for the recorder to keep up
    }
}

fn main() {
    let words: Vec<String> = env::args().skip(1).collect();
    let is_empty = words.first().is_some_and(|word| word == "empty");
    let mut numbers = words.iter().filter_map(|word| word.parse().ok());
    let spans = numbers.next().unwrap_or(200);
    let nap_us = numbers.next().unwrap_or(100) as u64;
    if is_empty {
        return hundred_empty_spans(spans, Duration::from_micros(nap_us));
    }
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Relaxed) {
                execute(20_000);
                std::thread::yield_now();
            }
        });
        for length in numbers {
            run(spans, nap_us, length);
        }
        over.store(true, Relaxed);
    });
}
