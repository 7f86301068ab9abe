//! `tailscope agent`.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Error, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tailscope_agent::{Agent, AgentError, Config, Orders, Predicted};
use tailscope_record::{Options, Process};

use crate::args;
use crate::cost;
use crate::failure::Failure;
use crate::overhead;
use crate::screen::Screen;
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
    if Config::read(&args.config).is_ok_and(|config| config.overhead().is_some()) {
        // Before the agent gives up the rights that this needs.
        cost::known_or_calibrated(&Screen::new(false))?;
    }
    let say = |text: &str| say!("tailscope: {text}");
    let agent = Agent::start(&args.config, say, Box::new(predict)).map_err(agent_failure)?;
    agent.run(&orders).map_err(agent_failure)?;
    Ok(ExitCode::SUCCESS)
}

/// What recording these processes costs, by what is known of this machine.
fn predict(options: &Options, processes: &[Process]) -> Predicted {
    let predicted = cost::known_here().and_then(|costs| {
        let plan = cost::plan_of_recording(options)?;
        cost::while_attached(&plan, processes, &costs)
    });
    match predicted {
        Ok(prediction) => Predicted {
            slowdown: prediction.slowdown,
            said: overhead::predicted(&prediction),
        },
        Err(e) => Predicted {
            slowdown: None,
            said: format!("it is not predicted ({e})"),
        },
    }
}

fn agent_failure(error: AgentError) -> Error {
    match error {
        AgentError::Record(e) => subject::failure(e),
        e @ (AgentError::Config(_) | AgentError::Unresolved(_)) => Failure::usage(e),
        e => Failure::machine(e),
    }
}
