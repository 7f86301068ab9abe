//! The arguments of `tailscope top`.

use std::time::Duration;

use clap::Args as ClapArgs;
use tailscope_record::quantity::parse_duration;

use super::view::Column;
use crate::args::Subject;

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
