//! `tailscope generate FOLDER`: man pages and shell completions, for packages. Users don't need it,
//! so `--help` and the completions do not list it.
//!
//! The commands in Python are programs of their own. Their descriptions come as JSON on stdin, from
//! `packaging/describe.py`, so that pages and completions treat all commands alike.

mod described;
mod page;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, stdin};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Command, CommandFactory};
use clap_complete::Shell;

use crate::args::Args;
use crate::failure::Failure;
use described::Described;

/// The command's name, by which shells find its completions.
const NAME: &str = "tailscope";
/// Where Debian's shells look for completions, below /usr/share.
const COMPLETIONS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions/tailscope"),
    (Shell::Zsh, "zsh/vendor-completions/_tailscope"),
    (Shell::Fish, "fish/vendor_completions.d/tailscope.fish"),
];

/// Whether these words of the command line call it.
pub fn is_called(words: &[OsString]) -> bool {
    words.first().map(OsString::as_os_str) == Some(OsStr::new("generate"))
}

/// Writes everything below a folder that is laid out like /usr/share.
pub fn run(words: &[OsString]) -> Result<ExitCode> {
    let [_, folder] = words else {
        return Err(Failure::usage(
            "generate takes one folder: packaging/describe.py | tailscope generate FOLDER",
        ));
    };
    let described: Vec<Described> = serde_json::from_reader(stdin().lock()).map_err(|e| {
        Failure::usage(format!(
            "stdin does not describe commands: {e}; pipe packaging/describe.py into it"
        ))
    })?;
    let folder = Path::new(folder);
    write(complete(described), folder).map_err(|e| {
        Failure::machine(format!(
            "can't write man pages and completions below {}: {e}",
            folder.display()
        ))
    })?;
    Ok(ExitCode::SUCCESS)
}

/// The command line with the commands that are other programs.
fn complete(described: Vec<Described>) -> Command {
    // `tailscope help` knows only the commands of this program.
    let mut command = Args::command()
        .disable_help_subcommand(true)
        .subcommands(described.into_iter().map(Command::from));
    command.build();
    command
}

fn write(mut command: Command, share: &Path) -> io::Result<()> {
    let pages = share.join("man/man1");
    fs::create_dir_all(&pages)?;
    for (name, text) in page::pages(&command)? {
        fs::write(pages.join(name), text)?;
    }
    for (shell, place) in COMPLETIONS {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut command, NAME, &mut script);
        let place = share.join(place);
        if let Some(folder) = place.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(place, script)?;
    }
    Ok(())
}
