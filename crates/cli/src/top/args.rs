//! The arguments of `tailscope top`.

use std::time::Duration;

use clap::Args as ClapArgs;
use tailscope_record::MOST_STACK_RATE;
use tailscope_record::quantity::parse_duration;

use super::view::Column;
use crate::subject::Subject;

/// Show live how long spans take, and what makes the slow ones slow.
///
/// Each row is a kind of span, which is all spans with one name. It has their rate, p50, p99,
/// p99.9, and a bar. The bar divides the time of the spans at or above p99 among the causes. The
/// figures cover the last 8 to 10 seconds. The key w switches to the time since the start. `top`
/// writes nothing to disk.
///
/// With `--stacks`, each row ends with the function in which the spans at or above p99 spent most of
/// their time, behind the letter of its cause. The page of a kind has more of them, with their callers.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  tailscope top -p $(pidof -s memcached)
  tailscope top -- ./server --port 80         start a server and show it; its output is dropped
  tailscope top -p 4711 --stacks              and the functions in which slow spans were
  tailscope top -p 4711 --batch -n 3 -i 5s    print three pictures as text, five seconds apart
  tailscope top -p 4711 --json -n 1 | jq '.kinds[] | {name, p99_ns}'

Keys:
  up down         select a kind           enter    show its causes, and its p99 over time
  < > s           sort by another column  r        reverse the order
  /               filter kinds by name    esc      show all kinds
  space f         freeze or resume        w        the last seconds, or since the start
  t               bars of the tail, or of all spans
  c               colours on or off       ?        explain the letters
  q ctrl-c        quit

A percentile with ~ has too few spans: it is the slowest span.
See `tailscope record --help` for the span sources. `top` uses colours unless NO_COLOR is set, and
Unicode if the locale has it.")]
pub struct Top {
    #[command(flatten)]
    pub subject: Subject,

    /// Time between pictures: 1s, 500ms
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    pub interval: Duration,

    /// How long to run [default: until q, Ctrl-C or the program's end]
    #[arg(short, long, value_name = "TIME", value_parser = parse_duration)]
    pub duration: Option<Duration>,

    /// End after this many pictures
    #[arg(short = 'n', long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,

    /// Sort by this column
    #[arg(short, long, value_enum, default_value_t = Column::P99)]
    pub sort: Column,

    /// Sample the stacks of threads with an open span, and show in which functions slow spans were;
    /// RATE: samples a second of each CPU, 997 by default
    #[arg(long, value_name = "RATE", num_args = 0..=1, require_equals = true,
        default_missing_value = "997", value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_STACK_RATE)))]
    pub stacks: Option<u32>,

    /// Show only kinds whose name contains this text, in upper or lower case
    #[arg(short, long, value_name = "TEXT", default_value = "")]
    pub filter: String,

    /// Print pictures as text, one below the other; the default without a terminal
    #[arg(short, long)]
    pub batch: bool,

    /// Print a line of JSON for each picture
    #[arg(long, conflicts_with = "batch")]
    pub json: bool,
}
