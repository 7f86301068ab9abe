//! `tailscope timeline events`: a window's events as lines of JSON.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::Args as ClapArgs;
use tailscope_timeline::lines::{Wanted, lines, names, schema};
use tailscope_timeline::{Trace, analyze};

use crate::console::escaped_in_json;
use crate::failure::Failure;
use crate::streams::{print_json, print_with};

/// Print a window's events, one JSON object a line.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  tailscope timeline events windows/slow-0001.timeline | jq 'select(.event == \"switch\")'
  tailscope timeline events windows/slow-0001.timeline --request 1      during the slowest request
  tailscope timeline events windows/slow-0001.timeline -p 4711 --event tick,switch
  tailscope timeline events --schema                                    the fields of each event")]
pub struct Events {
    /// A window that `tailscope timeline` wrote
    #[arg(required_unless_present = "schema")]
    pub trace: Option<PathBuf>,

    /// From this moment on, in ns of CLOCK_MONOTONIC, as `begin_ns` in `timeline story --json`
    #[arg(long, value_name = "NS")]
    pub from: Option<u64>,

    /// Before this moment
    #[arg(long, value_name = "NS")]
    pub to: Option<u64>,

    /// From the start of this request to its end: its number in `timeline story`; 1 is the slowest
    #[arg(long, value_name = "NUMBER", conflicts_with_all = ["from", "to"], value_parser = clap::value_parser!(u32).range(1..))]
    pub request: Option<u32>,

    /// Only events of threads of this process, and those that are about one
    #[arg(short, long = "pid", value_name = "PID")]
    pub process: Option<u32>,

    /// Only events of these names
    #[arg(long = "event", value_name = "NAME", value_delimiter = ',', value_parser = parse_name)]
    pub names: Vec<String>,

    /// Print the JSON Schema of a line
    #[arg(long, exclusive = true)]
    pub schema: bool,
}

fn parse_name(text: &str) -> Result<String, String> {
    match names().any(|name| name == text) {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "there is no event '{text}'; the events are {}",
            names().collect::<Vec<_>>().join(", ")
        )),
    }
}

/// Prints them.
pub fn run(args: &Events) -> Result<ExitCode> {
    let Some(path) = args.trace.as_deref().filter(|_| !args.schema) else {
        print_json(&schema())?;
        return Ok(ExitCode::SUCCESS);
    };
    let trace = super::open(path)?;
    let wanted = wanted(args, path, &trace)?;
    print_with(|out| {
        for line in lines(&trace, &wanted) {
            let text = serde_json::to_string(&line).map_err(io::Error::other)?;
            writeln!(out, "{}", escaped_in_json(&text))?;
        }
        Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}

fn wanted(args: &Events, path: &Path, trace: &Trace) -> Result<Wanted> {
    let mut wanted = Wanted {
        from_ns: args.from,
        to_ns: args.to,
        process: args.process,
        names: args.names.clone(),
    };
    if let Some(number) = args.request {
        let told = analyze(trace, None, number as usize);
        let Some(story) = told.stories.get(number as usize - 1) else {
            return Err(super::no_story(path, told.slow, number));
        };
        wanted.from_ns = Some(story.begin_ns);
        // With the event that ends it.
        wanted.to_ns = Some(story.begin_ns + story.latency_ns + 1);
    }
    match (wanted.from_ns, wanted.to_ns) {
        (Some(from), Some(to)) if from >= to => Err(Failure::usage(format!(
            "no time lies between --from {from} and --to {to}"
        ))),
        _ => Ok(wanted),
    }
}
