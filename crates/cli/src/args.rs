//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, Parser, Subcommand};
use tailscope_record::SpanSource;
use tailscope_record::quantity::{
    parse_byte_rate, parse_bytes, parse_duration, parse_percentile, parse_probability,
};
use tailscope_timeline::Slow;

use crate::observe::Observe;
use crate::top::Column;

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

Exit codes: 0 done, 1 the answer is \"no\", 2 wrong usage, 3 this machine can't.")]
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
    /// explain, diff, …: programs named tailscope-NAME beside this one or on the PATH
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
Spans of one source may nest on a thread; one whose end never comes (longjmp, an error) is dropped.")]
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
/// What is recorded, where to and how much of it is in a file (docs/agent.md). SIGHUP reads it
/// again; SIGTERM and SIGINT end the agent properly.
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

/// Show live, by kind of span, how long spans take and what the slow ones are made of.
///
/// A row a kind of span: how many a second, p50, p99 and p99.9, and a bar of the tail: of all the
/// time of the spans at or above p99, which part went to which cause. The figures are of the last
/// 8 to 10 seconds (w: since the begin). Nothing is written to disk.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  tailscope top -p $(pidof -s memcached)
  tailscope top -- ./server --port 80         what the server prints is dropped while it is shown
  tailscope top -p 4711 --batch -n 3 -i 5s    three pictures as text, every five seconds one
  tailscope top -p 4711 --json -n 1 | jq '.kinds[] | {name, p99_ns}'

Keys:
  up down         choose a kind           enter    its causes in microseconds, and its p99 over time
  < > s           sort by another column  r        the other way round
  /               only kinds with a text  esc      all again
  space f         freeze, and go on       w        the last seconds, or all since the begin
  t               bars of the tail, or of all spans
  c               with colours or without ?        what the letters mean
  q ctrl-c        end

~ before a percentile: so few spans that it is simply the slowest one.
See `tailscope record --help` for the span sources. NO_COLOR and the locale (ASCII or UTF-8) are
honoured.")]
pub struct Top {
    #[command(flatten)]
    pub subject: Subject,

    /// How often a new picture comes: 1s, 500ms
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    pub interval: Duration,

    /// How long to go on [default: until q, Ctrl-C or the end of the program]
    #[arg(short, long, value_name = "TIME", value_parser = parse_duration)]
    pub duration: Option<Duration>,

    /// End after this many pictures
    #[arg(short = 'n', long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,

    /// Sort by this column
    #[arg(short, long, value_enum, default_value_t = Column::P99)]
    pub sort: Column,

    /// Only kinds whose name holds this text, whatever its case
    #[arg(short, long, value_name = "TEXT", default_value = "")]
    pub filter: String,

    /// Print pictures as text, one below the other; so it is too where there is no terminal
    #[arg(short, long)]
    pub batch: bool,

    /// Print a line of JSON for each picture
    #[arg(long, conflicts_with = "batch")]
    pub json: bool,
}

/// Keep the last seconds of what the whole stack did; write them when a request is slow.
///
/// Wake-ups, switches, interrupts, softirqs, packets and idle CPUs of the machine, and the system
/// calls, page faults, receives and sends of the processes, go into rings of memory that are
/// written over and over. When a request takes too long, from its packet to its answer's, the window
/// of the last seconds goes to a file, and so it does on SIGUSR1. Ctrl-C ends it properly.
#[derive(Debug, ClapArgs)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  tailscope timeline -p $(pidof -s memcached) --slow 2ms -o windows
  tailscope timeline --slow p99.9 -o windows -- ./server --port 80
  tailscope timeline -p PID --span sdk --slow 5ms       spans that the program marks itself
  kill -USR1 $(pidof tailscope)                         write the window now
  tailscope timeline dump /run/timeline.sock            the same, where --control names that socket
  tailscope timeline story windows/slow-0001.timeline   what held up its slow requests
  tailscope timeline page windows/slow-0001.timeline    the slowest of them as a picture
  tailscope timeline perfetto windows/slow-0001.timeline
                                                        the same window for ui.perfetto.dev

A request begins with its first packet and ends when the last byte of its answer has left, or was received by a
client on this machine (docs/timeline.md)."
)]
pub struct Timeline {
    /// What to do with windows
    #[command(subcommand)]
    pub with: Option<WithWindow>,

    /// Process to watch, with all its threads and children (repeatable)
    #[arg(short, long = "pid", value_name = "PID")]
    pub pids: Vec<u32>,

    /// What is followed (repeatable): syscall:ready..send, the requests on sockets, as without --span; and
    /// spans in programs, as in `tailscope record`: sdk, usdt:… and uprobe:…
    #[arg(long = "span", value_name = "SOURCE")]
    pub spans: Vec<SpanSource>,

