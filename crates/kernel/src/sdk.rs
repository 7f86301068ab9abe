//! What the programs do for processes with the SDK, the same for a recording and for a timeline: where
//! they listen to the SDK's probe, and which map of meters a process has.

use std::os::fd::BorrowedFd;

use libbpf_rs::{MapCore, MapFlags, Object};
use tailscope_process::owner::FileId;
use tailscope_symbols::sdk::SdkFile;

use crate::load::Kernel;
use crate::meter_maps::MeterMaps;
use crate::object::map_of;
use crate::pid_namespace::{Numbers, kernels_number};
use crate::sdk_files::{SdkFileError, SdkFiles};
use crate::watch::update_process;
use crate::watch_error::WatchError;

/// The part of loaded programs that processes with the SDK meet.
pub struct SdkPrograms<'k> {
    pub(crate) object: &'k mut Object,
    pub(crate) files: &'k mut SdkFiles,
    pub(crate) meters: &'k mut MeterMaps,
    pub(crate) table: Table<'k>,
}

/// Where the programs look up the map of a process.
#[derive(Clone, Copy)]
pub(crate) enum Table<'k> {
    /// In `processes`, by the process's number in the initial PID namespace.
    Processes(&'k Numbers),
    /// In `sdk_processes`, by its number in ours.
    SdkProcesses,
}

impl Kernel {
    /// What the programs do for processes with the SDK.
    pub fn sdk(&mut self) -> SdkPrograms<'_> {
        SdkPrograms {
            object: &mut self.object,
            files: &mut self.sdk_files,
            meters: &mut self.sdk_meters,
            table: Table::Processes(&self.numbers),
        }
    }
}

impl SdkPrograms<'_> {
    /// Attaches to the SDK's probe in a file that this user's process has mapped. This tells the SDK in
    /// every process that maps the file that a recorder is here.
    ///
    /// # Errors
    /// The kernel refuses, or there are too many files.
    pub fn attach(&mut self, file: &SdkFile, pid: u32, user: u32) -> Result<(), SdkFileError> {
        self.files.attach(self.object, file, pid, user)
    }

    /// Whether a file is attached to.
    #[must_use]
    pub fn is_attached(&self, file: FileId) -> bool {
        self.files.has(file)
    }

    /// A process has ended, or runs another program: detaches from files that no other process can map.
    pub fn forget(&mut self, pid: u32) {
        self.files.forget(pid);
    }

    /// Detaches from all files: the SDK meters no span that starts from now on.
    pub fn detach_all(&mut self) {
        self.files.clear();
    }

    /// Has a map of meters made for the process that connects next, so that it need not wait.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn prepare_meters(&mut self) -> Result<(), WatchError> {
        self.meters.prepare(self.object)
    }

    /// How many maps of meters are ready. `None`: there will be no others, so to wait is no use.
    #[must_use]
    pub fn meters_ready(&self) -> Option<usize> {
        self.meters.ready()
    }

    /// Gives a process a map of meters that it can read, in place of one that it had. The SDK's threads
    /// move there.
    ///
    /// # Errors
    /// All maps are in use, or the kernel refuses.
    pub fn give_meters(&mut self, pid: u32) -> Result<BorrowedFd<'_>, WatchError> {
        let object = &*self.object;
        match self.table {
            Table::Processes(numbers) => {
                // No process has the number 0: the programs then have nobody to move.
                let number = kernels_number(numbers, pid)?.unwrap_or_default();
                self.meters.give(object, pid, |index| {
                    update_process(object, number, |process| {
                        process.map = index;
                        process.refused = 0;
                    })
                })
            }
            Table::SdkProcesses => self.meters.give(object, pid, |index| {
                let table = map_of(object, "sdk_processes");
                table.update(&pid.to_ne_bytes(), &index.to_ne_bytes(), MapFlags::ANY)
            }),
        }
    }

    /// The map that a process was given.
    #[must_use]
    pub fn meters_of(&self, pid: u32) -> Option<BorrowedFd<'_>> {
        self.meters.of(pid)
    }

    /// Takes the map away from a process that is gone or runs another program.
    pub fn take_back_meters(&mut self, pid: u32) {
        if let Table::SdkProcesses = self.table {
            let _ = map_of(self.object, "sdk_processes").delete(&pid.to_ne_bytes());
        }
        self.meters.take_back(pid);
    }
}
