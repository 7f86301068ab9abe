//! The command line: which commands there are, and the arguments of those that need no folder.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, Parser, Subcommand};
use tailscope_record::SpanSource;
use tailscope_record::quantity::{
    parse_byte_rate, parse_duration, parse_percentile, parse_probability,
};

use crate::observe::Observe;
use crate::timeline::Timeline;
use crate::top::Top;

/// Why are my slow requests slow, what is each cause worth, and what can be done about it?
#[derive(Debug, Parser)]
#[command(
    name = "tailscope",
    version,
    subcommand_required = true,
    arg_required_else_help = true
)]
#[command(after_help = "\
Start with:
  tailscope doctor                            what this machine can measure
  tailscope top -p $(pidof -s memcached)      live, in the terminal
  tailscope record -p $(pidof -s memcached) -d 20s -o run
  tailscope explain run                       the causes of its p99, in microseconds
  tailscope diff run other                    what changed, and which causes carry it
  tailscope timeline -p PID --slow 2ms        what the whole stack did to one slow request

explain and diff are in Python, and say themselves how they are used: tailscope explain --help

Exit codes: 0 done, 1 the answer is \"no\", 2 wrong usage, 3 this machine can't. `record -- CMD`
exits with the command's own code when the command ends before the recording.")]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Record spans and where their time went, into a ledger
    Record(Record),
    /// Record for weeks, as a service: rotation, quota, Prometheus, OpenTelemetry
    Agent(Agent),
    /// Show live, by kind of span, how long spans take and what the slow ones are made of
    Top(Top),
    /// Keep the last seconds of what the whole stack did; write them when a request is slow
    Timeline(Timeline),
    /// Sample signals every few cycles to microseconds, from a CPU of its own
    Observe(Observe),
    /// Say what this machine can measure, what it can't, why, and what would change it
    Doctor(Doctor),
    /// explain, diff, ...: programs named tailscope-NAME beside this one or on the PATH
    #[command(external_subcommand)]
    External(Vec<OsString>),
}

/// Record spans and where their time went, into a ledger.
///
/// Every request is metered: for each span the ledger says how much of its wall time went to
/// waiting for a CPU, to locks, to disks, to interrupts, to page faults and so on, and how much
/// the span ran itself. Ctrl-C ends a recording properly.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  tailscope record -p 4711 -d 20s -o run      a running server, with no restart and no annotation
  tailscope record -o run -- ./server --port 80
  tailscope record -p 4711 --span sdk         spans that the program marks with tailscope.h

Span sources (--span):
  syscall:ready..send   a request of any server: from when its data was ready at the socket to the
                        end of the next send on it; the wait for a busy thread is `queue`
  syscall:recv..send    the same from the return of the receive
  sdk                   ts_span_begin and ts_span_end of tailscope.h
  usdt:PATH:PROVIDER:BEGIN..END
                        from one USDT probe to another on the same thread
  uprobe:PATH:SYMBOL    from a function's entry to its return; SYMBOL as `nm` or its C++ source has it
  uprobe:PATH:BEGIN..END
                        from the entry of one function to the entry of another
Without --span: sdk if the program has it, else syscall:ready..send.

PATH has a / in it and is read as the recorded process sees it, in its container too; or it is the
bare name of the program that a process runs, of a library that it has mapped, or of a program on
the PATH. NAME=SOURCE names the spans. An argument of a probe can be the span's id (a number) or its
name (a string): BEGIN(id=arg0,name=arg1), also at END; quote it for the shell.
  tailscope record -p $(pidof -s postgres) --span query=usdt:postgres:postgresql:query__start..query__done
Spans of one source may nest on a thread; one whose end never comes (longjmp, an error) is dropped.

The exit code is that of CMD if it ends before the recording, 128 plus the signal's number if a
signal ended it. --ignore-exit-code makes it 0. With -d or Ctrl-C, the recording ends CMD and exits
with 0. A recording that fails exits with 2 or 3.")]
pub struct Record {
    #[command(flatten)]
    pub subject: Subject,

    /// How long to record: 20s, 500ms, 10m [default: until Ctrl-C or the end of the program]
    #[arg(short, long, value_name = "TIME", value_parser = parse_duration)]
    pub duration: Option<Duration>,

    /// The ledger's folder
    #[arg(short, long, value_name = "FOLDER", default_value = "ledger")]
    pub output: PathBuf,

    /// Replace a ledger that is in the folder
    #[arg(long)]
    pub overwrite: bool,

    /// Write no more than so many bytes a second, half of it for the tail: 100KB/s, 2MB/s
    #[arg(long, value_name = "BYTES", value_parser = parse_byte_rate)]
    pub budget: Option<u64>,

    /// Count events of the CPU in the SDK's spans: instructions,cycles,cpu/event=0xc2,umask=0x1/
    #[arg(long, value_name = "EVENTS")]
    pub counters: Option<String>,

    /// Exit with 0 whatever the command's exit code is
    #[arg(long)]
    pub ignore_exit_code: bool,

    /// No progress line, no summary
    #[arg(short, long)]
    pub quiet: bool,
}

/// Which processes, and which of their spans.
#[derive(Debug, ClapArgs)]
pub struct Subject {
    /// Process to record, with all its threads and children (repeatable)
    #[arg(short, long = "pid", value_name = "PID")]
    pub pids: Vec<u32>,

    /// Where spans come from (repeatable)
    #[arg(long = "span", value_name = "SOURCE")]
    pub spans: Vec<SpanSource>,

    /// Meter only this share of the requests, chosen at their begin: 1%, 0.01
    #[arg(long, value_name = "SHARE", default_value = "100%", value_parser = parse_probability)]
    pub sample: f64,

    /// Keep only this share of the metered spans, chosen at their end [default: 100%, with --tail 1%]
    #[arg(long, value_name = "SHARE", value_parser = parse_probability)]
    pub keep: Option<f64>,

    /// Keep all spans that are slower than this percentile of their kind's latest: p99, p99.9
    #[arg(long, value_name = "PERCENTILE", value_parser = parse_percentile)]
    pub tail: Option<f64>,

    /// Record the named processes alone, not their children
    #[arg(long)]
    pub no_children: bool,

    /// Command to start and record
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// Record for weeks, as a service.
///
/// What is recorded, where to and how much of it is in a file (docs/how-to/run-the-agent.md).
/// SIGHUP reads it again; SIGTERM and SIGINT end the agent properly.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  tailscope agent --check /etc/tailscope/agent.toml    is it valid?
  tailscope agent                                      run it; as a service: packaging/tailscope-agent.service
  curl http://127.0.0.1:9745/metrics                   how it goes
  tailscope explain /var/lib/tailscope/2026-11-21T120000Z-000007")]
pub struct Agent {
    /// Its configuration
    #[arg(value_name = "CONFIG", default_value = "/etc/tailscope/agent.toml")]
    pub config: PathBuf,

    /// Say whether the configuration is valid, and do nothing else
    #[arg(long)]
    pub check: bool,
}

/// Say what this machine can measure, what it can't, why, and what would change it.
#[derive(Debug, ClapArgs)]
pub struct Doctor {
    /// For machines
    #[arg(long)]
    pub json: bool,
}
