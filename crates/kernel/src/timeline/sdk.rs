//! Programs with the SDK, which say themselves where their spans begin and end. The rows that they
//! write are read elsewhere; here their threads are answered.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use libbpf_rs::{MapCore, MapFlags};
use tailscope_signals::sdk_files::{FileId, SdkFile};

use super::Events;
use crate::sdk_files::SdkFileError;
use crate::watch::{WatchError, kernel, map_of, new_meters};

impl Events {
    /// Lets the SDK in a file that a process has mapped know of us, in every process that has it
    /// mapped.
    pub fn call_sdk(&mut self, file: &SdkFile, pid: u32) -> Result<(), SdkFileError> {
        self.sdk_files.attach(&mut self.object, file, pid)
    }

    /// Whether the SDK in this file knows of us.
    #[must_use]
    pub fn has_called_sdk(&self, file: FileId) -> bool {
        self.sdk_files.has(file)
    }

    /// A process is gone, or runs another program.
    pub fn forget_sdk(&mut self, pid: u32) {
        self.sdk_files.forget(pid);
    }

    /// Gives a process a map in which its threads claim meters, in place of one that it had. Nothing
    /// is ever put on those.
    pub fn give_meters(&mut self, pid: u32) -> Result<BorrowedFd<'_>, WatchError> {
        let meters = new_meters().map_err(kernel("make a map of meters"))?;
        map_of(&self.object, "meters")
            .update(
                &pid.to_ne_bytes(),
                &meters.as_fd().as_raw_fd().to_ne_bytes(),
                MapFlags::ANY,
            )
            .map_err(kernel("place a map of meters"))?;
        self.meters.insert(pid, meters);
        Ok(self.meters[&pid].as_fd())
    }

    /// The map that a process was given.
    #[must_use]
    pub fn meters_of(&self, pid: u32) -> Option<BorrowedFd<'_>> {
        self.meters.get(&pid).map(AsFd::as_fd)
    }

    /// Takes the map away from a process that is gone.
    pub fn take_back_meters(&mut self, pid: u32) {
        if self.meters.remove(&pid).is_some() {
            let _ = map_of(&self.object, "meters").delete(&pid.to_ne_bytes());
        }
    }
}
