//! What a row costs: bytes on disk, CPU of the thread that pushes, and memory.
//!
//!     cargo run --release -p tailscope-trace --example throughput -- [ROWS] [FOLDER] [KIND]
//!
//! The rows are those of a busy server of four threads on two CPUs with every request recorded:
//! begins 20 µs apart (exponential), wall times lognormal around 10 µs, network softirqs in
//! nearly every row, every other cause in 0.1 to 2 % of rows. KIND `ids` adds a request id to
//! each, `kept` the weights of a recorder that keeps a part, `struck` makes every cause strike
//! every row (the worst case for memory). Making the rows is not in the figures.

use std::path::PathBuf;
use std::time::Instant;

use fastrand::Rng;
use rustix::time::{ClockId, clock_gettime};
use tailscope_trace::{
    Cause, CauseSet, Existing, LedgerWriter, Metadata, Sealing, SpanName, SpanRow, Summary,
};

/// Rows made at a time: few enough to be in the cache when they are pushed, as a recorder's are.
const BLOCK: usize = 256;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let rows: usize = arguments
        .next()
        .map_or(Ok(4_000_000), |text| text.parse())?;
    let folder: PathBuf = arguments
        .next()
        .unwrap_or_else(|| "/tmp/tailscope-throughput".to_owned())
        .into();
    let kind = arguments.next().unwrap_or_default();

    let measured = CauseSet::ALL
        .without(Cause::Throttled)
        .without(Cause::Steal);
    let sealing = Sealing::default();
    let metadata = Metadata::default();
    let mut writer =
        LedgerWriter::create(&folder, metadata, measured, sealing, Existing::Overwrite)?;
    let mut source = Source::new(writer.intern("recv..send"), &kind);
    let mut block = vec![SpanRow::default(); BLOCK];
    let mut cpu_ns = 0;
    let mut longest_push_ns = 0;
    for _ in 0..rows / BLOCK {
        block.iter_mut().for_each(|row| source.next(row));
        let (begin, begin_wall) = (thread_cpu_ns(), Instant::now());
        for row in &block {
            writer.push(row)?;
        }
        writer.tick(Instant::now())?;
        longest_push_ns = longest_push_ns.max(begin_wall.elapsed().as_nanos());
        cpu_ns += thread_cpu_ns() - begin;
    }
    let begin = thread_cpu_ns();
    let totals = writer.finish(Summary::default())?;
    cpu_ns += thread_cpu_ns() - begin;

    let rows = totals.rows as f64;
    println!("{} rows in {} files", totals.rows, totals.files);
    println!("{:8.2} bytes/row", totals.bytes as f64 / rows);
    println!(
        "{:8.1} ns/row of the pushing thread's CPU",
        cpu_ns as f64 / rows
    );
    println!(
        "{:8.1} ms longest block of {BLOCK} pushes",
        longest_push_ns as f64 / 1e6
    );
    println!("{:8} KiB resident at most", max_rss_kib());
    Ok(())
}

fn thread_cpu_ns() -> i64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

fn max_rss_kib() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.unwrap_or("unknown")
        .trim()
        .trim_end_matches(" kB")
        .to_owned()
}

/// Rows of a made-up server, the same in every run.
struct Source {
    random: Rng,
    now_ns: i64,
    span: SpanName,
    with_ids: bool,
    keeps_a_part: bool,
    all_strike: bool,
    id: i64,
}

impl Source {
    fn new(span: SpanName, kind: &str) -> Source {
        Source {
            random: Rng::with_seed(1),
            now_ns: 1_795_215_600_000_000_000,
            span,
            with_ids: kind == "ids",
            keeps_a_part: kind == "kept",
            all_strike: kind == "struck",
            id: 0,
        }
    }

    fn next(&mut self, row: &mut SpanRow) {
        self.now_ns += (-20_000.0 * self.uniform().ln()) as i64;
        // A row is written at its end, so that begins of several threads come out of order.
        let wall_ns = self.lognormal(10_000.0, 0.5);
        self.id += 1;
        *row = SpanRow {
            start_ns: self.now_ns - wall_ns,
            span: self.span,
            id: self.with_ids.then_some(self.id),
            pid: 4_711,
            tid: 4_712 + self.random.i32(0..4),
            cpu: self.random.i32(0..2),
            wall_ns,
            ..SpanRow::default()
        };
        if self.keeps_a_part {
            row.weight = if self.random.u32(..100) == 0 {
                1.0
            } else {
                18.25
            };
        }
        for cause in Cause::ALL {
            let likely = match cause {
                Cause::SoftirqNet => 0.97,
                Cause::Queue => 0.02,
                _ => 0.001 + 0.0015 * cause.index() as f64,
            };
            if self.all_strike || self.uniform() < likely {
                row.cause_ns[cause.index()] = self.lognormal(1_800.0, 0.4);
                row.cause_n[cause.index()] = 1 + u32::from(self.random.u32(..50) == 0);
            }
        }
    }

    /// In (0, 1].
    fn uniform(&mut self) -> f64 {
        1.0 - self.random.f64()
    }

    fn lognormal(&mut self, median: f64, sigma: f64) -> i64 {
        let normal =
            (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos();
        (median * (sigma * normal).exp()) as i64
    }
}
