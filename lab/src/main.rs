//! The lab: load to measure under, and faults with a known cause to find.
//!
//! `load` offers requests to a server and counts how long each took. The other commands plant one
//! cause of latency each, run until `--duration` or Ctrl-C, and leave the machine as they found it.

mod cgroup;
mod clock;
mod cpu;
mod fsync;
mod hog;
mod load;
mod memory;
mod packets;
mod quota;
mod random;
mod stop;
mod timers;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Load and planted faults for Tailscope's own tests and measurements.
#[derive(Parser)]
#[command(version, about, max_term_width = 100)]
struct Lab {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Load(load::Load),
    Hog(hog::Hog),
    Timers(timers::Timers),
    Packets(packets::Packets),
    Fsync(fsync::Fsync),
    Quota(quota::Quota),
    Shootdowns(memory::Shootdowns),
    Evict(memory::Evict),
}

/// Arguments that parse one by one but make no sense together. Exit code 2, as clap's own.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Usage(String);

fn main() -> ExitCode {
    let result = match Lab::parse().command {
        Command::Load(load) => load.run(),
        Command::Hog(hog) => hog.run(),
        Command::Timers(timers) => timers.run(),
        Command::Packets(packets) => packets.run(),
        Command::Fsync(fsync) => fsync.run(),
        Command::Quota(quota) => quota.run(),
        Command::Shootdowns(shootdowns) => shootdowns.run(),
        Command::Evict(evict) => evict.run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tailscope-lab: {error:#}");
            ExitCode::from(if error.is::<Usage>() { 2 } else { 3 })
        }
    }
}
