//! The arguments of `tailscope borrow`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, Subcommand};
use tailscope_borrow::{Slo, parse_ns};
use tailscope_record::SpanSource;
use tailscope_record::quantity::{parse_duration, parse_probability};

/// Run a batch command in the idle time of a server, and report what that costs the server.
///
/// The command and everything that it starts get a CPU only while nobody else wants it. They run in
/// SCHED_IDLE, in a cgroup with cpu.idle, on the CPUs of the server. Tailscope holds them back in
/// short random phases. It compares the server's latency in these phases with its latency in the
/// others. The server itself is not changed. Ctrl-C ends the command.
#[derive(Debug, ClapArgs)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  tailscope borrow --for $(pidof -s memcached) -- make -j2
  tailscope borrow --for 4711 --slo p99=2ms -- ./train     lend less while p99 is in danger
  tailscope borrow --for 4711 -d 60s --json -- ./burn      a report for machines
  tailscope borrow status                                  what is lent now, and what it costs
  tailscope borrow stop                                    end the batch commands
  tailscope borrow --simulate run --slo p99=2ms            what each policy would do, in a model
  tailscope borrow --restore                               end what a killed tailscope left behind

The command's stdin is empty. With --json the command's stdout goes to stderr. If the command ends
first, the exit code is that of the command, or 128 plus the number of the signal that ended it.
With -d, Ctrl-C, or the end of the server, tailscope stops the command and exits with 0.

A hardware thread that shares a core with a lent CPU is not taken into account."
)]
pub struct Borrow {
    /// What to do with commands that run
    #[command(subcommand)]
    pub with: Option<WithRunning>,

    /// The server whose idle time is lent: its process id
    #[arg(long = "for", value_name = "PID")]
    pub server: Option<u32>,

    /// Lend only as much as this limit of the server's latency allows: p99=2ms
    #[arg(long, value_name = "PERCENTILE=TIME")]
    pub slo: Option<Slo>,

    /// CPUs to lend: 0-3,8 [default: those on which the server may run]
    #[arg(long, value_name = "LIST", value_parser = parse_cpus)]
    pub cpus: Option<Cpus>,

    /// Hold the command back in this share of the time, for comparison
    #[arg(long, value_name = "SHARE", default_value = "4%", value_parser = parse_probability)]
    pub held_back: f64,

    /// What a request of the server is, as in `tailscope record` (repeatable)
    #[arg(long = "span", value_name = "SOURCE")]
    pub spans: Vec<SpanSource>,

    /// How long to lend: 20s, 10m [default: until the command or the server ends]
    #[arg(short, long, value_name = "TIME", value_parser = parse_duration)]
    pub duration: Option<Duration>,

    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,

    /// Print no progress line
    #[arg(short, long)]
    pub quiet: bool,

    /// End batch commands whose tailscope was killed, remove their cgroups, and do nothing else
    #[arg(long, conflicts_with_all = ["server", "command"])]
    pub restore: bool,

    /// Show what each policy would do to a recorded server, in a model, and lend nothing
    #[arg(long, value_name = "LEDGER", conflicts_with_all = ["server", "restore", "command"])]
    pub simulate: Option<PathBuf>,

    /// In the model: how long batch may run beside a request: 100us, 1ms
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = parse_budget)]
    pub budget: u64,

    /// In the model: the speed of a request while batch runs on the other hardware thread
    #[arg(long, value_name = "SHARE", default_value = "60%", value_parser = parse_probability)]
    pub overlap_speed: f64,

    /// Batch command to run
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// What to do with batch commands that run.
#[derive(Debug, Subcommand)]
pub enum WithRunning {
    /// Show what is lent now, and what it costs
    Status(Status),
    /// End batch commands
    Stop(Stop),
}

/// Which figures.
#[derive(Debug, ClapArgs)]
pub struct Status {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Which commands.
#[derive(Debug, ClapArgs)]
pub struct Stop {
    /// The process id of the tailscope that lends, or of the server [default: all of this user]
    #[arg(value_name = "PID")]
    pub pid: Option<u32>,
}

/// Numbers of CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cpus(pub Vec<u32>);

fn parse_budget(text: &str) -> Result<u64, String> {
    parse_ns(text).ok_or_else(|| format!("'{text}' is not a time; write 100us or 1ms"))
}

fn parse_cpus(text: &str) -> Result<Cpus, String> {
    let wrong = || format!("'{text}' is not a list of CPUs; write 0-3,8");
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.parse::<u32>().ok().filter(|cpu| *cpu < 1024);
        let (first, last) = (
            number(first).ok_or_else(wrong)?,
            number(last).ok_or_else(wrong)?,
        );
        if first > last {
            return Err(wrong());
        }
        cpus.extend(first..=last);
    }
    cpus.sort_unstable();
    cpus.dedup();
    Ok(Cpus(cpus))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_read() {
        assert_eq!(parse_cpus("0-2,8,1"), Ok(Cpus(vec![0, 1, 2, 8])));
        for text in ["", "x", "3-1", "1,", "1024", "-1"] {
            assert!(parse_cpus(text).is_err(), "{text}");
        }
    }
}