    /// Write a window when a request takes so long, or longer than this percentile: 2ms, 500us, p99.9
    #[arg(long, value_name = "TIME|PERCENTILE", value_parser = parse_slow)]
    pub slow: Option<Slow>,

    /// How much of the past a window holds
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    pub keep: Duration,

    /// What the rings may take in memory
    #[arg(long, value_name = "BYTES", default_value = "256MB", value_parser = parse_bytes)]
    pub memory: u64,

    /// Windows a minute, at most, for slow requests
    #[arg(long, value_name = "COUNT", default_value_t = 4)]
    pub per_minute: u32,

    /// What all windows together may take on disk; then no more are written
    #[arg(long, value_name = "BYTES", default_value = "2GB", value_parser = parse_bytes)]
    pub disk: u64,

    /// Also write each window in Perfetto's format (takes a window's size in memory meanwhile)
    #[arg(long)]
    pub perfetto: bool,

    /// A socket, for this user alone, at which `tailscope timeline dump` asks for the window
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,

    /// How long to go on [default: until Ctrl-C or the end of the processes]
    #[arg(short, long, value_name = "TIME", value_parser = parse_duration)]
    pub duration: Option<Duration>,

    /// The folder for the windows
    #[arg(short, long, value_name = "FOLDER", default_value = "windows")]
    pub output: PathBuf,

    /// Watch the named processes alone, not their children
    #[arg(long)]
    pub no_children: bool,

    /// Tell only what goes wrong
    #[arg(short, long)]
    pub quiet: bool,

    /// Command to start and watch
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// What to do with windows.
#[derive(Debug, Subcommand)]
pub enum WithWindow {
    /// Tell, for each slow request, where its time went from packet to packet
    Story(TellStory),
    /// Draw one slow request as a page that needs no network
    Page(Page),
    /// Write the window in Perfetto's format, for ui.perfetto.dev
    Perfetto(Perfetto),
    /// Have a running recorder write the window up to now, and print its path
    Dump(Dump),
}

/// Have a running recorder write the window up to now, and print its path.
#[derive(Debug, ClapArgs)]
pub struct Dump {
    /// The socket that the recorder was given with --control
    pub socket: PathBuf,
}

/// Draw one slow request as a page that needs no network.
#[derive(Debug, ClapArgs)]
pub struct Page {
    /// A window that `tailscope timeline` wrote
    pub trace: PathBuf,

    /// Which: its number in `tailscope timeline story`, 1 for the slowest
    #[arg(short = 'n', long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub number: u32,

    /// The file to write [default: beside the window, as .NUMBER.html]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Tell, for each slow request, where its time went from packet to packet.
#[derive(Debug, ClapArgs)]
pub struct TellStory {
    /// A window that `tailscope timeline` wrote
    pub trace: PathBuf,

    /// Requests that took at least so long [default: what was slow when it was recorded]
    #[arg(long, value_name = "TIME", value_parser = parse_nanos)]
    pub slower: Option<u64>,

    /// So many, the slowest first
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 10)]
    pub count: usize,

    /// For machines: every gap, in ns
    #[arg(long)]
    pub json: bool,
}

/// Write a window in Perfetto's format.
#[derive(Debug, ClapArgs)]
pub struct Perfetto {
    /// A window that `tailscope timeline` wrote
    pub trace: PathBuf,

    /// The file to write [default: beside the window, as .perfetto-trace]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Reads a short time in ns: `2ms`, `500us`, `1s`.
fn parse_nanos(text: &str) -> Result<u64, String> {
    let short = ["us", "µs"].iter().find_map(|unit| text.strip_suffix(unit));
    let ns = match short {
        Some(number) => {
            number
                .parse::<f64>()
                .map_err(|_| format!("'{text}' is no duration: try 500us"))?
                * 1e3
        }
        None => parse_duration(text)?.as_nanos() as f64,
    };
    if (1.0..1e18).contains(&ns) {
        Ok(ns as u64)
    } else {
        Err(format!("'{text}' is no duration that a request can take"))
    }
}

fn parse_slow(text: &str) -> Result<Slow, String> {
    if text.starts_with('p') || text.ends_with('%') {
        return parse_percentile(text).map(Slow::Percentile);
    }
    parse_nanos(text).map(Slow::Longer)
}

/// Say what this machine can measure, what it can't, why, and what would change it.
#[derive(Debug, ClapArgs)]
pub struct Doctor {
    /// For machines
    #[arg(long)]
    pub json: bool,
}
