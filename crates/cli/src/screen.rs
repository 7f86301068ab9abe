//! What the person sees on stderr while a command runs.

use std::io::{IsTerminal, Write, stderr};
use std::time::Duration;

use crate::streams::say;

/// So often a line goes into a log; on a terminal one line is written over and over.
const LOG_EVERY: Duration = Duration::from_secs(10);
/// To the begin of the line, and nothing left on it.
const CLEAR: &str = "\r\x1b[K";

/// The progress line and what is said around it; nothing but notices if it is quiet.
pub struct Screen {
    quiet: bool,
    terminal: bool,
}

impl Screen {
    pub fn new(quiet: bool) -> Self {
        Self {
            quiet,
            terminal: stderr().is_terminal(),
        }
    }

    /// A line that stays.
    pub fn say(&self, line: &str) {
        if !self.quiet {
            say!("{line}");
        }
    }

    /// A line that stays even if it is quiet: something is wrong.
    pub fn notice(&self, line: &str) {
        let clear = if self.terminal { CLEAR } else { "" };
        let _ = writeln!(stderr(), "{clear}tailscope: {line}");
    }

    /// How it goes; called about once a second.
    pub fn progress(&self, elapsed: Duration, line: &str) {
        if self.quiet {
            return;
        }
        let mut out = stderr().lock();
        if self.terminal {
            let _ = write!(out, "{CLEAR}{line}");
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
