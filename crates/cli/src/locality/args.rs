//! The arguments of `tailscope locality`.

use std::time::Duration;

use clap::Args as ClapArgs;
use tailscope_record::quantity::parse_duration;

/// Show which lines of memory a program's threads share, and how often they write them.
///
/// Samples the memory accesses of a running program, without changing or stopping it. A clock of
/// each thread's CPU time samples its registers. The addresses of the next accesses follow from these
/// and from the program's instructions. Watchpoints then show which other threads touch some of the
/// sampled words. The report shows the groups of lines that are local to a thread or to a phase, hot
/// lines, and lines that several threads write (true and false sharing).
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  tailscope locality -p $(pidof -s memcached)          10 seconds of a running server
  tailscope locality -p 4711 --phase process_command   which lines does only this function use?
  tailscope locality -p 4711 -d 60s --json >found.json more samples, as JSON

A line is 64 bytes. Accesses in the kernel are not seen, nor those whose address depends on a value
that was loaded after the sample; the report counts both. Each sample stands for the same CPU time,
so slow accesses have a larger share than fast ones. A read-modify-write instruction is one load and
one store. docs/how-to/find-shared-lines.md explains each figure.

Exit codes: 1 if there was no sample, or none in the phase; 2 if the process has no such function.")]
pub struct Locality {
    /// The process
    #[arg(short, long, value_name = "PID")]
    pub pid: u32,

    /// A function: compare lines that it uses, with all that it calls, with lines of the rest
    #[arg(long, value_name = "FUNCTION")]
    pub phase: Option<String>,

    /// How long to sample: 20s, 10m
    #[arg(short, long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    pub duration: Duration,

    /// Samples in each second of a thread's CPU time
    #[arg(long, value_name = "NUMBER", default_value = "500", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub rate: u32,

    /// Use no watchpoints: threads then never stop, and less is known about sharing
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
