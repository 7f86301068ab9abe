//! The arguments of `tailscope chase`.

use std::time::Duration;

use clap::builder::RangedU64ValueParser;
use clap::{Args as ClapArgs, ValueEnum};
use tailscope_locality::chase::plan::{self, PhaseLines, SharedLines, Spread};
use tailscope_locality::chase::size::Size;
use tailscope_record::quantity::parse_duration;

/// Measure when it pays to move a thread to its data, and what migrations cost on this machine.
///
/// Sessions (user threads) walk a circular path of memory accesses, cut into phases. With `sync`, a
/// session walks all phases where it is. With `delegate`, it walks each phase on the CPU that owns
/// it, so the caches of that CPU hold only the lines of its phases. The modes alternate in short
/// segments, and the result is their ratio of speed with its 95 % interval. Before that, the command
/// measures the CPUs: are they two cores, how far apart, and how large are the caches.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  tailscope chase                                      sizes around this machine's L1d and L2
  tailscope chase --calibrate                          only measure the CPUs and the caches
  tailscope chase -w 0.5L1d,1.5L2,8MiB -u 0,10%,100%   these working sets and shares of writes
  tailscope chase --phase 8,0.5/256 --phase 0/512,0.1  lines of each session, and of all sessions
  tailscope chase --phase 0/256 --phase 0/256 --shared 4/64:0,0,0.1/1,0,0.1
                                                       and lines that both phases use

Phase p runs on CPU number p of --cpus, and starts again with the first CPU after the last one.
--phase LOCAL/GLOBAL adds a phase. Both parts are LINES[,UPDATES[,ACCESSES]]: lines of 64 bytes that
each session has for itself, and lines that all sessions share. UPDATES is the share of writes.
ACCESSES is the relative number of accesses.
--shared LOCAL/GLOBAL:PHASE,U,U[,A,A]/PHASE,... adds lines that several phases use, with the updates
and accesses of each phase for the session's lines and for the shared lines.

A line has at most 16 accesses per loop. Stop other programs first: they disturb the measurement.
docs/how-to/measure-migrations.md explains each figure.")]
pub struct Chase {
    /// The CPUs, one cluster on each [default: two that the topology shows as different cores]
    #[arg(long, value_name = "CPU,CPU", value_delimiter = ',')]
    pub cpus: Vec<u32>,

    /// Working sets: 24KiB, 2MiB, 0.5L1d, 1.5L2 [default: seven around L1d and L2]
    #[arg(short, long, value_name = "SIZE,…", value_delimiter = ',')]
    pub working_set: Vec<Size>,

    /// Shares of accesses that are writes: 0.1, 10% [default: 0%, 1%, 100%]
    #[arg(short, long, value_name = "SHARE,…", value_delimiter = ',', value_parser = plan::updates)]
    pub updates: Vec<f64>,

    /// The number of phases for --working-set [default: the number of CPUs]
    #[arg(long, value_name = "NUMBER", value_parser = RangedU64ValueParser::<usize>::new().range(1..=64))]
    pub phases: Option<usize>,

    /// A phase with these lines (repeatable)
    #[arg(long, value_name = "LOCAL/GLOBAL", conflicts_with_all = ["working_set", "updates", "phases"])]
    pub phase: Vec<PhaseLines>,

    /// Lines that several phases use (repeatable)
    #[arg(long, value_name = "LINES", requires = "phase")]
    pub shared: Vec<SharedLines>,

    /// How accesses spread over the lines: zipf, zipf:0.8, even, even:4
    #[arg(long, value_name = "NAME", default_value = "zipf", value_parser = plan::spread)]
    pub distribution: Spread,

    /// The number of sessions
    #[arg(short, long, value_name = "NUMBER", default_value = "100",
        value_parser = RangedU64ValueParser::<usize>::new().range(1..=10_000))]
    pub sessions: usize,

    /// The phase in which all sessions start [default: they spread over all phases]
    #[arg(long, value_name = "PHASE")]
    pub start: Option<usize>,

    /// The modes to compare with the first one
    #[arg(short, long, value_enum, value_name = "MODE,…", value_delimiter = ',',
        default_values = ["sync", "delegate"])]
    pub modes: Vec<Mode>,

    /// How long to measure each working set with each share of writes
    #[arg(short, long, value_name = "TIME", default_value = "2s", value_parser = parse_duration)]
    pub duration: Duration,

    /// How long one mode runs before the next one
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = parse_duration)]
    pub segment: Duration,

    /// Drop segments in which other programs had the CPUs for a larger share; 100% keeps all
    #[arg(long, value_name = "SHARE", default_value = "5%", value_parser = plan::updates)]
    pub tolerance: f64,

    /// Only measure the CPUs, the caches and the costs of fibres
    #[arg(long)]
    pub calibrate: bool,

    /// Leave out the latencies by working set, which take some seconds
    #[arg(long, conflicts_with = "calibrate")]
    pub no_latencies: bool,

    /// Use pages of the base size, not 2 MiB
    #[arg(long)]
    pub small_pages: bool,

    /// Seed of the paths and of the order of the modes
    #[arg(long, value_name = "NUMBER", default_value = "1")]
    pub seed: u64,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// Print no progress line
    #[arg(short, long)]
    pub quiet: bool,
}

/// How sessions walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// A whole loop where the session is, then the next session
    Sync,
    /// The same, with the next session after each phase
    Yield,
    /// Each phase on the CPU that owns it
    Delegate,
}
