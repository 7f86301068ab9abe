//! `tailscope cost calibrate`, and where a calibration is kept.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Result;
use tailscope_cost::{Absent, Calibration, CalibrationError, Options, calibrate};
use tailscope_kernel::PidNamespace;

use super::{args, publish, text};
use crate::failure::Failure;
use crate::page;
use crate::screen::Screen;
use crate::subject::load_failure;

/// Where root keeps a calibration.
const SYSTEM_FILE: &str = "/var/lib/tailscope/cost.json";

/// With its kind, by which `tailscope report` draws it.
pub(super) fn calibration(of: &Calibration) -> page::Report<'_, Calibration> {
    page::Report {
        kind: "cost-calibration",
        report: of,
    }
}

/// The file of this user.
pub(super) fn file(named: Option<&Path>) -> Result<PathBuf> {
    let named = named.map(Path::to_owned);
    let variable = || env::var_os("TAILSCOPE_COST").filter(|path| !path.is_empty());
    if let Some(named) = named.or_else(|| variable().map(PathBuf::from)) {
        return Ok(named);
    }
    if tailscope_output::is_root() {
        return Ok(SYSTEM_FILE.into());
    }
    let of =
        |name: &str, below: &str| env::var_os(name).map(|home| PathBuf::from(home).join(below));
    of("XDG_STATE_HOME", "tailscope/cost.json")
        .or_else(|| of("HOME", ".local/state/tailscope/cost.json"))
        .ok_or_else(|| {
            Failure::usage("there is no state folder for this user; name a file with --file")
        })
}

pub(super) fn known(named: Option<&Path>) -> Result<Calibration> {
    Calibration::read(&file(named)?).map_err(Failure::machine)
}

pub(super) fn calibrate_here(args: &args::Calibrate) -> Result<()> {
    PidNamespace::here().map_err(Failure::machine)?;
    let path = file(args.file.as_deref())?;
    let before = match Calibration::read(&path) {
        Ok(before) if !args.forget => Some(before),
        // Another machine's is replaced.
        Ok(_) | Err(CalibrationError::None(_) | CalibrationError::OtherMachine { .. }) => None,
        Err(e @ CalibrationError::Unreadable { .. }) if !args.forget => {
            return Err(Failure::machine(format!("{e} with --forget")));
        }
        Err(_) => None,
    };
    let options = Options {
        duration: args.duration,
        cpu: args.cpu,
        seed: args.seed,
        recorded: ["/proc/self/exe", "cost", "recorded"]
            .map(Into::into)
            .into(),
    };
    let screen = Screen::new(args.quiet);
    let found = calibrate(&options, |share| {
        let elapsed = Duration::from_secs_f64(options.duration.as_secs_f64() * share.min(1.0));
        screen.progress(
            elapsed,
            &format!("calibrating: {:.0} %", share.min(1.0) * 100.0),
        );
    });
    screen.clear();
    let mut found = found.map_err(|error| match error {
        Absent::Load(error) => load_failure(error),
        Absent::Cpu { .. } => Failure::usage(error),
        Absent::Void(_) => Failure::machine(error),
    })?;
    if let Some(before) = &before {
        found.follow(before);
    }
    found.write(&path).map_err(Failure::machine)?;
    screen.say(&format!("kept in {}", path.display()));
    publish(args.json, &calibration(&found), || {
        text::calibration(&found)
    })
}

/// What a hit costs on this machine, if it was calibrated.
pub fn known_here() -> Result<Calibration> {
    known(None)
}

/// What a hit costs on this machine, which is calibrated now if it was not yet: in a process of its own, as
/// that moves from CPU to CPU and names its thread.
pub fn known_or_calibrated(screen: &Screen) -> Result<Calibration> {
    let path = file(None)?;
    match Calibration::read(&path) {
        Err(CalibrationError::None(_) | CalibrationError::OtherMachine { .. }) => {}
        known => return known.map_err(Failure::machine),
    }
    screen.say("calibrating this machine once, which takes ten seconds");
    let done = Command::new("/proc/self/exe")
        .args(["cost", "calibrate", "--quiet", "--file"])
        .arg(&path)
        .stdout(Stdio::null())
        .status();
    match done {
        Ok(status) if status.success() => Calibration::read(&path).map_err(Failure::machine),
        Ok(status) => Err(Failure::machine(format!(
            "tailscope cost calibrate failed: {status}"
        ))),
        Err(e) => Err(Failure::machine(format!(
            "can't start tailscope cost calibrate: {e}"
        ))),
    }
}
