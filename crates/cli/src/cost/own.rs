//! Tailscope's own command lines, read by its own parser.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Parser;
use tailscope_cost::command::Plan;
use tailscope_cost::command::own::{self as predicted, Recording, record};
use tailscope_kernel::Kernel;
use tailscope_kernel::timeline::Events;
use tailscope_record::{Options, Policy, Process};

use crate::args::{Args, Command};
use crate::failure::Failure;
use crate::locality::Sampling;
use crate::record::Record;
use crate::subject::{Kept, load_failure, options, resolve_probes, sources};
use crate::timeline::{self, Timeline};

/// The commands that observe a process, which may be written without `tailscope` before them.
const OBSERVERS: &[&str] = &["record", "timeline", "observe", "locality", "top", "agent"];

/// Those of them that can be predicted.
const PREDICTED: &[&str] = &["record", "timeline", "locality"];

/// What each of them says on stderr once it is attached.
pub const BEGUN: &str = "(Ctrl-C ends";

/// The command line with `tailscope` before it, if it is one of ours.
pub fn own(words: &[String]) -> Option<Vec<String>> {
    let first = words.first()?;
    if OBSERVERS.contains(&first.as_str()) {
        let name = "tailscope".to_owned();
        return Some([name].into_iter().chain(words.iter().cloned()).collect());
    }
    (first.rsplit('/').next() == Some("tailscope")).then(|| words.to_vec())
}

/// What the command line (from [`own`]) would hook in these processes.
pub fn plan(words: &[String], processes: &[Process]) -> Result<Plan> {
    let needs_one = words
        .get(1)
        .is_some_and(|of| PREDICTED.contains(&of.as_str()));
    let named = processes.last().filter(|_| needs_one);
    let words = named.map_or(words.to_vec(), |named| with_process(words, named.pid));
    let args = Args::try_parse_from(&words).map_err(|e| {
        let text = e.render().to_string();
        let first = text.lines().next().unwrap_or_default();
        Failure::usage(format!(
            "can't predict this: {}",
            first.trim_start_matches("error: ")
        ))
    })?;
    match args.command {
        Command::Record(args) => plan_of_record(&args, processes),
        Command::Observe(_) => Err(Failure::usage(
            "tailscope observe hooks nothing, so there is nothing to count: its report has the effect \
             that it measured",
        )),
        Command::Timeline(args) if args.with.is_none() => plan_of_timeline(&args, processes),
        Command::Locality(args) if args.what.is_none() => Ok(plan_of_locality(&args.sampling)),
        _ => Err(Failure::usage(format!(
            "what 'tailscope {}' costs is not predicted",
            words.get(1).map_or("", String::as_str)
        ))),
    }
}

pub fn plan_of_record(args: &Record, processes: &[Process]) -> Result<Plan> {
    let subject = &args.subject;
    if !subject.command.is_empty() {
        return Err(Failure::usage(
            "can't predict a command that is not running yet: leave it out, and name the process \
             with -p",
        ));
    }
    let spans = sources(subject, processes, None)?;
    let kept = Kept {
        budget: args.budget,
        traces: args.traceparent,
        stacks: args.stacks,
        ..Kept::default()
    };
    let mut plan = plan_of_recording(&options(subject, kept, spans, Vec::new(), false))?;
    if args.counters.is_some() {
        plan.notices
            .push("hardware counters of SDK spans (--counters) are not in the prediction".into());
    }
    if subject.tls_names {
        let left_out = "probes in a library for TLS (--tls-names) are not in the prediction";
        plan.notices.push(left_out.into());
    }
    Ok(plan)
}

/// What a recording with these options would hook.
pub fn plan_of_recording(options: &Options) -> Result<Plan> {
    let config = options.kernel_config();
    let Policy { others, budget, .. } = options.keep;
    Ok(record(&Recording {
        hooks: Kernel::hooks(&config).map_err(load_failure)?,
        spans: options.spans.clone(),
        sample: options.sample,
        keeps_less: others < 1.0 || budget.is_some(),
        stacks: options.stacks.is_some(),
    }))
}

