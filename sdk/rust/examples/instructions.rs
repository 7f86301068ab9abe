//! Spans whose number of instructions is known: a loop in assembly of two instructions a round. The
//! span's id says how many, a multiple of four. `instructions SPANS NAP_US LENGTHS`, as `lab/c/countbench.c` in C:
//!
//! - `plain` spans do nothing else; `yields` and `sleeps` are put off the CPU in their middle, by the bare
//!   system call, while another thread computes: what that one and the kernel execute is not theirs
//! - `first` and `second` overlap: each ends in the middle of the other
//! - `deep` ones are the last of sixteen that are open, `deeper` ones begin in those
//! - `moved` ones end on another thread, which the crate's types forbid: they must not be recorded wrong
//!
//! With the word `alone` no other thread computes. `instructions empty SPANS NAP_US`: `outer` spans of a hundred empty spans, for what those cost.

use std::arch::asm;
use std::env;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tailscope_sdk::Span;

/// Executes twice as many instructions, from one round on.
#[inline(always)]
fn execute(rounds: i64) {
    // SAFETY: counts down a register.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!("2: dec {0}", "jnz 2b", inout(reg) rounds => _, options(nomem, nostack));
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!("2: subs {0}, {0}, #1", "b.ne 2b", inout(reg) rounds => _, options(nomem, nostack));
    }
}

/// So many rounds, a system call of one argument and a null, and as many rounds: eight instructions more than
/// the rounds.
#[inline(always)]
fn execute_and_ask<const CALL: usize>(rounds: i64, argument: usize) {
    // SAFETY: counts down a register, and gives up the CPU, or sleeps for a time that outlives the call.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!("mov {0}, {1}", "2: dec {0}", "jnz 2b",
            "nop", "mov eax, {call}", "mov rdi, {2}", "mov esi, 0", "syscall", "nop",
            "mov {0}, {1}", "3: dec {0}", "jnz 3b",
            out(reg) _, in(reg) rounds, in(reg) argument, call = const CALL,
            out("rax") _, out("rdi") _, out("rsi") _, out("rcx") _, out("r11") _, options(nostack));
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!("mov {0}, {1}", "2: subs {0}, {0}, #1", "b.ne 2b",
            "nop", "mov x8, {call}", "mov x0, {2}", "mov x1, 0", "svc 0", "nop",
            "mov {0}, {1}", "3: subs {0}, {0}, #1", "b.ne 3b",
            out(reg) _, in(reg) rounds, in(reg) argument, call = const CALL,
            out("x8") _, out("x0") _, out("x1") _, options(nostack));
    }
}

#[cfg(target_arch = "x86_64")]
const YIELD: usize = 24;
#[cfg(target_arch = "x86_64")]
const SLEEP: usize = 35;
#[cfg(target_arch = "aarch64")]
const YIELD: usize = 124;
#[cfg(target_arch = "aarch64")]
const SLEEP: usize = 101;

fn in_two<const CALL: usize>(name: &'static str, length: i64, argument: usize) {
    let rounds = (length - 8) / 4;
    let span = Span::begin(name);
    execute_and_ask::<CALL>(rounds, argument);
    span.end_with_id(length);
}

fn overlapping(length: i64) {
    let first = Span::begin("first");
    let mut kept = vec![Span::begin("second")];
    execute(length / 2);
    first.end_with_id(length);
    if let Some(second) = kept.pop() {
        second.end_with_id(length);
    }
}

fn deep(length: i64) {
    let rounds = length / 2;
    let others: Vec<Span> = (1..16).map(|_| Span::begin("other")).collect();
    let span = Span::begin("deep");
    execute(rounds);
    span.end_with_id(length);
    let span = Span::begin("other");
    let deeper = Span::begin("deeper");
    execute(rounds);
    deeper.end_with_id(length);
    drop((span, others));
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
    execute(length / 2);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            Span::begin("other").end(); // this thread counts, too
            carried.end(length);
        });
    });
}

fn run(spans: i64, nap_us: u64, length: i64) {
    let nap = [nap_us / 1_000_000, nap_us % 1_000_000 * 1000]; // struct timespec
    let rounds = length / 2;
    for _ in 0..spans {
        let span = Span::begin("plain");
        execute(rounds);
        span.end_with_id(length);
        in_two::<YIELD>("yields", length, 0);
        in_two::<SLEEP>("sleeps", length, nap.as_ptr() as usize);
        overlapping(length);
        deep(length);
    }
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
    let is_empty = words.iter().any(|word| word == "empty");
    let is_alone = words.iter().any(|word| word == "alone");
    let mut numbers = words.iter().filter_map(|word| word.parse().ok());
    let spans = numbers.next().unwrap_or(200);
    let nap_us = numbers.next().unwrap_or(100) as u64;
    if is_empty {
        return hundred_empty_spans(spans, Duration::from_micros(nap_us));
    }
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_alone && !over.load(Relaxed) {
                execute(10_000);
                std::thread::yield_now();
            }
        });
        let lengths: Vec<i64> = numbers.collect();
        for length in &lengths {
            run(spans, nap_us, *length);
        }
        // Last: what such a span takes of its thread's memory, nobody gives back.
        for length in &lengths {
            moved(*length);
        }
        over.store(true, Relaxed);
    });
}
