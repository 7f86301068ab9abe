//! The arguments of `tailscope record`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tailscope_record::MOST_STACK_RATE;
use tailscope_record::quantity::{parse_byte_rate, parse_duration};

use crate::overhead::parse_overhead;
use crate::subject::Subject;

/// Record spans and where their time went, into a ledger.
///
/// A span is one request to a server, or another piece of work that --span selects. The ledger is a
/// folder of Parquet files. It has the wall time of each span, and how much of it each cause took:
/// waits for a CPU, locks, disks, interrupts, page faults and more. The rest is the time in which
/// the span ran. Ctrl-C ends the recording and keeps the ledger.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tailscope record -p 4711 -d 20s -o run      a running server, unchanged
  tailscope record -o run -- ./server --port 80
                                              start a server and record it
  tailscope record -p 4711 --span sdk         spans that the program marks with the SDK
  tailscope record -p 4711 -d 10m --overhead 1%
                                              for as much of the time as costs the server 1 %

Span sources (--span):
  request               a request of any server: from when its data is ready at the socket to the
                        end of the answer's last send, on any thread; the wait for a busy thread is
                        `queue`, that for another server is `downstream`; named by method and path
                        or by command, see --name
  syscall:ready..send   the same at less cost, for servers that answer each request on the thread
                        that received it, and ask no other server for it
  syscall:recv..send    as syscall:ready..send, but from the return of the receive
  sdk                   a span that the program marks (tailscope.h, or the SDK for Rust or Java)
  usdt:PATH:PROVIDER:BEGIN..END
                        from one USDT probe to another on the same thread
  uprobe:PATH:SYMBOL    from a function's entry to its return; SYMBOL is the name that `nm` prints,
                        or the name in C++ source
  uprobe:PATH:BEGIN..END
                        from the entry of one function to the entry of another
Without --span, Tailscope uses sdk if the program contains the SDK, syscall:ready..send with
--sample, and request otherwise.

PATH with a / is a path as the recorded process sees it, in its container. PATH without a / is the
name of a program that a process runs, of a library that it has mapped, or of a program on the PATH.
NAME=SOURCE names the spans. A probe's argument can be the span's id (a number) or its name (a
string): BEGIN(id=arg0,name=arg1). The same works at END. Quote the parentheses for the shell.
  tailscope record -p $(pgrep -o postgres) --span query=usdt:postgres:postgresql:query__start..query__done
Spans of one source can nest on a thread. Spans that never end (longjmp, an error) are dropped.

If CMD ends before the recording, the exit code is that of CMD. It is 128 plus the signal's number
if a signal ended CMD, and 0 with --ignore-exit-code. With -d or Ctrl-C, the recording stops CMD and
exits with 0. A recording that fails exits with 2 or 3.")]
pub struct Record {
    #[command(flatten)]
    pub subject: Subject,

    /// How long to record: 20s, 500ms, 10m [default: until Ctrl-C or the program's end]
    #[arg(short, long, value_name = "TIME", value_parser = parse_duration)]
    pub duration: Option<Duration>,

    /// Folder for the ledger
    #[arg(short, long, value_name = "FOLDER", default_value = "ledger")]
    pub output: PathBuf,

    /// Replace the ledger in the folder, if it has one
    #[arg(long)]
    pub overwrite: bool,

    /// Write at most this many bytes a second, half of them for slow spans: 100KB/s, 2MB/s
    #[arg(long, value_name = "BYTES", value_parser = parse_byte_rate)]
    pub budget: Option<u64>,

    /// Slow the program down by at most this share: 1%, 0.5%; Tailscope then records for a part of
    /// the time, predicts the overhead, and measures it; not for SDK spans
    #[arg(long, value_name = "SHARE", value_parser = parse_overhead, conflicts_with_all = ["stacks", "counters", "command"])]
    pub overhead: Option<f64>,

    /// Count hardware events in SDK spans: instructions,cycles,cpu/event=0xc2,umask=0x1/
    #[arg(long, value_name = "EVENTS")]
    pub counters: Option<String>,

    /// Keep the trace and parent ids of HTTP requests with a W3C `traceparent` header (--span
    /// request)
    #[arg(long)]
    pub traceparent: bool,

    /// Sample the stacks of threads with an open span, so that `explain` can name functions; RATE:
    /// samples a second of each CPU, 99 by default
    #[arg(long, value_name = "RATE", num_args = 0..=1, require_equals = true,
        default_missing_value = "99", value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_STACK_RATE)))]
    pub stacks: Option<u32>,

    /// Exit with 0 even if the command fails
    #[arg(long)]
    pub ignore_exit_code: bool,

    /// Print no progress line and no summary
    #[arg(short, long)]
    pub quiet: bool,
}
