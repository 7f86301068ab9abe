//! The `tailscope` command: arguments in, text out, nothing else.

#![forbid(unsafe_code)]
// They panic where a reader is gone, and a terminal obeys names in them.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod agent;
mod args;
mod borrow;
mod chase;
mod console;
mod cost;
mod doctor;
mod external;
mod failure;
mod generate;
mod guard;
mod locality;
mod observe;
mod overhead;
mod page;
mod record;
mod screen;
mod streams;
mod subject;
mod symbols;
mod timeline;
mod top;
mod units;

use std::borrow::Cow;
use std::process::{self, ExitCode};

use clap::Parser;

use args::{Args, Command};
use failure::Failure;
use streams::say;

fn main() -> ExitCode {
    let args = Args::try_parse().unwrap_or_else(|e| refuse(&e));
    // Without it, a process whose file is mapped here could end this one by cutting the file short.
    if let Err(e) = tailscope_signals::cut_short::survive() {
        say!("tailscope: can't handle SIGBUS: {e}");
    }
    let outcome = match args.command {
        Command::Record(record) => record::run(record),
        Command::Agent(agent) => agent::run(&agent),
        Command::Top(top) => top::run(top),
        Command::Timeline(timeline) => timeline::run(timeline),
        Command::Guard(guard) => guard::run(&guard),
        Command::Observe(observe) => observe::run(&observe),
        Command::Borrow(borrow) => borrow::run(&borrow),
        Command::Chase(chase) => chase::run(&chase),
        Command::Locality(locality) => locality::run(&locality),
        Command::Cost(cost) => cost::run(cost),
        Command::Symbols(symbols) => symbols::run(&symbols),
        Command::Doctor(doctor) => doctor::run(&doctor),
        Command::External(words) if generate::is_called(&words) => generate::run(&words),
        Command::External(words) => match borrow::process_of(&words) {
            Some(ended) => ended,
            None => external::run(&words),
        },
    };
    match outcome {
        Ok(code) => code,
        Err(e) => {
            say!("tailscope: {e:#}");
            ExitCode::from(Failure::code(&e))
        }
    }
}

/// Ends with help, or with what is wrong with the arguments. These may be names of files that a
/// shell put there.
fn refuse(error: &clap::Error) -> ! {
    let words = error.render().to_string();
    if matches!(console::escaped(&words), Cow::Borrowed(_)) {
        error.exit();
    }
    say!("{}", words.trim_end());
    process::exit(error.exit_code());
}
