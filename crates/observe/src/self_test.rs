//! What a sample takes on this machine: the loop reading a counter that another CPU writes.

use std::fs::File;
use std::hint::black_box;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

use serde::Serialize;
use tailscope_counters::known;
use tailscope_signals::clock::{self, Cycles};
use tailscope_signals::view::{View, WrittenWord};

use crate::analysis::Analysis;
use crate::dte::Tolerance;
use crate::pace::{Pace, Period};
use crate::placement::Placement;
use crate::sampler::{self, Readers, Sample, Sink};
use crate::signal::Read;

/// Cycles of the clock that one sample takes, as fast as it goes: each the median of rounds, which take turns.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Cost {
    /// The counter alone.
    pub load: f64,
    /// What this machine takes of a sample: the loop's own order of both readings of the clock and the one
    /// load between them, its line asked for before, and nothing else.
    pub floor: f64,
    /// The counter between two readings of the clock.
    pub clocked: f64,
    /// That, and all that is made of it.
    pub analysed: f64,
}

/// Both, in one go.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SelfTest {
    /// Where it was measured.
    pub cpu: u32,
    /// Nobody writes the counter.
    pub quiet: Cost,
    /// A thread on another CPU writes it as fast as it can; null: there is only one CPU.
    pub contended: Option<Cost>,
    /// A known loop by hardware counters that the observer reads in user space.
    pub counters: Counters,
}

/// Whether this machine's counters count right.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Counters {
    /// They count.
    Counted {
        /// Instructions of the loop.
        executed: u64,
        /// Instructions that were counted, those of the readings among them.
        instructions: u64,
        /// Cycles of the core meanwhile.
        cycles: u64,
        /// Instructions a cycle.
        ipc: f64,
    },
    /// There are none, or they can't be read.
    None {
        /// What is missing, and what to do.
        why: String,
    },
}

impl Counters {
    fn measure() -> Self {
        match known::count() {
            Ok(counted) => Self::Counted {
                executed: known::INSTRUCTIONS,
                instructions: counted.instructions,
                cycles: counted.cycles,
                ipc: counted.instructions as f64 / counted.cycles as f64,
            },
            Err(refusal) => Self::None {
                why: refusal.to_string(),
            },
        }
    }
}

const ROUNDS: usize = 21;
const SAMPLES: u64 = 20_000;

/// Takes samples and does nothing with them.
struct Ignore;

impl Sink<1, 0> for Ignore {
    #[inline(always)]
    fn take(&mut self, sample: &Sample<1, 0>) {
        black_box(sample);
    }
}

/// Takes a number of samples and then stops the loop.
struct Counted<'s, S> {
    inner: S,
    left: u64,
    stop: &'s AtomicBool,
}

impl<S: Sink<1, 0>> Sink<1, 0> for Counted<'_, S> {
    #[inline(always)]
    fn take(&mut self, sample: &Sample<1, 0>) {
        self.inner.take(sample);
        self.left -= 1;
        if self.left == 0 {
            self.stop.store(true, Relaxed);
        }
    }
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// The cycles that each sample of a round takes.
fn each(round: impl FnOnce()) -> f64 {
    let begin = Cycles::now().0;
    round();
    (Cycles::now().0 - begin) as f64 / SAMPLES as f64
}

fn sampled(
    readers: &Readers<tailscope_signals::view::Word, 1, 0>,
    tolerance: Tolerance,
    inner: impl Sink<1, 0>,
) {
    let stop = AtomicBool::new(false);
    let mut sink = Counted {
        inner,
        left: SAMPLES,
        stop: &stop,
    };
    let mut pace = Pace::new(Period::Fast, 0.0, 1);
    sampler::run(
        readers,
        &mut pace,
        tolerance,
        u64::MAX,
        &stop,
        None,
        &mut sink,
    );
}

fn cost(view: &std::sync::Arc<View>) -> Cost {
    let word = view.word(0, 8).expect("the page has one");
    let readers = Readers {
        counters: [word.clone()],
        tags: [],
    };
    let tolerance = Tolerance::here(0.01);
    let mut rounds: [Vec<f64>; 4] = Default::default();
    for _ in 0..ROUNDS {
        let analysis = Analysis::new(tolerance, [u64::MAX], None, 1 << 30);
        let took = [
            each(|| {
                for _ in 0..SAMPLES {
                    black_box(word.read());
                }
            }),
            each(|| {
                for _ in 0..SAMPLES {
                    clock::settle();
                    word.ask();
                    let (start, after) = Cycles::before_loads();
                    let value = word.read_after(after);
                    black_box((start, value, Cycles::after_loads()));
                }
            }),
            each(|| sampled(&readers, tolerance, Ignore)),
            each(|| sampled(&readers, tolerance, analysis)),
        ];
        for (all, took) in rounds.iter_mut().zip(took) {
            all.push(took);
        }
    }
    let [load, floor, clocked, analysed] = rounds.map(median);
    Cost {
        load,
        floor,
        clocked,
        analysed,
    }
}

/// Measures it, on the placement's CPU, with a writer on `writer`.
///
/// # Errors
/// What the system says: no memory, no such CPU.
pub fn run(placement: &Placement, writer: Option<&Placement>) -> io::Result<SelfTest> {
    let file = File::from(rustix::fs::memfd_create(
        "tailscope-self-test",
        rustix::fs::MemfdFlags::CLOEXEC,
    )?);
    file.set_len(4096)?;
    file.write_all_at(&[1], 0)?;
    let view = View::map(&file, 0, 4096)?;
    let shared = WrittenWord::map(&file)?;
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let measured = scope.spawn(|| -> io::Result<SelfTest> {
            placement.take().map_err(io::Error::other)?;
            let counters = Counters::measure();
            let quiet = cost(&view);
            let Some(writer) = writer else {
                return Ok(SelfTest {
                    cpu: placement.cpu,
                    quiet,
                    contended: None,
                    counters,
                });
            };
            let writing = scope.spawn(|| {
                let placed = writer.take().map_err(io::Error::other);
                while placed.is_ok() && !over.load(Relaxed) {
                    shared.count(1_000);
                }
                placed
            });
            // It has begun once the counter moves; if it can't, it ends.
            let word = view.word(0, 8).expect("the page has one");
            let first = word.load();
            while word.load() == first && !writing.is_finished() {
                std::hint::spin_loop();
            }
            let contended = cost(&view);
            over.store(true, Relaxed);
            writing.join().expect("it never panics")?;
            Ok(SelfTest {
                cpu: placement.cpu,
                quiet,
                contended: Some(contended),
                counters,
            })
        });
        measured.join().expect("it never panics")
    })
}
