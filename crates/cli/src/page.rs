//! Pages of reports. `tailscope-report`, a program of the Python part, draws them from JSON.
//!
//! It gets the JSON on stdin and returns the page on stdout. It opens no file of ours, and has no
//! privileges beyond reading: the file with the page is created here.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use anyhow::{Context, Result};
use serde::Serialize;
use tailscope_kernel::drop_capabilities_but_reading;

use crate::external;
use crate::failure::Failure;
use crate::streams::save;

/// A report with its kind, by which `tailscope report` knows how to draw it.
#[derive(Debug, Serialize)]
pub struct Report<'r, T> {
    /// A key of `PAGES` in python/tailscope/present/pages/__init__.py.
    pub kind: &'static str,
    #[serde(flatten)]
    pub report: &'r T,
}

/// The program that draws pages.
#[derive(Debug)]
pub struct PageWriter {
    program: PathBuf,
}

impl PageWriter {
    /// Finds the program. Call this before a long measurement: without the program there is no page.
    ///
    /// # Errors
    /// If there is no such program.
    pub fn find() -> Result<Self> {
        let program = external::locate("report").ok_or_else(|| {
            Failure::machine(
                "can't draw pages: there is no tailscope-report beside this program or on the PATH. \
                 It is in Python: install Tailscope's Python part (`make build` installs it in .venv), \
                 or use --json here and `tailscope report FILE.json` on a machine that has it",
            )
        })?;
        Ok(Self { program })
    }

    /// Draws the page of a report, and saves it.
    ///
    /// # Errors
    /// If it can't be drawn or written. A file that was there stays then.
    pub fn write(&self, report: &impl Serialize, path: &Path) -> Result<()> {
        let page = self.draw(&serde_json::to_vec(report)?)?;
        save(path, |out| out.write_all(&page))
    }

    /// The page. Capabilities belong to threads, so the thread that starts the program drops its own.
    fn draw(&self, json: &[u8]) -> Result<Vec<u8>> {
        let drawn = thread::scope(|scope| {
            let thread = scope.spawn(|| {
                drop_capabilities_but_reading().map_err(Failure::machine)?;
                let program = self.program.display();
                let child = Command::new(&self.program)
                    .args(["--quiet", "--output", "-", "-"])
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .spawn()
                    .map_err(|e| Failure::machine(format!("can't run {program}: {e}")))?;
                talk(child, json).with_context(|| format!("can't draw the page with {program}"))
            });
            thread.join()
        });
        drawn.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Gives the program its input and takes its output. It says on stderr what is wrong.
fn talk(mut child: Child, json: &[u8]) -> Result<Vec<u8>> {
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let mut page = Vec::new();
    let read = thread::scope(|scope| {
        // A program that ends early has said why: that the pipe broke is no news.
        scope.spawn(|| stdin.map(|mut stdin| stdin.write_all(json)));
        stdout.map_or(Ok(0), |mut stdout| stdout.read_to_end(&mut page))
    });
    let status = child.wait()?;
    read?;
    if status.success() {
        Ok(page)
    } else {
        Err(Failure::machine(format!("it failed ({status})")))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A program in place of the one in Python. A child writes it: a descriptor for writing of our
    /// own would be in the children of other tests' threads too, and Linux starts no program that
    /// somebody may write to (ETXTBSY).
    fn writer(folder: &Path, script: &str) -> PageWriter {
        let program = folder.join("tailscope-report");
        let written = Command::new("sh")
            .args([
                "-c",
                r#"printf '#!/bin/sh\n%s\n' "$1" >"$2" && chmod 755 "$2""#,
                "sh",
                script,
            ])
            .arg(&program)
            .status();
        assert!(written.expect("sh").success());
        PageWriter { program }
    }

    #[test]
    fn the_program_gets_the_report_and_its_output_becomes_the_file() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let page = folder.path().join("page.html");
        // More than a pipe holds, in both directions at once.
        let report = vec!["x".repeat(1000); 1000];
        let writer = writer(folder.path(), "exec cat");
        let wrapped = Report {
            kind: "observe",
            report: &std::collections::BTreeMap::from([("long", &report)]),
        };
        writer.write(&wrapped, &page).expect("written");
        let written: serde_json::Value =
            serde_json::from_slice(&fs::read(&page).expect("there")).expect("JSON");
        assert_eq!(written["kind"], "observe");
        assert_eq!(written["long"].as_array().map(Vec::len), Some(1000));
    }

    #[test]
    fn a_page_that_can_not_be_drawn_leaves_the_old_one() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let page = folder.path().join("page.html");
        fs::write(&page, "old").expect("written");
        let failing = writer(folder.path(), "echo half a page; exit 3");
        let error = failing.write(&"report", &page).expect_err("it failed");
        assert!(format!("{error:#}").contains("exit status: 3"), "{error:#}");
        assert_eq!(fs::read_to_string(&page).expect("there"), "old");
        assert_eq!(Failure::code(&error), 3);
    }

    #[test]
    fn the_program_has_no_capabilities_beyond_reading() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let status = "exec grep -E '^Cap(Prm|Eff)' /proc/self/status";
        let seen = writer(folder.path(), status).draw(b"{}").expect("drawn");
        let seen = String::from_utf8(seen).expect("text");
        let reading = 1u64 << 2; // CAP_DAC_READ_SEARCH
        assert_eq!(seen.lines().count(), 2, "{seen}");
        for line in seen.lines() {
            let set = line.split_whitespace().last().expect("a set");
            let set = u64::from_str_radix(set, 16).expect("hexadecimal");
            assert_eq!(set & !reading, 0, "{seen}");
        }
    }
}
