//! The arguments of `tailscope timeline`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, Subcommand};
use tailscope_record::SpanSource;
use tailscope_record::quantity::{parse_bytes, parse_duration, parse_percentile};
use tailscope_timeline::Slow;

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
client on this machine (docs/reference/timeline.md)."
)]
pub struct Timeline {
    /// What to do with windows
    #[command(subcommand)]
    pub with: Option<WithWindow>,

    /// Process to watch, with all its threads and children (repeatable)
    #[arg(short, long = "pid", value_name = "PID")]
    pub pids: Vec<u32>,

    /// What is followed (repeatable): syscall:ready..send, the requests on sockets, as without --span; and
    /// spans in programs, as in `tailscope record`: sdk, usdt:... and uprobe:...
    #[arg(long = "span", value_name = "SOURCE")]
    pub spans: Vec<SpanSource>,

    /// Write a window when a request takes so long, or longer than this percentile: 2ms, 500us, p99.9
    #[arg(long, value_name = "TIME|PERCENTILE", value_parser = parse_slow)]
    pub slow: Option<Slow>,

    /// How much of the past a window holds
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    pub keep: Duration,

    /// What the rings may take in memory; at most 512 MiB a CPU are used
    #[arg(long, value_name = "BYTES", default_value = "256MB", value_parser = parse_bytes)]
    pub memory: u64,

    /// Windows a minute, at most, for slow requests; the next one is not before a minute divided by this
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

    /// The file to write, - for stdout [default: beside the window, as .NUMBER.html]
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

    /// The file to write, - for stdout [default: beside the window, as .perfetto-trace]
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
