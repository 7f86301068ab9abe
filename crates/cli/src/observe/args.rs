//! The arguments of `tailscope observe`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, ValueEnum};
use tailscope_observe::{Name, Period};
use tailscope_record::quantity::{parse_duration, parse_probability};

/// Sample a program's counters from another CPU, every few cycles to microseconds.
///
/// A signal is a value in the memory of a running program, such as a counter. The observer reads it
/// between two readings of the clock, and reports its rate. It drops samples whose two clock
/// readings disagree, and reports how many. It pauses at random to measure how much it slows the
/// application down.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  tailscope observe --self-test                        measure what a sample takes on this machine
  tailscope observe --signal channel:4711:served --tag channel:4711:phase -d 10s --period 2400
  tailscope observe --signal hsperf:$(pidof java):sun.gc.collector.0.invocations --period 100000
  tailscope observe --signal mem:$(pidof redis-server):SYMBOL --period 5000
  tailscope observe --signal channel:4711:served --budget 1%   the shortest period that costs 1 %
  tailscope observe --signal channel:4711:served --tag channel:4711:edge -d 10s --html seen.html
                                                       rates by function and line (docs/reference/observe.md)

Signals:
  channel:PID:NAME   a channel that the program creates with an SDK (in C, TS_CHANNEL)
  hsperf:PID:NAME    a counter of a JVM; `jcmd PID PerfCounter.print` lists them
  mem:PID:SYMBOL     a global variable of a program as it is; SYMBOL+8 is eight bytes further on
  counter:PID:EVENT  a hardware event of a thread, by perf's name: instructions
  meter:PID:CAUSE    the time in ns that a thread lost to a cause, as in a recording
  running:CPU        a tag: the thread that runs on a CPU
For other threads than the first, write counter:PID/TID:EVENT or meter:PID/TID:CAUSE. A counter
(--signal) only grows and has a rate. A tag (--tag) is a value that says what the program is doing;
the report breaks rates down by it.

Times are in cycles of the machine's clock (TSC, CNTVCT), which has a constant frequency. Process
ids are those of the observer's PID namespace. docs/reference/observe.md explains each figure.")]
pub struct Observe {
    /// Read this counter (repeatable, at most 4)
    #[arg(short, long = "signal", value_name = "SIGNAL")]
    pub signals: Vec<Name>,

    /// Break rates down by this signal's value (repeatable, at most 2)
    #[arg(short, long = "tag", value_name = "SIGNAL")]
    pub tags: Vec<Name>,

    /// How long to observe: 20s, 500ms [default: until Ctrl-C or the process's end]
    #[arg(short, long, value_name = "TIME", value_parser = parse_duration)]
    pub duration: Option<Duration>,

    /// Cycles from one sample to the next, or `fast` for no wait at all
    #[arg(long, value_name = "CYCLES", default_value = "2400", value_parser = parse_period)]
    pub period: Period,

    /// Vary each period at random by up to this share, in both directions
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = parse_share)]
    pub jitter: f64,

    /// Find the shortest period that slows the application down by at most this share
    #[arg(long, visible_alias = "overhead", value_name = "SHARE", value_parser = parse_probability, conflicts_with = "no_pauses")]
    pub budget: Option<f64>,

    /// The counter that shows the application's speed [default: the first --signal]
    #[arg(long, value_name = "SIGNAL")]
    pub progress: Option<Name>,

    /// Do not pause; the cost to the application then stays unknown
    #[arg(long)]
    pub no_pauses: bool,

    /// How far the two clock readings may disagree for a pair of samples to count
    #[arg(long, value_name = "SHARE", default_value = "1%", value_parser = parse_share)]
    pub dte: f64,

    /// Count the pairs in which the first counter grew faster than this: 1/1000 or 0.001 a cycle
    #[arg(long, value_name = "RATE", value_parser = parse_ratio)]
    pub at_most: Option<f64>,

    /// Also write every sample, as Parquet, into this folder, which must not exist yet
    #[arg(short, long, value_name = "FOLDER")]
    pub output: Option<PathBuf>,

    /// Also write the report, with pictures, into this file, which needs no network
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Length of a slice of the time series
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = parse_duration)]
    pub series: Duration,

    /// The observer's CPU [default: one that the application does not use]
    #[arg(long, value_name = "CPU")]
    pub cpu: Option<u32>,

    /// Run on the other hardware thread of the application's core, or on another core
    #[arg(long, value_enum)]
    pub on: Option<On>,

    /// Measure what a sample takes on this machine, and do nothing else
    #[arg(long)]
    pub self_test: bool,

    /// Seed of jitter and pauses
    #[arg(long, value_name = "NUMBER", default_value = "1")]
    pub seed: u64,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// Print no progress line
    #[arg(short, long)]
    pub quiet: bool,
}

/// Which hardware context beside the application's.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum On {
    /// The other hardware thread of the application's core (SMT)
    SameCore,
    /// Another core
    OtherCore,
}

fn parse_period(text: &str) -> Result<Period, String> {
    if text == "fast" {
        return Ok(Period::Fast);
    }
    match text.replace([',', '_'], "").parse() {
        Ok(cycles @ 1..=1_000_000_000_000) => Ok(Period::Cycles(cycles)),
        _ => Err(format!(
            "'{text}' is not a period; write a number of cycles, such as 2400, or fast"
        )),
    }
}

/// Counts a cycle.
fn parse_ratio(text: &str) -> Result<f64, String> {
    let (counts, cycles) = text.split_once('/').unwrap_or((text, "1"));
    let number = |text: &str| {
        text.parse::<f64>()
            .ok()
            .filter(|n| *n > 0.0 && n.is_finite())
    };
    match (number(counts), number(cycles)) {
        (Some(counts), Some(cycles)) => Ok(counts / cycles),
        _ => Err(format!(
            "'{text}' is not a rate; write counts a cycle, such as 1/1000 or 0.001"
        )),
    }
}

/// A share from nothing to all.
fn parse_share(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%') {
        "0" => Ok(0.0),
        _ => parse_probability(text),
    }
}