pub fn plan_of_timeline(args: &Timeline, processes: &[Process]) -> Result<Plan> {
    let resolved = resolve_probes(&args.spans, processes, None)?;
    let options = timeline::options(args, &resolved, false);
    let hooks = Events::hooks(options.kernel_config()).map_err(load_failure)?;
    let mut plan = predicted::timeline(&hooks);
    if !args.spans.is_empty() {
        let left_out = "probes and SDK spans (--span) are not in the prediction";
        plan.notices.push(left_out.into());
    }
    Ok(plan)
}

pub fn plan_of_locality(args: &Sampling) -> Plan {
    predicted::locality(args.rate, !args.no_watch, args.phase.is_some())
}

/// Whether the words have one of these options.
fn has(words: &[String], names: &[&str]) -> bool {
    words.iter().any(|word| {
        let long = |name: &&str| name.starts_with("--") && word.starts_with(&format!("{name}="));
        names.contains(&word.as_str()) || names.iter().any(long)
    })
}

/// The words with a process, after the command's name, unless they name one.
fn with_process(words: &[String], pid: u32) -> Vec<String> {
    let mut line = words.to_vec();
    if !has(words, &["-p", "--pid"]) {
        let at = line.len().min(2);
        line.splice(at..at, ["-p".to_owned(), pid.to_string()]);
    }
    line
}

/// The command line as it is run on a process, and a folder for what it writes, which goes with this.
pub struct Ready {
    pub words: Vec<String>,
    folder: Option<PathBuf>,
}

impl Ready {
    /// Adds the process, and where the command names none, an output that nobody reads: below
    /// `state`, a folder that only this user may write to.
    pub fn new(words: &[String], pid: u32, state: &Path) -> Result<Self> {
        let mut line = words.to_vec();
        if let Some(program) = line.first_mut() {
            *program = env::current_exe()?.display().to_string();
        }
        let mut added = Vec::new();
        let mut folder = None;
        let writes = matches!(
            words.get(1).map(String::as_str),
            Some("record" | "timeline")
        );
        if writes && !has(words, &["-o", "--output"]) {
            let own = state.join(format!("verify-{}", std::process::id()));
            added.extend(["-o".to_owned(), own.display().to_string()]);
            if words[1] == "record" {
                added.push("--overwrite".to_owned());
            }
            folder = Some(own);
        }
        let at = line.len().min(2);
        line.splice(at..at, added);
        Ok(Self {
            words: with_process(&line, pid),
            folder,
        })
    }
}

impl Drop for Ready {
    fn drop(&mut self) {
        if let Some(folder) = &self.folder {
            // What is left of it is in nobody's way.
            let _ = fs::remove_dir_all(folder);
        }
    }
}

#[cfg(test)]
mod tests {
    use tailscope_cost::command::split;

    use super::*;

    fn words(line: &str) -> Vec<String> {
        split(line).expect("no quotes")
    }

    #[test]
    fn our_commands_are_known_with_and_without_our_name() {
        for line in [
            "record --span sdk",
            "tailscope record",
            "/usr/bin/tailscope top",
        ] {
            let own = own(&words(line)).expect(line);
            assert!(own[0].ends_with("tailscope"), "{own:?}");
        }
        assert_eq!(own(&words("perf record -F 99")), None);
        assert_eq!(own(&[]), None);
    }

    #[test]
    fn what_our_parser_refuses_is_refused() {
        for (line, word) in [
            ("tailscope record --no-such-option", "--no-such-option"),
            ("tailscope record --span jvm:x", "jvm:x"),
            ("tailscope record -- ls", "not running yet"),
            ("tailscope doctor", "not predicted"),
            ("tailscope observe --self-test", "hooks nothing"),
        ] {
            let error = plan(&words(line), &[]).expect_err(line).to_string();
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn a_process_and_a_folder_are_added_where_none_is_named() {
        let state = Path::new("/no/such");
        let ready = Ready::new(&words("tailscope record --span sdk"), 7, state).expect("ours");
        let line = ready.words[1..].join(" ");
        let folder = format!("/no/such/verify-{}", std::process::id());
        assert_eq!(
            line,
            format!("record -p 7 -o {folder} --overwrite --span sdk")
        );
        let ready = Ready::new(&words("tailscope record -p 5 --output=x"), 7, state).expect("ours");
        assert_eq!(ready.words[1..].join(" "), "record -p 5 --output=x");
    }
}
