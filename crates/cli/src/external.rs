//! Subcommands that are programs of their own, found the way git finds its own.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::Result;

use crate::failure::Failure;

/// Becomes `tailscope-NAME`, from beside this program or from the PATH.
pub fn run(words: &[OsString]) -> Result<ExitCode> {
    let Some((name, rest)) = words.split_first() else {
        return Err(Failure::usage("no command given; see tailscope --help"));
    };
    let mut file = OsString::from("tailscope-");
    file.push(name);
    let beside = env::current_exe()
        .ok()
        .and_then(|me| Some(me.parent()?.join(&file)));
    let program = beside
        .filter(|path| path.is_file())
        .unwrap_or_else(|| PathBuf::from(&file));
    let error = Command::new(&program).args(rest).exec();
    Err(if error.kind() == std::io::ErrorKind::NotFound {
        let name = name.to_string_lossy();
        let hint = match name.as_ref() {
            "explain" | "diff" => {
                "its program is not next to this one or on the PATH; `make build` installs it as \
                 .venv/bin/tailscope"
            }
            _ => "see tailscope --help",
        };
        Failure::usage(format!("there is no command '{name}': {hint}"))
    } else {
        Failure::machine(format!("can't run {}: {error}", program.display()))
    })
}
