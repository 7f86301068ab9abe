//! The only way of lines to stdout and stderr: whatever name is in them, no terminal obeys it.

use std::io::{self, Write, stderr, stdout};

use serde::Serialize;

use crate::console::{Console, escaped_in_json};

/// Lines to stdout, in letters that the locale has.
pub fn out(text: &str) -> io::Result<()> {
    writeln!(stdout(), "{}", Console::stdout().spell(text))
}

/// Text to stdout, as wide as the terminal.
pub fn lay_out(text: &str) -> io::Result<()> {
    write!(stdout(), "{}", Console::stdout().lay_out(text))
}

/// JSON to stdout, indented.
pub fn json(value: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_string_pretty(value)?;
    writeln!(stdout(), "{}", escaped_in_json(&text))
}

/// JSON to stdout, in one line.
pub fn json_line(value: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_string(value)?;
    writeln!(stdout(), "{}", escaped_in_json(&text))
}

/// Lines to stderr, in letters that the locale has. If nobody reads them, the work goes on.
pub fn err(text: &str) {
    let _ = writeln!(stderr(), "{}", Console::stderr().spell(text));
}

/// Lines to stderr, as wide as the terminal.
pub fn lay_out_err(text: &str) {
    let _ = writeln!(stderr(), "{}", Console::stderr().lay_out(text));
}
