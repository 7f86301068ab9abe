//! The `tailscope` command: arguments in, text out, nothing else.

// They panic where a reader is gone.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod agent;
mod args;
mod console;
mod doctor;
mod external;
mod failure;
mod observe;
mod record;
mod screen;
mod streams;
mod subject;
mod timeline;
mod top;
mod units;

use std::process::ExitCode;

use clap::Parser;

use args::{Args, Command};
use console::Console;
use failure::Failure;
use streams::say;

fn main() -> ExitCode {
    let args = Args::parse();
    // Without it, a process whose file is mapped here could end this one by cutting the file short.
    if let Err(e) = tailscope_signals::cut_short::survive() {
        say!("tailscope: can't handle SIGBUS: {e}");
    }
    let outcome = match args.command {
        Command::Record(record) => record::run(record),
        Command::Agent(agent) => agent::run(&agent),
        Command::Top(top) => top::run(top),
        Command::Timeline(timeline) => timeline::run(timeline),
        Command::Observe(observe) => observe::run(&observe),
        Command::Doctor(doctor) => doctor::run(&doctor),
        Command::External(words) => external::run(&words),
    };
    match outcome {
        Ok(code) => code,
        Err(e) => {
            say!("{}", Console::stderr().spell(&format!("tailscope: {e:#}")));
            ExitCode::from(Failure::code(&e))
        }
    }
}
