//! `tailscope symbols`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, anyhow};
use clap::Args as ClapArgs;
use serde::Serialize;
use tailscope_record::{CodeFile, Symbolized, symbolize};
use tailscope_trace::{Error, STACKS};

use crate::failure::Failure;
use crate::screen::Screen;
use crate::streams::{print_json, print_laid_out, say};

/// Name the functions of a ledger's stacks, after the recording and on any machine.
///
/// `record --stacks` names functions from the files on the recorded machine. If those are stripped,
/// this command names the functions later, from debug files or from programs with symbols. A file is
/// used only if its build id is that of the recorded file. The new names stay in the ledger.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  tailscope symbols run --debug ./debug       name functions from the files in ./debug and below
  tailscope symbols run                       name them from debug files of installed packages

Besides --debug, the command looks in /usr/lib/debug/.build-id, and for the recorded files at their
own paths on this machine. For each file with code, it prints how many of the addresses on the
stacks have names, and which build lacks symbols.")]
pub struct Symbols {
    /// The ledger: a folder that `record --stacks` wrote
    pub ledger: PathBuf,

    /// A debug file or program with symbols, or a folder with such files in any depth (repeatable)
    #[arg(long, value_name = "PATH")]
    pub debug: Vec<PathBuf>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// Do not show progress
    #[arg(short, long)]
    pub quiet: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    kind: &'static str,
    files: Vec<CodeFile>,
}

/// Names the functions, and says what came of it.
pub fn run(args: &Symbols) -> Result<ExitCode> {
    if let Some(missing) = args.debug.iter().find(|path| !path.exists()) {
        let missing = missing.display();
        return Err(Failure::usage(format!(
            "--debug {missing}: no such file or folder"
        )));
    }
    let (screen, start) = (Screen::new(args.quiet), Instant::now());
    let mut said = None;
    let progress = |what: &str| {
        let second = start.elapsed().as_secs();
        if said.replace(second) != Some(second) {
            screen.progress(start.elapsed(), what);
        }
    };
    let done = symbolize(&args.ledger, &args.debug, progress);
    screen.clear();
    let Symbolized { files, unread } = done.map_err(|e| match e {
        Error::NoLedger { .. } => Failure::usage(e),
        e => anyhow!("{e}; no name was changed"),
    })?;
    for why in &unread {
        say!("tailscope: not searched: {why}");
    }
    if files.is_empty() {
        return Err(Failure::usage(nothing_to_name(args)));
    }
    if args.json {
        let kind = "symbols";
        print_json(&Report { kind, files })?;
    } else {
        let lines: Vec<String> = files.iter().map(line).collect();
        print_laid_out(&format!("{}\n", lines.join("\n")))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn nothing_to_name(args: &Symbols) -> String {
    let ledger = args.ledger.display();
    match args.ledger.join(STACKS).is_dir() {
        true => format!(
            "{ledger} has samples, but no stacks with code of programs or libraries; a recording that \
             was cut off has no stacks"
        ),
        false => format!("{ledger} has no stacks; record with --stacks"),
    }
}

/// What came of a file, in one line.
fn line(file: &CodeFile) -> String {
    let CodeFile {
        path,
        named,
        addresses,
        new,
        deepened,
        ..
    } = file;
    let mut line = format!("{path}: {named} of {addresses} addresses have names");
    if *new > 0 {
        line += &format!(", {new} of them new");
    }
    if *deepened > 0 {
        line += &format!(", {deepened} with new inlined functions");
    }
    if *new + *deepened > 0 {
        line += &format!("; from {}", file.symbols.join(" and "));
    }
    if named < addresses && !file.has_symbols {
        line += &match file.build_id.as_str() {
            "" => "; the ledger has no build id of this file".to_owned(),
            id => format!("; no symbols of build {id} were found"),
        };
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(named: usize, new: usize, symbols: &[&str]) -> CodeFile {
        CodeFile {
            path: "/usr/bin/server".to_owned(),
            build_id: "ab01".to_owned(),
            addresses: 9,
            named,
            new,
            symbols: symbols.iter().map(ToString::to_string).collect(),
            has_symbols: new > 0,
            ..CodeFile::default()
        }
    }

    #[test]
    fn a_line_says_what_has_names_and_what_is_missing() {
        let lines = [
            file(9, 7, &["/debug/server", "/debug/server.debug"]),
            CodeFile {
                deepened: 3,
                ..file(9, 0, &["/debug/server"])
            },
            file(2, 0, &["/usr/bin/server"]),
            file(9, 0, &[]),
            CodeFile {
                build_id: String::new(),
                ..file(0, 0, &[])
            },
        ];
        insta::assert_snapshot!(lines.iter().map(line).collect::<Vec<_>>().join("\n"));
    }
}
