//! Where the control socket of a guard is.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use tailscope_guard::{Inherited, control_folder, make_private_folder};

use super::args::Guard;
use crate::failure::Failure;
use crate::streams::say;

/// The path that the settings name, or the one for this port. `None`: there is none.
fn path(args: &Guard, port: u16) -> Option<PathBuf> {
    match &args.control {
        Some(none) if none == Path::new("none") => None,
        Some(path) => Some(path.clone()),
        None => Some(control_folder()?.join(format!("{port}.sock"))),
    }
}

/// Asks the guard that runs for its sockets, if there is one.
pub fn take_over(args: &Guard) -> Result<Inherited> {
    let port = args.listen.first().map_or(0, |address| address.port());
    let Some(path) = path(args, port) else {
        return Err(Failure::usage(
            "--take-over needs a control socket; name it with --control",
        ));
    };
    let inherited = Inherited::ask(&path).map_err(|e| {
        Failure::machine(format!(
            "can't take over from the guard at {}: {e}",
            path.display()
        ))
    })?;
    Ok(inherited.unwrap_or_else(|| {
        say!("tailscope: no guard runs at {}", path.display());
        Inherited::default()
    }))
}

/// Makes the folder of sockets whose path was not chosen. False: that is not possible, and was said.
pub fn prepare(args: &Guard) -> Result<bool> {
    if args.control.is_some() {
        return Ok(true);
    }
    let Some(folder) = control_folder() else {
        return Ok(false);
    };
    match make_private_folder(&folder) {
        Ok(()) => Ok(true),
        Err(e) => {
            say!(
                "tailscope: no control socket: can't use {}: {e}; name a path with --control",
                folder.display()
            );
            Ok(false)
        }
    }
}

/// Serves the control socket, if there is to be one, and has the guard before this one leave.
pub fn open(
    args: &Guard,
    may: bool,
    guard: &mut tailscope_guard::Guard,
    inherited: &mut Inherited,
) -> Result<Option<PathBuf>> {
    let port = guard.addresses().first().map_or(0, |at| at.port());
    let path = path(args, port).filter(|_| may);
    guard
        .open_control(path.as_deref(), inherited)
        .map_err(|e| {
            let path = path.clone().unwrap_or_default();
            Failure::machine(format!(
                "can't serve the control socket {}: {e}",
                path.display()
            ))
        })?;
    Ok(path)
}

/// The sockets of this user's guards.
pub fn known() -> Vec<PathBuf> {
    let Some(files) = control_folder().and_then(|folder| fs::read_dir(folder).ok()) else {
        return Vec::new();
    };
    let mut all: Vec<PathBuf> = files.flatten().map(|file| file.path()).collect();
    all.retain(|path| path.extension().is_some_and(|kind| kind == "sock"));
    all.sort();
    all
}
