//! Writing to stdout and stderr. All of the command's output goes through here.
//!
//! A reader that closes its pipe (`tailscope … | head -1`) has what it wanted: the rest of the output
//! is dropped, and the command goes on to its end and its own exit code. Rust's `println!` would panic.
//!
//! Whatever name is in the text, a terminal that shows it obeys nothing: `console` spells it.

use std::fmt;
use std::io::{self, BufWriter, ErrorKind, IsTerminal, Write, stderr, stdout};
use std::path::Path;

use anyhow::Result;
use serde::Serialize;

use crate::console::{Console, escaped_in_json};
use crate::failure::Failure;

/// Text to stdout, in letters that the locale has. Only a reader that is gone is no error.
pub fn print(text: &str) -> Result<()> {
    put(|out| out.write_all(Console::stdout().spell(text).as_bytes()))
}

/// Text to stdout, no line longer than the terminal is wide.
pub fn print_laid_out(text: &str) -> Result<()> {
    put(|out| out.write_all(Console::stdout().lay_out(text).as_bytes()))
}

/// What `write` writes to stdout, piece by piece: it escapes names itself.
pub fn print_with(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    put(write)
}

/// JSON to stdout, indented.
pub fn print_json(value: &impl Serialize) -> Result<()> {
    let json = serde_json::to_string_pretty(value)?;
    put(|out| writeln!(out, "{}", escaped_in_json(&json)))
}

/// JSON to stdout, in one line.
pub fn print_json_line(value: &impl Serialize) -> Result<()> {
    let json = serde_json::to_string(value)?;
    put(|out| writeln!(out, "{}", escaped_in_json(&json)))
}

/// Writes a file, or stdout where the path is `-`: byte for byte, unless a terminal shows it.
///
/// Until it is whole, an older file stays.
pub fn save(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    if path == Path::new("-") {
        if !stdout().is_terminal() {
            return put(write);
        }
        let mut bytes = Vec::new();
        kept("stdout", write(&mut bytes))?;
        return print(&String::from_utf8_lossy(&bytes));
    }
    let done = tailscope_output::write_with(path, |file| {
        let mut file = BufWriter::new(file);
        write(&mut file)?;
        file.into_inner().map_err(io::IntoInnerError::into_error)?;
        Ok(())
    });
    // It may be a pipe by a name of its own, like /dev/stdout.
    kept(&path.display().to_string(), done)
}

fn put(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    let mut out = BufWriter::new(stdout().lock());
    let done = write(&mut out).and_then(|()| out.flush());
    // What is still buffered would be tried again when it is dropped.
    let _ = out.into_parts();
    kept("stdout", done)
}

fn kept(place: &str, done: io::Result<()>) -> Result<()> {
    match done {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::machine(format!("can't write {place}: {e}")))
        }
        _ => Ok(()),
    }
}

/// A line to stderr in letters that the locale has, as far as anybody reads it.
pub fn complain(words: fmt::Arguments<'_>) {
    let line = Console::stderr().spell(&words.to_string());
    let _ = writeln!(stderr().lock(), "{line}");
}

/// Lines to stderr, none longer than the terminal is wide.
pub fn complain_laid_out(line: &str) {
    let line = Console::stderr().lay_out(line);
    let _ = writeln!(stderr().lock(), "{line}");
}

/// Writes a line to stderr, as far as anybody reads it: `eprintln!` would panic.
macro_rules! say {
    ($($words:tt)*) => {
        $crate::streams::complain(format_args!($($words)*))
    };
}
pub(crate) use say;
