//! `load`: offers requests to a server and counts how long each took.
//!
//! In the open loop requests are due at times drawn in advance (a Poisson process), and latency
//! counts from the due time: a request that finds its connection busy waits, and the wait counts.
//! So a server that pauses is charged for every request that would have come in the pause.

mod alarm;
mod arrivals;
mod connection;
mod generator;
mod http;
mod interval;
mod keyvalue;
mod memcached;
mod plan;
mod protocol;
mod receive;
mod redis;
mod report;
mod tally;

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use anyhow::Context;
use clap::Args;

use crate::clock::{Nanos, parse_duration};
use crate::stop::Stop;
use crate::{Usage, cpu};
use generator::Generator;
use http::{Http, Url};
use keyvalue::{Dialect, KeyValue};
use memcached::Memcached;
use plan::{Pace, Plan};
use protocol::Protocol;
use redis::Redis;
use report::{Report, json};

/// Offer load to a server and measure the latency of each request.
#[derive(Args)]
#[command(after_help = "Examples:
  tailscope-lab load --memcached 127.0.0.1:11211 --rate 10000 --duration 10s
  tailscope-lab load --http http://127.0.0.1:8080/ --rate 500 --connections 16 --json
  tailscope-lab load --memcached 127.0.0.1:11211 --closed-loop --report-every 500ms

Exit code: 0 done (also after Ctrl-C), 2 wrong usage, 3 the server refused, died or garbled.")]
pub struct Load {
    #[command(flatten)]
    target: Target,

    /// Requests per second, all connections together (open loop)
    #[arg(long, default_value_t = 1000.0)]
    rate: f64,

    /// Each connection sends the next request when an answer came, as fast as the server goes
    #[arg(long, conflicts_with = "rate")]
    closed_loop: bool,

    /// Connections to the server
    #[arg(short, long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..))]
    connections: u16,

    /// Requests under way on one connection; more than 1 pipelines
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    depth: u16,

    /// Open a connection for each request, --connections at once at most, and close it after
    #[arg(long, conflicts_with = "depth")]
    fresh: bool,

    /// How long to measure
    #[arg(short, long, default_value = "10s", value_parser = parse_duration)]
    duration: Duration,

    /// Load before measuring begins
    #[arg(long, default_value = "1s", value_parser = parse_duration)]
    warmup: Duration,

    /// Run on this CPU only
    #[arg(long)]
    cpu: Option<usize>,

    /// Poll without ever sleeping: the most precise timing, for a CPU of its own
    #[arg(long)]
    spin: bool,

    /// Print a line of JSON at this interval; implies --json
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    report_every: Option<Duration>,

    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,

    /// For the same arrival times and keys again
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Number of keys, all of them set before the load begins (memcached, redis)
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    keys: u64,

    /// Keys that one request for values asks for (memcached, redis)
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    batch: u16,

    /// Bytes in a value (memcached, redis)
    #[arg(long, default_value_t = 100)]
    value_size: usize,

    /// Share of requests that are sets (memcached, redis)
    #[arg(long, default_value_t = 0.0)]
    set_ratio: f64,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
struct Target {
    /// A memcached server, text protocol
    #[arg(long, value_name = "HOST:PORT")]
    memcached: Option<String>,

    /// A Redis server
    #[arg(long, value_name = "HOST:PORT")]
    redis: Option<String>,

    /// A page of an HTTP/1.1 server, fetched over and over
    #[arg(long, value_name = "URL")]
    http: Option<Url>,
}

impl Load {
    pub fn run(self) -> anyhow::Result<()> {
        self.check()?;
        let (name, address, protocol) = self.target()?;
        let plan = Plan {
            address,
            pace: if self.closed_loop {
                Pace::Closed
            } else {
                Pace::Open { rate: self.rate }
            },
            connections: self.connections.into(),
            depth: self.depth.into(),
            fresh: self.fresh,
            warmup: self.warmup.into(),
            duration: self.duration.into(),
            report_every: self.report_every.map(Nanos::from),
            spin: self.spin,
            seed: self.seed,
        };
        cpu::pin_if_asked(self.cpu)?;
        let stop = Stop::after(None)?;
        let mut outcome = Generator::prepare(&plan, protocol.as_ref())?.run(&stop);
        let report = Report::of(name, &plan, &outcome);
        if self.json || self.report_every.is_some() {
            println!("{}", json(&report));
        } else {
            print!("{report}");
        }
        outcome.failure.take().map_or(Ok(()), Err)
    }

    fn check(&self) -> Result<(), Usage> {
        let wrong = |text: &str| Err(Usage(text.to_owned()));
        if !(self.rate > 0.0 && self.rate <= 1e8) {
            return wrong("--rate must be above 0 and at most 100,000,000 a second");
        }
        if !(0.0..=1.0).contains(&self.set_ratio) {
            return wrong("--set-ratio must be between 0 and 1");
        }
        if self.duration.is_zero() || self.report_every.is_some_and(|every| every.is_zero()) {
            return wrong("--duration and --report-every must be longer than nothing");
        }
        Ok(())
    }

    fn target(&self) -> anyhow::Result<(String, SocketAddr, Box<dyn Protocol>)> {
        if let Some(url) = &self.target.http {
            let name = format!("http {}", url.address);
            return Ok((
                name,
                resolve(&url.address)?,
                Box::new(Http::new(url, self.fresh)),
            ));
        }
        if let Some(host) = &self.target.redis {
            return Ok((format!("redis {host}"), resolve(host)?, self.keyed(Redis)));
        }
        let host = self
            .target
            .memcached
            .as_deref()
            .expect("clap asks for one of the three");
        let name = format!("memcached {host}");
        Ok((name, resolve(host)?, self.keyed(Memcached)))
    }

    fn keyed(&self, dialect: impl Dialect + 'static) -> Box<dyn Protocol> {
        Box::new(KeyValue {
            dialect,
            keys: self.keys,
            batch: self.batch,
            set_ratio: self.set_ratio,
            value: vec![b'x'; self.value_size],
        })
    }
}

fn resolve(host: &str) -> anyhow::Result<SocketAddr> {
    host.to_socket_addrs()
        .with_context(|| format!("can't resolve '{host}': expected HOST:PORT"))?
        .next()
        .with_context(|| format!("'{host}' has no address"))
}
