//! The arguments of `tailscope guard`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use serde::Deserialize;
use tailscope_record::quantity::{parse_duration, parse_percentile};

/// Steer requests around a replica that pauses: a proxy for HTTP/1.1 and HTTP/2.
///
/// Guard forwards each request to the replica with the fewest outstanding requests among those
/// without a hazard. If a hazard begins while a GET, HEAD or OPTIONS waits for its answer, Guard
/// sends that request once more, to a replica without a hazard. The first good answer wins.
/// Other requests are sent once. SIGTERM and SIGINT let open requests finish. SIGHUP reads the
/// configuration and the certificates again.
#[derive(Debug, Clone, ClapArgs)]
#[command(
    args_conflicts_with_subcommands = true,
    arg_required_else_help = true,
    after_help = "\
Examples:
  tailscope guard --listen 127.0.0.1:8080 --replica 127.0.0.1:8081 --replica 127.0.0.1:8082
  tailscope guard --config guard.toml --check           is this file right?
  tailscope guard --config guard.toml --take-over       replace the guard that runs
  tailscope guard status                                what it has done so far
  tailscope guard hazards -p PID -d 10s                 what keeps a process from answering
  tailscope guard hazards --serve 10.0.0.2:9747 --key hazards.key
                                                        report hazards to guards elsewhere

Guard finds the processes of replicas on this machine by their listening sockets. To see their
hazards it needs root, or CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE, and for processes of other users
CAP_DAC_READ_SEARCH. Hazards of other machines' replicas come from `tailscope guard hazards --serve`
there (--hazards-from). Without either, it sends slow requests once more at a percentile
(--hedge-at).
docs/how-to/steer-around-pauses.md says what else it does, and what it does not."
)]
pub struct Guard {
    /// What else to do
    #[command(subcommand)]
    pub with: Option<GuardCommand>,

    /// File with these settings, in TOML; it replaces the options
    #[arg(long, value_name = "FILE", conflicts_with_all = ["listen", "replicas"])]
    pub config: Option<PathBuf>,

    /// Check the settings and the certificate, and do nothing else
    #[arg(long)]
    pub check: bool,

    /// Address to accept clients on (repeatable)
    #[arg(long, value_name = "ADDR")]
    pub listen: Vec<SocketAddr>,

    /// Address of a server that answers (repeatable, at least two)
    #[arg(long = "replica", value_name = "ADDR")]
    pub replicas: Vec<SocketAddr>,

    /// What the replicas speak; http2 as gRPC servers do
    #[arg(long, value_name = "PROTOCOL", default_value = "http1")]
    pub replica_protocol: Protocol,

    /// Each connection begins with a header of the PROXY protocol (version 1 or 2), from a proxy in
    /// front; others are closed
    #[arg(long)]
    pub proxy_protocol: bool,

    /// Begin each connection to a replica with a header of the PROXY protocol, which has the client's
    /// address; each client then has connections of its own
    #[arg(long, value_name = "VERSION")]
    pub send_proxy: Option<SendProxy>,

    /// Clients use TLS: file with the certificate and its chain, in PEM format
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,

    /// File with the certificate's private key, in PEM format
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,

    /// Replicas use TLS: file with the certificates that are trusted to sign theirs, in PEM format
    #[arg(long, value_name = "FILE")]
    pub replica_ca: Option<PathBuf>,

    /// The name in the replicas' certificates [default: each replica's IP address]
    #[arg(long, value_name = "NAME", requires = "replica_ca")]
    pub replica_name: Option<String>,

    /// Extra requests, at most, as a share of all requests of the last 10 seconds: 1%, 0 for none
    #[arg(long, value_name = "PERCENT", default_value = "1%", value_parser = parse_share)]
    pub budget: f64,

    /// Send a request once more when it is slower than this percentile of the last 10 to 20 seconds;
    /// if its replica reports hazards: when that answers nothing for twice as long
    #[arg(long, value_name = "PERCENTILE", default_value = "p95", value_parser = parse_percentile)]
    pub hedge_at: f64,

