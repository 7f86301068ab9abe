//! `tailscope agent`.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Error, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tailscope_agent::{Agent, AgentError, Config, Orders};

use crate::args;
use crate::failure::Failure;
use crate::streams::{print, say};
use crate::subject;

/// Runs until it is told to stop, or checks the configuration.
pub fn run(args: &args::Agent) -> Result<ExitCode> {
    if args.check {
        Config::read(&args.config).map_err(Failure::usage)?;
        print(&format!("{}: valid\n", args.config.display()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let orders = Orders::default();
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&orders.stop))?;
    }
    signal_hook::flag::register(SIGHUP, Arc::clone(&orders.reload))?;
    let say = |text: &str| say!("tailscope: {text}");
    let agent = Agent::start(&args.config, say).map_err(agent_failure)?;
    agent.run(&orders).map_err(agent_failure)?;
    Ok(ExitCode::SUCCESS)
}

fn agent_failure(error: AgentError) -> Error {
    match error {
        AgentError::Record(e) => subject::failure(e),
        e @ (AgentError::Config(_) | AgentError::Unresolved(_)) => Failure::usage(e),
        e => Failure::machine(e),
    }
}
