//! What the person sees on stderr while a command runs.

use std::io::{IsTerminal, Write, stderr};
use std::time::Duration;

use crate::console::Console;
use crate::streams::{complain_laid_out, say};
use crate::top::fit;

/// So often a line goes into a log; on a terminal one line is written over and over.
const LOG_EVERY: Duration = Duration::from_secs(10);
/// To the begin of the line, and nothing left on it.
const CLEAR: &str = "\r\x1b[K";

/// The progress line and what is said around it; nothing but notices if it is quiet.
pub struct Screen {
    quiet: bool,
    terminal: bool,
    console: Console,
}

impl Screen {
    pub fn new(quiet: bool) -> Self {
        Self {
            quiet,
            terminal: stderr().is_terminal(),
            console: Console::stderr(),
        }
    }

    /// A line that stays.
    pub fn say(&self, line: &str) {
        if !self.quiet {
            say!("{line}");
        }
    }

    /// A line of figures that stays, as wide as the terminal.
    pub fn say_figures(&self, line: &str) {
        if !self.quiet {
            complain_laid_out(line);
        }
    }

    /// A line that stays even if it is quiet: something is wrong.
    pub fn notice(&self, line: &str) {
        let clear = if self.terminal { CLEAR } else { "" };
        let line = self.console.spell(line);
        let _ = writeln!(stderr(), "{clear}tailscope: {line}");
    }

    /// How it goes; called about once a second.
    pub fn progress(&self, elapsed: Duration, line: &str) {
        if self.quiet {
            return;
        }
        let line = self.console.spell(line);
        let mut out = stderr().lock();
        if self.terminal {
            // A line that the terminal wraps could not be written over.
            let _ = write!(out, "{CLEAR}{}", fit(&line, Console::stderr().width - 1));
        } else if elapsed.as_secs().is_multiple_of(LOG_EVERY.as_secs()) {
            let _ = writeln!(out, "{line}");
        }
        let _ = out.flush();
    }

    /// Takes the progress line away.
    pub fn clear(&self) {
        if self.terminal && !self.quiet {
            let _ = write!(stderr(), "{CLEAR}");
        }
    }
}
