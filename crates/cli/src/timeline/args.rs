//! The arguments of `tailscope timeline`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, Subcommand};
use tailscope_kernel::timeline::Tier;
use tailscope_record::SpanSource;
use tailscope_record::quantity::{parse_bytes, parse_duration, parse_nanos, parse_percentile};
use tailscope_timeline::Slow;

use super::events::Events;
use super::requests::ListRequests;
use crate::overhead::parse_overhead;

/// Keep the last seconds of system events in memory; write them when a request is slow.
///
/// Ring buffers in memory hold the machine's wake-ups, context switches, interrupts, softirqs,
/// packets and idle CPUs. They also hold the processes' system calls, page faults, receives and
/// sends. If a request takes too long, Tailscope writes the last seconds to a file, the window.
/// SIGUSR1 writes a window too. Ctrl-C ends the recording.
#[derive(Debug, ClapArgs)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  tailscope timeline -p $(pidof -s memcached) --slow 2ms -o windows
  tailscope timeline --slow p99.9 -o windows -- ./server --port 80
  tailscope timeline -p PID --span sdk --slow 5ms       spans that the program marks with the SDK
  tailscope timeline -p PID --slow p99 --overhead 1%    for as much of the time as costs 1 %
  kill -USR1 PID                                        write a window now: PID is the recorder's
  tailscope timeline dump /run/timeline.sock            the same, through --control's socket
  tailscope timeline story windows/slow-0001.timeline   where the time of its slow requests went
  tailscope timeline requests windows                   the slow requests of all windows
  tailscope timeline page windows/slow-0001.timeline    draw the slowest of them
  tailscope timeline perfetto windows/slow-0001.timeline
                                                        export the window for ui.perfetto.dev

A request starts with its first packet. It ends when the last byte of its answer has left, or when a
client on this machine has received that byte (docs/reference/timeline.md)."
)]
pub struct Timeline {
    /// What to do with windows
    #[command(subcommand)]
    pub with: Option<WithWindow>,

    /// Process to watch, with all its threads and children (repeatable)
    #[arg(short, long = "pid", value_name = "PID")]
    pub pids: Vec<u32>,

    /// What to follow (repeatable): syscall:ready..send for requests on sockets (the default), or
    /// spans as in `tailscope record`: sdk, usdt:..., uprobe:...
    #[arg(long = "span", value_name = "SOURCE")]
    pub spans: Vec<SpanSource>,

    /// Which events to keep: `scheduler`, for the least overhead, has threads, wake-ups, receives and
    /// sends; `requests` also when TCP got a request and when its answer left; `all` also clients on
    /// this machine, softirqs, interrupts, system calls, page faults, disks and idle CPUs
    #[arg(long, value_name = "TIER", default_value_t = Tier::All)]
    pub events: Tier,

    /// Write a window when a request takes at least this time, or longer than this percentile:
    /// 2ms, p99.9
    #[arg(long, value_name = "TIME|PERCENTILE", value_parser = parse_slow)]
    pub slow: Option<Slow>,

    /// How much time a window covers
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    pub keep: Duration,

    /// Memory for the ring buffers; Tailscope uses at most 512 MiB a CPU
    #[arg(long, value_name = "BYTES", default_value = "256MB", value_parser = parse_bytes)]
    pub memory: u64,

    /// Write at most this many windows a minute for slow requests, evenly spaced
    #[arg(long, value_name = "COUNT", default_value_t = 4)]
    pub per_minute: u32,

    /// Disk space for all windows together; once it is used up, Tailscope writes no more
    #[arg(long, value_name = "BYTES", default_value = "2GB", value_parser = parse_bytes)]
    pub disk: u64,

    /// Also write each window in Perfetto's format; this needs a window's size in memory
    #[arg(long)]
    pub perfetto: bool,

    /// Create this socket, for this user only, through which `timeline dump` requests a window
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,

    /// How long to record [default: until Ctrl-C or the processes' end]
    #[arg(short, long, value_name = "TIME", value_parser = parse_duration)]
    pub duration: Option<Duration>,

    /// Slow the program down by at most this share: 1%, 0.5%; Tailscope then keeps events for a part
    /// of the time, predicts the overhead, and measures it; not for SDK spans
    #[arg(long, value_name = "SHARE", value_parser = parse_overhead, conflicts_with = "command")]
    pub overhead: Option<f64>,

    /// Folder for the windows
    #[arg(short, long, value_name = "FOLDER", default_value = "windows")]
    pub output: PathBuf,

    /// Watch only the named processes, not their children
    #[arg(long)]
    pub no_children: bool,

    /// Print only problems
    #[arg(short, long)]
    pub quiet: bool,

    /// Command to start and watch
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// What to do with windows.
#[derive(Debug, Subcommand)]
pub enum WithWindow {
    /// Show where the time of each slow request went, from packet to packet
    Story(TellStory),
    /// List the slow requests of many windows, the slowest first
    Requests(ListRequests),
    /// Draw one slow request as an HTML page that needs no network
    Page(Page),
    /// Print a window's events, one JSON object a line
    Events(Events),
    /// Export a window in Perfetto's format, for ui.perfetto.dev
    Perfetto(Perfetto),
    /// Make a running recorder write a window now, and print its path
    Dump(Dump),
}

/// Make a running recorder write a window now, and print its path.
#[derive(Debug, ClapArgs)]
pub struct Dump {
    /// The socket that --control names
    pub socket: PathBuf,
}

/// Draw one slow request as an HTML page that needs no network.
#[derive(Debug, ClapArgs)]
pub struct Page {
    /// A window that `tailscope timeline` wrote
    pub trace: PathBuf,

    /// The request's number in `tailscope timeline story`; 1 is the slowest
    #[arg(short = 'n', long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub number: u32,

    /// File to write, or - for stdout [default: next to the window, as .NUMBER.html]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Show where the time of each slow request went, from packet to packet.
#[derive(Debug, ClapArgs)]
pub struct TellStory {
    /// A window that `tailscope timeline` wrote
    pub trace: PathBuf,

    /// Show requests that took at least this time [default: as --slow of the recording]
    #[arg(long, value_name = "TIME", value_parser = parse_nanos)]
    pub slower: Option<u64>,

    /// Show this many requests, the slowest first
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 10)]
    pub count: usize,

    /// Print JSON with every gap; times in ns
    #[arg(long)]
    pub json: bool,
}

/// Export a window in Perfetto's format, for ui.perfetto.dev.
#[derive(Debug, ClapArgs)]
pub struct Perfetto {
    /// A window that `tailscope timeline` wrote
    pub trace: PathBuf,

    /// File to write, or - for stdout [default: next to the window, as .perfetto-trace]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

fn parse_slow(text: &str) -> Result<Slow, String> {
    if text.starts_with('p') || text.ends_with('%') {
        return parse_percentile(text).map(Slow::Percentile);
    }
    parse_nanos(text).map(Slow::Longer)
}
