//! The arguments of `tailscope observe`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, ValueEnum};
use tailscope_observe::{Name, Period};
use tailscope_record::quantity::{parse_duration, parse_probability};

/// Sample signals every few cycles to microseconds, from a CPU of its own.
///
/// A signal is a value in memory that a load reads: a counter of a running program. The observer
/// reads it again and again between two readings of the clock, and tells its rate where both agree
/// on how much time passed. It says what it dropped, how evenly it sampled, and what it took from
/// the application's speed, which it measures by pausing at random.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  tailscope observe --self-test                        what a sample takes here
  tailscope observe --signal channel:4711:served --tag channel:4711:phase -d 10s --period 2400
  tailscope observe --signal hsperf:$(pidof java):sun.gc.collector.0.invocations --period 100000
  tailscope observe --signal mem:$(pidof redis-server):SYMBOL --period 5000
  tailscope observe --signal channel:4711:served --budget 1%   the finest period that costs 1 %
  tailscope observe --signal channel:4711:served --tag channel:4711:edge -d 10s --html seen.html
                                                       by function and line, of a program compiled to tell them (docs/how-to/observe-a-program.md)

Signals:
  channel:PID:NAME   a channel that the program makes with TS_CHANNEL (sdk/c/tailscope_channel.h) or the SDKs for Rust and Java
  hsperf:PID:NAME    a counter that HotSpot keeps of every JVM, as `jcmd PID PerfCounter.print` lists
  mem:PID:SYMBOL     a global variable of a program as it is; SYMBOL+8 is eight bytes further on
  counter:PID:EVENT  what a thread executes, by hardware event, as perf names them: instructions; counter:PID/TID:EVENT
  meter:PID:CAUSE    what a thread lost to a cause, in ns, as a recording has it; meter:PID/TID:CAUSE for another thread
  running:CPU        a tag: the thread that runs on a CPU
Counters have rates; what is no counter can be a --tag, by whose value the rates are told.

Times are cycles of the machine's clock (TSC, CNTVCT), which goes on at one speed. Process ids are
those of the initial namespace. docs/reference/observe.md says what each figure means.")]
pub struct Observe {
    /// A counter to read, up to 4 (repeatable)
    #[arg(short, long = "signal", value_name = "SIGNAL")]
    pub signals: Vec<Name>,

    /// A value by which rates are told, up to 2 (repeatable)
    #[arg(short, long = "tag", value_name = "SIGNAL")]
    pub tags: Vec<Name>,

    /// How long: 20s, 500ms [default: until Ctrl-C or the end of the process]
    #[arg(short, long, value_name = "TIME", value_parser = parse_duration)]
    pub duration: Option<Duration>,

    /// Cycles from one sample to the next, or `fast`: as fast as it goes
    #[arg(long, value_name = "CYCLES", default_value = "2400", value_parser = parse_period)]
    pub period: Period,

    /// Vary each period at random by up to this share of it, to both sides
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = parse_share)]
    pub jitter: f64,

    /// Find the finest period that takes no more than this share of the application's speed
    #[arg(long, value_name = "SHARE", value_parser = parse_probability, conflicts_with = "no_pauses")]
    pub budget: Option<f64>,

    /// The counter that shows the application's speed [default: the first --signal]
    #[arg(long, value_name = "SIGNAL")]
    pub progress: Option<Name>,

    /// Don't pause: what observing takes from the application stays unknown
    #[arg(long)]
    pub no_pauses: bool,

    /// By how much the two readings of the clock may disagree for a pair of samples to count
    #[arg(long, value_name = "SHARE", default_value = "1%", value_parser = parse_share)]
    pub dte: f64,

    /// Count the pairs in which the first counter grew faster than it can: 1/1000 or 0.001 a cycle
    #[arg(long, value_name = "RATE", value_parser = parse_ratio)]
    pub at_most: Option<f64>,

    /// Write every sample too, as Parquet, into this folder, which must not be there yet
    #[arg(short, long, value_name = "FOLDER")]
    pub output: Option<PathBuf>,

    /// Write the report with pictures into this file too, readable offline
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// The length of a slice of the time series
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = parse_duration)]
    pub series: Duration,

    /// The observer's CPU [default: one that the application does not use]
    #[arg(long, value_name = "CPU")]
    pub cpu: Option<u32>,

    /// Beside the application's CPU: the other hardware thread of its core, or another core
    #[arg(long, value_enum)]
    pub on: Option<On>,

    /// Measure what a sample takes on this machine, and do nothing else
    #[arg(long)]
    pub self_test: bool,

    /// Seed of jitter and pauses
    #[arg(long, value_name = "NUMBER", default_value = "1")]
    pub seed: u64,

    /// For machines
    #[arg(long)]
    pub json: bool,

    /// No progress line
    #[arg(short, long)]
    pub quiet: bool,
}

/// Which hardware context beside the application's.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum On {
    /// The other hardware thread of its core (SMT)
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
            "'{text}' is no period: a number of cycles like 2400, or fast"
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
            "'{text}' is no rate: counts a cycle, like 1/1000 or 0.001"
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
