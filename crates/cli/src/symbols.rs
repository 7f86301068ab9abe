//! `tailscope symbols`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;
use clap::Args as ClapArgs;
use serde::Serialize;
use tailscope_record::{CodeFile, Symbolized, symbolize};
use tailscope_trace::Error;

use crate::failure::Failure;
use crate::screen::Screen;
use crate::streams::{print_json, print_laid_out, say};

/// Name the functions of a ledger's stacks, after the recording and on any machine.
///
/// `record --stacks` names functions by the files on the recorded machine. If those are stripped, this
/// command names the functions later, by debug files or by programs with symbols. A file is used only
/// if its build id is that of the recorded file. The new names stay in the ledger.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  tailscope symbols run --debug ./debug       name functions by the files in ./debug and below
  apt install memcached-dbgsym && tailscope symbols run
                                              name them by a package's debug file

Besides the folders of --debug, the command looks in /usr/lib/debug, and for the recorded files at
their own paths on this machine. It prints how many places in the code of each file have names now.")]
pub struct Symbols {
    /// The ledger: a folder that `record --stacks` wrote
    pub ledger: PathBuf,

    /// A folder with debug files or programs with symbols, in any order and depth (repeatable)
    #[arg(long, value_name = "FOLDER")]
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
    if let Some(missing) = args.debug.iter().find(|folder| !folder.is_dir()) {
        let missing = missing.display();
        return Err(Failure::usage(format!("--debug {missing}: no such folder")));
    }
    let (screen, start) = (Screen::new(args.quiet), Instant::now());
    let mut said = None;
    let say = |what: &str| {
        let second = start.elapsed().as_secs();
        if said.replace(second) != Some(second) {
            screen.progress(start.elapsed(), &format!("searching {what}"));
        }
    };
    let done = symbolize(&args.ledger, &args.debug, say);
    screen.clear();
    let Symbolized { files, unread } = done.map_err(|e| match e {
        Error::NoLedger { .. } => Failure::usage(e),
        e => anyhow::Error::from(e).context("the names are as they were"),
    })?;
    for why in &unread {
        say!("tailscope: not searched: {why}");
    }
    if files.is_empty() {
        return Err(Failure::usage(format!(
            "{} has no stacks with code of files: record it with --stacks",
            args.ledger.display()
        )));
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

/// What came of a file, in one line.
fn line(file: &CodeFile) -> String {
    let gained = match file.named - file.named_before {
        0 => String::new(),
        new => format!(", {new} of them new"),
    };
    let from = match (file.symbols.as_slice(), file.build_id.as_str()) {
        ([], "") => "; the ledger does not say which build it is of".to_owned(),
        ([], id) if file.named < file.places => format!("; no symbols of build {id} were found"),
        ([], _) => String::new(),
        (found, _) => {
            format!("; from {}", found.join(" and "))
        }
    };
    let CodeFile {
        path,
        named,
        places,
        ..
    } = file;
    format!("{path}: {named} of {places} places have names{gained}{from}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(named_before: usize, named: usize, symbols: &[&str]) -> CodeFile {
        CodeFile {
            path: "/usr/bin/server".to_owned(),
            build_id: "ab01".to_owned(),
            places: 9,
            named_before,
            named,
            symbols: symbols.iter().map(ToString::to_string).collect(),
        }
    }

    #[test]
    fn a_line_says_what_has_names_and_from_where() {
        let lines = [
            file(2, 9, &["/debug/server", "/debug/server.debug"]),
            file(2, 2, &[]),
            file(9, 9, &[]),
            CodeFile {
                build_id: String::new(),
                ..file(0, 0, &[])
            },
        ];
        insta::assert_snapshot!(lines.iter().map(line).collect::<Vec<_>>().join("\n"));
    }
}
