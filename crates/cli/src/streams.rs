//! Writing to stdout and stderr. All of the command's output goes through here.
//!
//! A reader that closes its pipe (`tailscope … | head -1`) has what it wanted: the rest of the output
//! is dropped, and the command goes on to its end and its own exit code. Rust's `println!` would panic.

use std::fmt;
use std::io::{self, BufWriter, ErrorKind, Write, stderr, stdout};
use std::path::Path;

use anyhow::Result;

use crate::failure::Failure;

/// Writes to stdout what `write` writes. Only a reader that is gone is no error.
pub fn print(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    let mut out = BufWriter::new(stdout().lock());
    let done = write(&mut out).and_then(|()| out.flush());
    // What is still buffered would be tried again when it is dropped.
    let _ = out.into_parts();
    kept("stdout", done)
}

/// Writes a file, or stdout where the path is `-`. Until it is whole, an older file stays.
pub fn save(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    if path == Path::new("-") {
        return print(write);
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

fn kept(place: &str, done: io::Result<()>) -> Result<()> {
    match done {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::machine(format!("can't write {place}: {e}")))
        }
        _ => Ok(()),
    }
}

/// Writes to stderr, as far as anybody reads it.
pub fn complain(words: fmt::Arguments<'_>) {
    let _ = stderr().lock().write_fmt(words);
}

/// Writes a line to stderr, as far as anybody reads it: `eprintln!` would panic.
macro_rules! say {
    ($($words:tt)*) => {{
        $crate::streams::complain(format_args!("{}\n", format_args!($($words)*)));
    }};
}
pub(crate) use say;
