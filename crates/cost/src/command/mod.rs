//! What a command line would hook, read from its words before it runs.

mod bpftrace;
pub mod own;
mod perf;
mod runnable;
mod strace;
mod words;

pub use runnable::runnable;
pub use words::split;

use crate::statistics::Estimate;

/// How often a hook is hit.
#[derive(Debug, Clone, PartialEq)]
pub enum Rate {
    /// So often a second of CPU time: samples by the clock.
    PerCpuSecond(f64),
    /// Whenever a thread of the program leaves its CPU.
    Switches,
    /// Whenever a page of the program is touched that is not mapped yet.
    PageFaults,
    /// A tracepoint, by its name.
    Tracepoint(String),
    /// System calls; of all, or of these alone.
    Syscalls(Option<Vec<String>>),
    /// System calls but for these.
    OtherSyscalls(Vec<String>),
    /// A probe: `uprobe:PATH:SYMBOL` or `usdt:PATH:PROVIDER:NAME`.
    Probe(String),
    /// A function of the kernel.
    KernelFunction(String),
    /// Spans that the program marks by the SDK.
    SdkSpans,
}

/// One hook of a command.
#[derive(Debug, Clone, PartialEq)]
pub struct Hook {
    /// What it is, for a table.
    pub name: String,
    /// How often it is hit.
    pub rate: Rate,
    /// The kinds of cost that each hit has.
    pub kinds: Vec<&'static str>,
    /// The share of the hits that has it.
    pub share: Estimate,
}

/// What a command would do.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    /// Its hooks.
    pub hooks: Vec<Hook>,
    /// What can't be predicted of it, or makes the prediction doubtful.
    pub notices: Vec<String>,
}

impl Plan {
    pub(crate) fn hook(&mut self, name: impl Into<String>, rate: Rate, kinds: &[&'static str]) {
        self.hooks.push(Hook {
            name: name.into(),
            rate,
            kinds: kinds.to_vec(),
            share: Estimate::exact(1.0),
        });
    }

    /// Whether it samples by the clock.
    #[must_use]
    pub fn samples(&self) -> bool {
        let by_clock = |hook: &Hook| matches!(hook.rate, Rate::PerCpuSecond(_));
        self.hooks.iter().any(by_clock)
    }
}

/// Why a command can't be predicted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// Nothing.
    #[error("no command; write --with 'perf record -F 999 -g'")]
    Empty,
    /// A quote without its end.
    #[error("a quote in the command is not closed: {0}")]
    Quote(String),
    /// A tool that is not known.
    #[error(
        "can't predict '{0}': the hooks of tailscope, perf record, perf stat, perf trace, bpftrace \
         -e and strace can be read from their command lines"
    )]
    Unknown(String),
    /// An option or a script that can't be read.
    #[error("can't predict this {tool}: {why}")]
    Unreadable {
        /// The tool.
        tool: &'static str,
        /// What is wrong.
        why: String,
    },
}

/// What the machine has that decides which event a tool takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machine {
    /// Whether the processor counts cycles.
    pub has_cycles: bool,
}

/// Reads a command of another tool. The commands of Tailscope are read where its options are.
///
/// # Errors
/// If the tool is not known, or an option changes what is hooked in a way that is not known.
pub fn read(words: &[String], machine: Machine) -> Result<Plan, CommandError> {
    let (tool, rest) = words.split_first().ok_or(CommandError::Empty)?;
    let name = tool.rsplit('/').next().unwrap_or(tool);
    match (name, rest.first().map(String::as_str)) {
        ("perf", Some("record")) => perf::record(&rest[1..], machine),
        ("perf", Some("stat")) => perf::stat(&rest[1..], machine),
        ("perf", Some("trace")) => perf::trace(&rest[1..]),
        ("bpftrace", _) => bpftrace::read(rest),
        ("strace", _) => strace::read(rest),
        ("perf", Some(what)) => Err(CommandError::Unknown(format!("perf {what}"))),
        _ => Err(CommandError::Unknown(name.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(super) fn plan(line: &str) -> Result<Plan, CommandError> {
        read(&split(line)?, Machine { has_cycles: false })
    }

    #[test]
    fn tools_that_are_not_known_are_refused() {
        for line in ["gdb -p 1", "perf top", ""] {
            assert!(plan(line).is_err(), "{line}");
        }
    }

    proptest! {
        #[test]
        fn no_command_line_panics(
            tool in "(perf record|perf stat|perf trace|bpftrace|strace|x)",
            rest in "[ -~]{0,60}",
        ) {
            let _ = plan(&format!("{tool} {rest}"));
        }

        #[test]
        fn no_script_panics(script in "[a-z:/{}@()=,;*\" ]{0,80}") {
            let words = ["bpftrace", "-e", &script].map(String::from);
            let _ = read(&words, Machine { has_cycles: true });
        }
    }
}