    /// Requests that a replica gets at a time; the others wait in Guard [default: no limit]
    #[arg(
        long,
        value_name = "COUNT",
        default_value_t = 0,
        hide_default_value = true
    )]
    pub concurrency: usize,

    /// How long a request may take, over all attempts, until its answer begins
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    pub timeout: Duration,

    /// Path that each replica is asked for once a second; while the answer is not 2xx, or takes more
    /// than 1 s, the replica gets no requests
    #[arg(long, value_name = "PATH")]
    pub health: Option<String>,

    /// Keep requests from a JVM whose eden is nearly full, and ask it to collect; one replica at a time
    #[arg(long)]
    pub drain_gc: bool,

    /// Send a replica that has started again copies of recent GET, HEAD and OPTIONS, and requests only
    /// when its answers no longer become faster
    #[arg(long)]
    pub warm_up: bool,

    /// Where `tailscope guard hazards --serve` reports the hazards of replicas that this process can't
    /// see: on other machines, or without privileges (repeatable)
    #[arg(long, value_name = "ADDR", requires = "hazards_key")]
    pub hazards_from: Vec<SocketAddr>,

    /// File with the key that both sides share, as `head -c 32 /dev/urandom | base64` makes one
    #[arg(long, value_name = "FILE")]
    pub hazards_key: Option<PathBuf>,

    /// Steer and hedge nothing; count what would have been hedged
    #[arg(long)]
    pub dry_run: bool,

    /// Address for /metrics (Prometheus) and /status (JSON), or `none`
    #[arg(long, value_name = "ADDR", default_value = super::ADMIN)]
    pub admin: String,

    /// Control socket, for `status` and --take-over, or `none` [default: PORT.sock in
    /// /run/tailscope-guard, or in $XDG_RUNTIME_DIR/tailscope-guard]
    #[arg(long, value_name = "FILE")]
    pub control: Option<PathBuf>,

    /// Take the listening sockets over from the guard that serves the control socket, and let it
    /// finish its requests; without such a guard, just start
    #[arg(long)]
    pub take_over: bool,

    /// How long open requests may go on at the end
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    pub grace: Duration,

    /// Threads that serve clients
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: u16,

    /// Print only problems
    #[arg(short, long)]
    pub quiet: bool,
}

/// A protocol towards replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// HTTP/1.1
    Http1,
    /// HTTP/2, from the first byte on
    Http2,
}

/// A version of the PROXY protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SendProxy {
    /// A line of text
    V1,
    /// Binary
    V2,
}

/// What else to do.
#[derive(Debug, Clone, Subcommand)]
pub enum GuardCommand {
    /// Show what keeps processes from answering, live
    Hazards(Hazards),
    /// Show what a running guard has done, and the state of its replicas
    Status(Status),
}

/// Show what a running guard has done, and the state of its replicas.
#[derive(Debug, Clone, ClapArgs)]
pub struct Status {
    /// Control socket of the guard, or its --admin address [default: the one guard that runs]
    #[arg(value_name = "WHERE")]
    pub place: Option<String>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Show what keeps processes from answering, live.
///
/// Each line is the begin or the end of a hazard: collection and safepoint (JVMs with probes),
/// stopped, throttled (CPU quota), runqueue, and gone. The hazard runqueue means that a thread
/// waited 4 ms or longer for a CPU while no thread of its process got one; it is shown when it ends.
/// Without the capabilities for eBPF programs, only stopped, gone and a JVM's collections are shown,
/// some ms late.
/// The command ends when all processes have ended.
///
/// With --serve it shows nothing. It reports hazards to guards that subscribe with the same key:
/// of those servers on this machine that they name as replicas.
#[derive(Debug, Clone, ClapArgs)]
pub struct Hazards {
    /// Process to watch (repeatable)
    #[arg(short, long = "pid", value_name = "PID", required_unless_present = "serve", value_parser = clap::value_parser!(u32).range(1..))]
    pub pids: Vec<u32>,

    /// Report hazards of this machine's servers to guards, by datagrams to and from this address
    #[arg(long, value_name = "ADDR", conflicts_with_all = ["pids", "json"], requires = "key")]
    pub serve: Option<SocketAddr>,

    /// File with the key that guards have too, as `head -c 32 /dev/urandom | base64` makes one
    #[arg(long, value_name = "FILE", requires = "serve")]
    pub key: Option<PathBuf>,

    /// How long to watch [default: until Ctrl-C or the processes' end]
    #[arg(short, long, value_name = "TIME", value_parser = parse_duration)]
    pub duration: Option<Duration>,

    /// Print one JSON object a line
    #[arg(long)]
    pub json: bool,
}

/// Reads a share: `1%`, `0.5%`, `0`.
pub fn parse_share(text: &str) -> Result<f64, String> {
    let number = match text.strip_suffix('%') {
        Some(percent) => percent.parse::<f64>().map(|percent| percent / 100.0),
        None if text == "0" => Ok(0.0),
        None => return Err(format!("'{text}' is not a percentage; write 1% or 0")),
    };
    match number {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err(format!("'{text}' is not between 0% and 100%")),
    }
}
