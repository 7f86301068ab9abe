//! A command that is another program, as `packaging/describe.py` describes it.

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, Command};
use serde::Deserialize;

/// A command.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Described {
    name: String,
    about: String,
    /// The text after its options: examples, notes.
    after: String,
    arguments: Vec<Argument>,
}

/// An option or a positional argument.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Argument {
    id: String,
    /// `-p` and `--target`; empty for a positional argument.
    flags: Vec<String>,
    /// The name of its value; none if it takes no value.
    value: Option<String>,
    /// The values that it takes; empty if others are possible.
    choices: Vec<String>,
    help: String,
    required: bool,
    /// Whether it takes more than one value.
    many: bool,
    /// The heading below which it is listed, if not with the others.
    heading: Option<String>,
}

impl From<Described> for Command {
    fn from(described: Described) -> Self {
        Self::new(described.name)
            .about(described.about)
            .after_help(described.after)
            .args(described.arguments.into_iter().map(Arg::from))
    }
}

impl From<Argument> for Arg {
    fn from(argument: Argument) -> Self {
        let mut made = Self::new(argument.id)
            .help(argument.help)
            .required(argument.required);
        for flag in argument.flags {
            made = match flag.strip_prefix("--") {
                Some(long) => made.long(long.to_owned()),
                None => made.short(flag.chars().nth(1)),
            };
        }
        made = match argument.value {
            Some(value) if argument.many => made.value_name(value).num_args(1..),
            Some(value) => made.value_name(value),
            None => made.action(ArgAction::SetTrue),
        };
        if !argument.choices.is_empty() {
            made = made.value_parser(PossibleValuesParser::new(argument.choices));
        }
        if let Some(heading) = argument.heading {
            made = made.help_heading(heading);
        }
        made
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_described_command_parses_as_its_own_program_does() {
        let described: Described = serde_json::from_str(
            r#"{"name": "explain", "about": "Why", "after": "", "arguments": [
                {"id": "ledger", "flags": [], "value": "LEDGER", "choices": [], "help": "",
                 "required": true, "many": true, "heading": null},
                {"id": "target", "flags": ["-p", "--target"], "value": "P", "choices": ["p50", "p99"],
                 "help": "", "required": false, "many": false, "heading": "which"},
                {"id": "json", "flags": ["--json"], "value": null, "choices": [], "help": "",
                 "required": false, "many": false, "heading": null}]}"#,
        )
        .expect("a description");
        let command = Command::from(described);
        let parses = |words: &str| {
            let words = words.split_whitespace();
            command.clone().try_get_matches_from(words).is_ok()
        };
        assert!(parses("explain one two -p p50 --json"));
        assert!(!parses("explain --json"));
        assert!(!parses("explain one --target p10"));
    }
}
