//! What a sample takes on this machine: the loop reading a counter that another CPU writes.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

use serde::Serialize;
use tailscope_signals::clock::Cycles;
use tailscope_signals::view::{View, WrittenWord};

use crate::analysis::Analysis;
use crate::dte::Tolerance;
use crate::pace::{Pace, Period};
use crate::placement::Placement;
use crate::sampler::{self, Readers, Sample, Sink};
use crate::signal::Read;

/// Cycles of the clock that one sample takes, as fast as it goes: the median of rounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Cost {
    /// The counter alone.
    pub load: f64,
    /// The counter between two readings of the clock.
    pub clocked: f64,
    /// That, and all that is made of it.
    pub analysed: f64,
}

/// Both, in one go.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SelfTest {
    /// Where it was measured.
    pub cpu: u32,
    /// Nobody writes the counter.
    pub quiet: Cost,
    /// A thread on another CPU writes it as fast as it can; null: there is only one CPU.
    pub contended: Option<Cost>,
}

const ROUNDS: usize = 21;
const SAMPLES: u64 = 20_000;

/// Takes samples and does nothing with them.
struct Ignore;

impl Sink<1, 0> for Ignore {
    #[inline(always)]
    fn take(&mut self, sample: &Sample<1, 0>) {
        std::hint::black_box(sample);
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

/// The median over rounds of the cycles that each sample of `round` takes.
fn cycles_each(mut round: impl FnMut()) -> f64 {
    median(
        (0..ROUNDS)
            .map(|_| {
                let begin = Cycles::now().0;
                round();
                (Cycles::now().0 - begin) as f64 / SAMPLES as f64
            })
            .collect(),
    )
}

fn sampled(readers: &Readers<tailscope_signals::view::Word, 1, 0>, inner: impl Sink<1, 0>) {
    let stop = AtomicBool::new(false);
    let mut sink = Counted {
        inner,
        left: SAMPLES,
        stop: &stop,
    };
    let mut pace = Pace::new(Period::Fast, 0.0, 1);
    sampler::run(readers, &mut pace, u64::MAX, &stop, None, &mut sink);
}

fn cost(view: &std::sync::Arc<View>) -> Cost {
    let word = view.word(0, 8).expect("the page has one");
    let load = cycles_each(|| {
        let mut sum = 0u64;
        for _ in 0..SAMPLES {
            sum = sum.wrapping_add(word.read());
        }
        std::hint::black_box(sum);
    });
    let readers = Readers {
        counters: [word],
        tags: [],
    };
    let clocked = cycles_each(|| sampled(&readers, Ignore));
    let analysed = median(
        (0..ROUNDS)
            .map(|_| {
                let analysis = Analysis::new(Tolerance::new(0.01), [u64::MAX], None, 1 << 30);
                let begin = Cycles::now().0;
                sampled(&readers, analysis);
                (Cycles::now().0 - begin) as f64 / SAMPLES as f64
            })
            .collect(),
    );
    Cost {
        load,
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
            let quiet = cost(&view);
            let Some(writer) = writer else {
                return Ok(SelfTest {
                    cpu: placement.cpu,
                    quiet,
                    contended: None,
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
            })
        });
        measured.join().expect("it never panics")
    })
}
