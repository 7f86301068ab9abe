//! Processes in which requests came in over TLS.

use std::collections::HashMap;

/// The most that are remembered.
const MOST: usize = 4096;

/// What is known of each.
#[derive(Debug, Default)]
pub(super) struct TlsProcesses {
    /// Whether its library was seen to decrypt.
    decrypts: HashMap<u32, bool>,
    new: Vec<u32>,
}

impl TlsProcesses {
    /// A connection of this process began with TLS.
    pub(super) fn enter(&mut self, pid: u32) {
        if self.decrypts.contains_key(&pid) {
            return;
        }
        if self.decrypts.len() >= MOST {
            self.decrypts.clear(); // those that live on come again
        }
        self.decrypts.insert(pid, false);
        self.new.push(pid);
    }

    /// Its library has decrypted what came in.
    pub(super) fn decrypts(&mut self, pid: u32) {
        if let Some(decrypts) = self.decrypts.get_mut(&pid) {
            *decrypts = true;
        }
    }

    /// Whether what its library decrypts is seen, so that what it does not decrypt is no request.
    pub(super) fn shows_plain(&self, pid: u32) -> bool {
        self.decrypts.get(&pid).is_some_and(|decrypts| *decrypts)
    }

    /// Those that came since the last call.
    pub(super) fn take_new(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.new)
    }

    pub(super) fn forget(&mut self, pid: u32) {
        self.decrypts.remove(&pid);
    }
}
