//! The arguments that `record` and `top` share.

use std::ffi::OsString;

use clap::Args as ClapArgs;
use tailscope_record::quantity::{parse_percentile, parse_probability};
use tailscope_record::{Naming, SpanSource};

/// Which processes, and which of their spans.
#[derive(Debug, ClapArgs)]
pub struct Subject {
    /// Process to record, with all its threads and children (repeatable)
    #[arg(short, long = "pid", value_name = "PID")]
    pub pids: Vec<u32>,

    /// What a span is; see below (repeatable)
    #[arg(long = "span", value_name = "SOURCE")]
    pub spans: Vec<SpanSource>,

    /// Name requests by this protocol: auto, http, redis, memcached, postgresql,
    /// mysql, none [default: auto]; only for the source request
    #[arg(long, value_name = "PROTOCOL")]
    pub name: Option<Naming>,

    /// Read no names from requests: the same as --name none
    #[arg(long, conflicts_with = "name")]
    pub no_names: bool,

    /// Name requests that come over TLS, too, through probes in the program's OpenSSL or
    /// BoringSSL, which cost each read some microseconds; only for the source request
    #[arg(long, conflicts_with = "no_names")]
    pub tls_names: bool,

    /// Meter only this share of the requests, chosen when they start: 1%, 0.01; without --span,
    /// requests are then those of syscall:ready..send
    #[arg(long, value_name = "SHARE", default_value = "100%", value_parser = parse_probability)]
    pub sample: f64,

    /// Keep this share of the metered spans, chosen when they end [default: 100%, with --tail 1%]
    #[arg(long, value_name = "SHARE", value_parser = parse_probability)]
    pub keep: Option<f64>,

    /// Keep all spans slower than this percentile of the latest spans of their kind: p99, p99.9
    #[arg(long, value_name = "PERCENTILE", value_parser = parse_percentile)]
    pub tail: Option<f64>,

    /// Record only the named processes, not their children
    #[arg(long)]
    pub no_children: bool,

    /// Command to start and record
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

impl Subject {
    /// By which protocol requests are named; `None`: that was not said.
    pub fn naming(&self) -> Option<Naming> {
        if self.no_names {
            return Some(Naming::None);
        }
        self.name
    }
}
