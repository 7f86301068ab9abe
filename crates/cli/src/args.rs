//! The command line: which commands there are, and the arguments of those that need no folder.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args as ClapArgs, Parser, Subcommand};

use crate::borrow::Borrow;
use crate::chase::Chase;
use crate::cost::Cost;
use crate::guard::Guard;
use crate::locality::Locality;
use crate::observe::Observe;
use crate::record::Record;
use crate::symbols::Symbols;
use crate::timeline::Timeline;
use crate::top::Top;

/// Find out why slow requests are slow, what each cause costs, and what to do about it
#[derive(Debug, Parser)]
#[command(
    name = "tailscope",
    version,
    subcommand_required = true,
    arg_required_else_help = true
)]
#[command(after_help = "\
Start with:
  tailscope doctor                            show what this machine can measure
  tailscope top -p $(pidof -s memcached)      watch the causes live, in the terminal
  tailscope record -p $(pidof -s memcached) -d 20s -o run
                                              record 20 seconds into the folder `run`
  tailscope explain run                       rank the causes of its p99, in microseconds
  tailscope diff run other                    show what changed, and which causes explain it
  tailscope timeline -p PID --slow 2ms        save all events around a slow request
  tailscope borrow --for PID -- make          run a command in the idle time of a server

`explain`, `diff` and `report` are separate programs, tailscope-explain and so on.
See `tailscope explain --help`, `tailscope diff --help` and `tailscope report --help`.

Exit codes: 0 success, 1 the answer is \"no\", 2 wrong usage, 3 not possible on this machine.
`record -- CMD` exits with the command's own code if the command ends first.")]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

/// What to do. Help comes from each command's own arguments: a comment here would replace it.
#[derive(Debug, Subcommand)]
pub enum Command {
    Record(Record),
    Agent(Agent),
    Top(Top),
    Timeline(Timeline),
    Observe(Observe),
    Guard(Guard),
    Borrow(Borrow),
    Chase(Chase),
    Locality(Locality),
    Cost(Cost),
    Symbols(Symbols),
    Doctor(Doctor),
    /// explain, diff, report, ...: programs named tailscope-NAME beside this one or on the PATH
    #[command(external_subcommand)]
    External(Vec<OsString>),
}

/// Record for weeks, as a service: rotation, quota, Prometheus, OpenTelemetry.
///
/// A configuration file selects the processes, the folder for ledgers, and the limits
/// (docs/how-to/run-the-agent.md). SIGHUP reloads the file. SIGTERM and SIGINT end the agent and keep its ledgers.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  tailscope agent --check /etc/tailscope/agent.toml    check the file, and do nothing else
  tailscope agent                                      run; for systemd see docs/how-to/run-the-agent.md
  curl http://127.0.0.1:9745/metrics                   read its metrics
  tailscope explain /var/lib/tailscope/2026-11-21T120000Z-000007")]
pub struct Agent {
    /// Configuration file
    #[arg(value_name = "CONFIG", default_value = "/etc/tailscope/agent.toml")]
    pub config: PathBuf,

    /// Check whether the configuration is valid, and do nothing else
    #[arg(long)]
    pub check: bool,
}

/// Show what this machine can measure, what it can't, and why.
#[derive(Debug, ClapArgs)]
pub struct Doctor {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
