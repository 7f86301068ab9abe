//! Programs with the SDK, which say themselves where their spans begin and end. The rows that they
//! write are read elsewhere; here their threads are answered.

use std::os::fd::BorrowedFd;

use libbpf_rs::{MapCore, MapFlags};
use tailscope_signals::sdk_files::{FileId, SdkFile};

use super::Events;
use crate::sdk_files::SdkFileError;
use crate::watch::{WatchError, map_of};

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

    /// Has a map ready for the process that comes next, so that it need not wait for one.
    pub fn prepare_meters(&mut self) -> Result<(), WatchError> {
        self.meters.prepare(&self.object)
    }

    /// Gives a process a map in which its threads claim meters, in place of one that it had. Nothing
    /// is ever put on those.
    pub fn give_meters(&mut self, pid: u32) -> Result<BorrowedFd<'_>, WatchError> {
        let object = &self.object;
        self.meters.give(object, pid, |index| {
            let (pid, index) = (pid.to_ne_bytes(), index.to_ne_bytes());
            map_of(object, "sdk_processes").update(&pid, &index, MapFlags::ANY)
        })
    }

    /// The map that a process was given.
    #[must_use]
    pub fn meters_of(&self, pid: u32) -> Option<BorrowedFd<'_>> {
        self.meters.of(pid)
    }

    /// Takes the map away from a process that is gone.
    pub fn take_back_meters(&mut self, pid: u32) {
        let _ = map_of(&self.object, "sdk_processes").delete(&pid.to_ne_bytes());
        self.meters.take_back(pid);
    }
}
