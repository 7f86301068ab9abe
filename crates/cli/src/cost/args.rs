//! The arguments of `tailscope cost`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, Subcommand};
use tailscope_record::quantity::{parse_duration, parse_probability};

use super::progress::Progress;

/// Measure what observing costs on this machine, and predict what a command would cost a program.
///
/// An observer hooks a program: it takes samples, or runs code at its calls. `calibrate` measures
/// what one hit of each kind of hook costs here. `predict` counts how often a command's hooks would
/// be hit, and says how much the program would slow down, before that command runs.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  tailscope cost calibrate                           measure this machine, in ten seconds
  tailscope cost show                                what one hit of each kind costs here
  tailscope cost predict -p PID --with 'record --span syscall:ready..send'
  tailscope cost predict -p PID --with 'perf record -F 999 -g'
  tailscope cost predict -p PID --with \"bpftrace -e 'uprobe:/usr/bin/server:work { @ = count(); }'\"
  tailscope cost advise -p PID --budget 1%           the highest sampling rates within 1 %
  tailscope cost verify -p PID --with 'strace -f -c' --progress io:calls

Commands that can be predicted: tailscope record, timeline and locality, perf record, perf stat,
bpftrace -e, strace. What perf trace costs is not predicted; `cost verify` measures it.")]
pub struct Cost {
    /// What to do
    #[command(subcommand)]
    pub what: What,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum What {
    Calibrate(Calibrate),
    Show(Show),
    Predict(Predict),
    Verify(Verify),
    Advise(Advise),
    /// Be the process that calibrate records: obeys orders on its input
    #[command(hide = true)]
    Recorded,
}

/// Measure what one hit of each kind of hook costs on this machine.
///
/// Takes ten seconds. The result is kept with the machine's identity, and earlier results widen
/// the intervals of later predictions by what lies between them. Meanwhile hooks are on system calls
/// and context switches of the whole machine for a few milliseconds at a time.
#[derive(Debug, ClapArgs)]
pub struct Calibrate {
    /// Where to keep the result [default: /var/lib/tailscope/cost.json, or your state folder]
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,

    /// How long to measure
    #[arg(short, long, value_name = "TIME", default_value = "4s", value_parser = parse_duration)]
    pub duration: Duration,

    /// The CPU to measure on [default: the idlest one]
    #[arg(long, value_name = "CPU")]
    pub cpu: Option<usize>,

    /// Seed of the order
    #[arg(long, value_name = "NUMBER", default_value = "1")]
    pub seed: u64,

    /// Forget earlier results of this machine
    #[arg(long)]
    pub forget: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// Print no progress line
    #[arg(short, long)]
    pub quiet: bool,
}

/// Show what one hit of each kind of hook costs on this machine.
#[derive(Debug, ClapArgs)]
pub struct Show {
    /// Where the result is kept [default: as for calibrate]
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Which program.
#[derive(Debug, ClapArgs)]
pub struct Whose {
    /// The process, with all its threads and children
    #[arg(short, long = "pid", value_name = "PID")]
    pub pid: u32,

    /// Where the calibration is kept [default: as for calibrate]
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Say how much a command would slow a program down, before it runs.
///
/// Counts for a second how often the command's hooks would be hit. Counting runs small programs at
/// these hooks, in short windows; the output says what that cost.
#[derive(Debug, ClapArgs)]
pub struct Predict {
    #[command(flatten)]
    pub whose: Whose,

    /// The command, as you would type it
    #[arg(long, value_name = "COMMAND")]
    pub with: String,
}

/// Run a command in random phases, and compare the program's slow-down with the prediction.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Progress (--progress) is a number that grows with the program's work:
  io:calls       its read and write calls
  io:bytes       the bytes of these
  file:PATH      a number in a file
  cmd:COMMAND    a number that a command prints

If the program is busy all the time, elapsed time for the same progress counts. If others pace the
program, its CPU time counts.")]
pub struct Verify {
    #[command(flatten)]
    pub whose: Whose,

    /// The command, as you would type it
    #[arg(long, value_name = "COMMAND")]
    pub with: String,

    /// What shows the program's work [default: none, and then nothing is verified]
    #[arg(long, value_name = "PROGRESS")]
    pub progress: Option<Progress>,

    /// Pairs of phases, one with and one without the command
    #[arg(long, value_name = "COUNT", default_value_t = 8, value_parser = clap::value_parser!(u16).range(3..=1000))]
    pub pairs: u16,

    /// Length of a phase
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    pub phase: Duration,

    /// Seed of the order
    #[arg(long, value_name = "NUMBER", default_value = "1")]
    pub seed: u64,
}

/// Find the highest sampling rates that stay within a budget.
#[derive(Debug, ClapArgs)]
pub struct Advise {
    #[command(flatten)]
    pub whose: Whose,

    /// How much more CPU time the program's work may take
    #[arg(long, value_name = "SHARE", default_value = "1%", value_parser = parse_probability)]
    pub budget: f64,
}
