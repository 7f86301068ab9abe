//! The arguments of `tailscope locality`.

use std::time::Duration;

use std::path::PathBuf;

use clap::builder::RangedU64ValueParser;
use clap::{Args as ClapArgs, Subcommand};
use tailscope_locality::chase::plan;
use tailscope_record::quantity::parse_duration;

use crate::overhead::parse_overhead;

/// Show which lines of memory a program's threads share, and how often they write them.
///
/// Samples the memory accesses of a running program, without changing or stopping it. A clock of
/// each thread's CPU time samples its registers. The addresses of the next accesses follow from these
/// and from the program's instructions. Watchpoints then show which other threads touch some of the
/// sampled words. The report shows the groups of lines that are local to a thread or to a phase, hot
/// lines, and lines that several threads write (true and false sharing).
#[derive(Debug, ClapArgs)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "\
Examples:
  tailscope locality -p $(pidof -s memcached)          10 seconds of a running server
  tailscope locality -p 4711 --phase process_command   which lines does only this function use?
  tailscope locality -p 4711 -d 60s --json >found.json more samples, as JSON
  tailscope locality -p 4711 -d 10m --overhead 1%      as often as slows it down by 1 %
  tailscope locality predict found.json                what would a move of the phase gain?

A line is 64 bytes. Accesses in the kernel are not seen, nor those whose address depends on a value
that was loaded after the sample; the report counts both. Each sample stands for the same CPU time,
so slow accesses have a larger share than fast ones. A read-modify-write instruction is one load and
one store. docs/how-to/find-shared-lines.md explains each figure.

Exit codes: 1 if there was no sample, or none in the phase; 2 if the process has no such function."
)]
pub struct Locality {
    #[command(subcommand)]
    pub what: Option<What>,

    #[command(flatten)]
    pub sampling: Sampling,
}

/// Other things to do.
#[derive(Debug, Subcommand)]
pub enum What {
    Predict(Predict),
}

/// What to sample, and how.
#[derive(Debug, ClapArgs)]
pub struct Sampling {
    /// The process
    #[arg(short, long, value_name = "PID", required = true)]
    pub pid: Option<u32>,

    /// A function: compare lines that it uses, with all that it calls, with lines of the rest
    #[arg(long, value_name = "FUNCTION")]
    pub phase: Option<String>,

    /// How long to sample: 20s, 10m
    #[arg(short, long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    pub duration: Duration,

    /// Samples in each second of a thread's CPU time
    #[arg(long, value_name = "NUMBER", default_value = "500", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub rate: u32,

    /// Slow the program down by at most this share: 1%, 0.5%; Tailscope then samples for a part of the
    /// time, predicts the overhead, and measures it
    #[arg(long, value_name = "SHARE", value_parser = parse_overhead)]
    pub overhead: Option<f64>,

    /// Use no debug registers: threads then never stop. Less is known about sharing, and `predict` has
    /// too little
    #[arg(long)]
    pub no_watch: bool,

    /// Seed of the random times between samples
    #[arg(long, value_name = "NUMBER", default_value = "1")]
    pub seed: u64,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// Print no progress line
    #[arg(short, long)]
    pub quiet: bool,
}

/// Predict what a program gains if its phase runs on a CPU of its own
///
/// Takes what `tailscope locality --phase FUNCTION --json` found, and replays it on this machine:
/// sessions access as many lines, as often, with as many writes, for as long. It measures three ways
/// in turn: each thread stays (`sync`), it lets others run at the start of the phase (`yield`), or it
/// moves to the CPU of the phase and back (`delegate`). Variants of what was found, as other samples
/// might show it, give the interval.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  tailscope locality -p 4711 --phase process_command --rate 2000 --json >found.json
  tailscope locality predict found.json
  tailscope locality predict found.json --sessions 16    16 requests under way at a time

Run it on a machine of the same kind that does nothing else. It takes about half a minute. The phase
gets one CPU, and the rest of the program the other one: with a phase that is much shorter than the
rest, one of the CPUs has little to do, which costs what the prediction says.

What it assumes: accesses wait for each other, as in a linked list. Accesses in the kernel stay the
same. A line belongs to a thread if samples of one thread only touch it.
docs/how-to/predict-a-move.md explains each figure.

Exit codes: 1 if the samples say too little; 2 if the file is no such report; 3 if other programs
had the CPUs.")]
pub struct Predict {
    /// What `tailscope locality --phase FUNCTION --json` printed
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// The CPU of the rest of the program and that of the phase [default: two that the topology shows
    /// as different cores]
    #[arg(long, value_name = "CPU,CPU", value_delimiter = ',')]
    pub cpus: Vec<u32>,

    /// Requests that are under way at a time
    #[arg(short, long, value_name = "NUMBER", default_value = "100",
        value_parser = RangedU64ValueParser::<usize>::new().range(2..=10_000))]
    pub sessions: usize,

    /// How long to measure each process
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    pub duration: Duration,

    /// Drop segments in which other programs had the CPUs for a larger share; 100% keeps all
    #[arg(long, value_name = "SHARE", default_value = "5%", value_parser = plan::updates)]
    pub tolerance: f64,

    /// Seed of the paths and of the order of the modes
    #[arg(long, value_name = "NUMBER", default_value = "1")]
    pub seed: u64,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// Print no progress line
    #[arg(short, long)]
    pub quiet: bool,

    /// Be the process that replays one part of the prediction
    #[arg(long, hide = true, requires = "parent")]
    pub part: Option<usize>,

    /// For the process with this number, and no longer than that runs
    #[arg(long, hide = true)]
    pub parent: Option<u32>,

    /// Do so only where a cache line takes about this many ns from one CPU to the other
    #[arg(long, hide = true, requires = "part")]
    pub line: Option<f64>,
}
