//! Subcommands that are programs of their own, found the way git finds its own.

use std::env;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::Result;

use crate::failure::Failure;

/// The path of `tailscope-NAME`, beside this program or on the PATH. `None`: there is none.
///
/// It is never taken from the current folder, as an empty entry of the PATH would have it: root may
/// be in anybody's folder.
pub fn locate(name: &str) -> Option<PathBuf> {
    let beside = env::current_exe().ok();
    let beside = beside.as_deref().and_then(Path::parent).map(Path::to_owned);
    let path = env::var_os("PATH").unwrap_or_default();
    beside
        .into_iter()
        .chain(env::split_paths(&path))
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(format!("tailscope-{name}")))
        .find(|file| is_program(file))
}

fn is_program(file: &Path) -> bool {
    let about = file.metadata();
    about.is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0)
}

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
            "explain" | "diff" | "report" | "requests" => {
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
