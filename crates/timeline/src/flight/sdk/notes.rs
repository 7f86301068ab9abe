//! What is worth telling of files in which the SDK is looked for.

use std::collections::HashSet;
use std::io;
use std::path::Path;

/// So much is told of files in all: a process must not fill a log.
const MOST_NOTES: usize = 100;

/// What is worth telling of files, each once.
#[derive(Debug, Default)]
pub(super) struct Notes {
    pub(super) waiting: Vec<String>,
    known: HashSet<String>,
}

impl Notes {
    pub(super) fn say(&mut self, note: String) {
        if self.known.len() < MOST_NOTES && self.known.insert(note.clone()) {
            self.waiting.push(note);
        }
    }
}

/// A file that can't be read.
pub(super) fn unread(file: &Path, why: &io::Error) -> String {
    format!(
        "can't search {} for the SDK: {why}; SDK spans of its processes may be missing",
        file.display()
    )
}
