//! Which processes are watched, and the maps of meters that SDK processes get.

use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use libbpf_rs::libbpf_sys::bpf_map_create_opts;
use libbpf_rs::{Iter, MapCore, MapFlags, MapHandle, MapType, Object};
use rustix::mm::{MapFlags as MmapFlags, ProtFlags};
use tailscope_signals::abi;

use crate::answers::Answers;
use crate::load::{Kernel, LoadError};
use crate::pid_namespace::Numbers;
use crate::sdk::{SdkPrograms, Table};
use crate::shared::{self, Plain};

/// A process can't be watched.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The table of processes is full.
    #[error(
        "can't watch another process: the limit is {} at a time; watch fewer processes",
        shared::MAX_PROCESSES
    )]
    TooMany,
    /// No further map of meters can be handed out.
    #[error(
        "can't serve the SDK to another process: the limit is {0} at a time; watch fewer processes"
    )]
    TooManySdk(usize),
    /// The kernel refused.
    #[error("can't {what}: {source}")]
    Kernel {
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        source: libbpf_rs::Error,
    },
}

pub(crate) fn kernel(what: &'static str) -> impl FnOnce(libbpf_rs::Error) -> WatchError {
    move |source| WatchError::Kernel { what, source }
}

/// The counts of watched processes by the low bits of their id, shared with the programs.
#[derive(Debug)]
pub(crate) struct Watched(std::ptr::NonNull<std::sync::atomic::AtomicU32>);

impl Watched {
    const BYTES: usize = shared::WATCHED_BUCKETS as usize * 4;

    /// The table of loaded programs.
    pub(crate) fn of(object: &Object) -> Result<Self, LoadError> {
        Self::map(map_of(object, ".bss.watched").as_fd()).map_err(|source| LoadError::System {
            what: "map the table of watched processes",
            source,
        })
    }

    fn map(map: BorrowedFd<'_>) -> io::Result<Self> {
        // SAFETY: a fresh shared mapping of the map's own memory aliases nothing of ours.
        let at = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                Self::BYTES,
                ProtFlags::READ | ProtFlags::WRITE,
                MmapFlags::SHARED,
                map,
                0,
            )?
        };
        std::ptr::NonNull::new(at.cast())
            .map(Self)
            .ok_or_else(|| io::Error::other("mapped at null"))
    }

    pub(crate) fn add(&self, pid: u32, by: i32) {
        let bucket = (pid % shared::WATCHED_BUCKETS) as usize;
        // SAFETY: `bucket` is inside the mapping, which lives as long as `self`; the programs
        // change the words only by atomic additions, and so do we.
        let word = unsafe { self.0.add(bucket).as_ref() };
        word.fetch_add(by as u32, std::sync::atomic::Ordering::Relaxed);
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length; `add` lends no reference out.
        let _ = unsafe { rustix::mm::munmap(self.0.as_ptr().cast(), Self::BYTES) };
    }
}

pub(crate) fn map_of<'o>(object: &'o Object, name: &str) -> libbpf_rs::Map<'o> {
    object
        .maps()
        .find(|map| map.name() == name)
        .unwrap_or_else(|| unreachable!("the object has no map {name}: see src/bpf"))
}

/// A map of meters like those the programs were compiled for.
pub(crate) fn new_meters() -> libbpf_rs::Result<MapHandle> {
    let options = bpf_map_create_opts {
        sz: size_of::<bpf_map_create_opts>() as libbpf_rs::libbpf_sys::size_t,
        map_flags: libbpf_rs::libbpf_sys::BPF_F_MMAPABLE,
        ..Default::default()
    };
    MapHandle::create(
        MapType::Array,
        Some("ts_meters"),
        4,
        size_of::<abi::ts_meter>() as u32,
        abi::TS_METERS,
        &options,
    )
}

pub(crate) fn place_meters(
    object: &Object,
    index: u32,
    meters: &MapHandle,
) -> libbpf_rs::Result<()> {
    map_of(object, "meters").update(
        &index.to_ne_bytes(),
        &meters.as_fd().as_raw_fd().to_ne_bytes(),
        MapFlags::ANY,
    )
}

/// The number by which the programs know a process. `None`: it has ended.
pub(crate) fn kernels_number(numbers: &Numbers, pid: u32) -> Result<Option<u32>, WatchError> {
    let number = numbers.kernels(pid);
    number.map_err(kernel("find the process in the initial PID namespace"))
}

impl Kernel {
    /// Watches a process: its threads are metered from now on, and those it makes.
    pub fn watch(&mut self, pid: u32) -> Result<(), WatchError> {
        let Some(number) = kernels_number(&self.numbers, pid)? else {
            return Ok(()); // it has ended
        };
        let processes = map_of(&self.object, "processes");
        let key = number.to_ne_bytes();
        if processes
            .lookup(&key, MapFlags::ANY)
            .ok()
            .flatten()
            .is_some()
        {
            return Ok(());
        }
        processes
            .update(
                &key,
                shared::process::default().as_bytes(),
                MapFlags::NO_EXIST,
            )
            .map_err(|_| WatchError::TooMany)?;
        self.watched.add(number, 1);
        // Reading the iterator runs its program over all tasks; it has no text to give.
        let mut text = Vec::new();
        Iter::new(&self.take_in)
            .map_err(kernel("open the iterator over tasks"))?
            .read_to_end(&mut text)
            .map_err(|e| kernel("find its threads")(e.into()))?;
        self.answers
            .as_ref()
            .map_or(Ok(()), Answers::take_in_listeners)
    }

    /// Stops watching it; what its threads cost afterwards is one load at each switch.
    pub fn unwatch(&mut self, pid: u32) {
        // One that has ended is watched no more.
        if let Ok(Some(number)) = kernels_number(&self.numbers, pid)
            && map_of(&self.object, "processes")
                .delete(&number.to_ne_bytes())
                .is_ok()
        {
            self.watched.add(number, -1);
        }
        self.sdk_meters.take_back(pid);
    }

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
