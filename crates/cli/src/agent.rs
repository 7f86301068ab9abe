//! `tailscope agent`.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Error, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tailscope_agent::{Agent, AgentError, Config, Orders, Predicted};
use tailscope_cost::Calibration;
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
    // Before the agent gives up the rights that this needs.
    let costs = match Config::read(&args.config) {
        Ok(config) if config.overhead().is_some() => {
            Ok(cost::known_or_calibrated(&Screen::new(false))?)
        }
        // A reload may ask for it.
        _ => cost::known_here(),
    };
    let predict = move |options: &Options, processes: &[Process]| match &costs {
        Ok(costs) => predicted(options, processes, costs),
        Err(e) => unknown(e),
    };
    let say = |text: &str| say!("tailscope: {text}");
    let agent = Agent::start(&args.config, say, Box::new(predict)).map_err(agent_failure)?;
    agent.run(&orders).map_err(agent_failure)?;
    Ok(ExitCode::SUCCESS)
}

/// What recording these processes costs, by what is known of this machine.
fn predicted(options: &Options, processes: &[Process], costs: &Calibration) -> Predicted {
    let plan = cost::plan_of_recording(options);
    let found = plan.and_then(|plan| cost::while_attached(&plan, processes, costs));
    found.map_or_else(
        |e| unknown(&e),
        |prediction| Predicted {
            slowdown: prediction.slowdown,
            said: overhead::predicted(&prediction),
        },
    )
}

fn unknown(why: &Error) -> Predicted {
    Predicted {
        slowdown: None,
        said: format!("it is not predicted ({why})"),
    }
}

fn agent_failure(error: AgentError) -> Error {
    match error {
        AgentError::Record(e) => subject::failure(e),
        e @ (AgentError::Config(_) | AgentError::Unresolved(_)) => Failure::usage(e),
        e => Failure::machine(e),
    }
}
