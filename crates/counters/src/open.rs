//! Opening events for this thread, and reading them where they are.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, compiler_fence};

use perf_event_open_sys as perf;
use perf_event_open_sys::bindings::perf_event_mmap_page as Page;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use tailscope_signals::abi;

use crate::page::{Reading, extended};
use crate::register;

/// Why an event can't be counted here.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The kernel.
    #[error("the kernel refused: {0}{remedy}", remedy = remedy(.0))]
    Kernel(io::Error),
    /// It counts, but user space may not read it.
    #[error("user space may not read counters; to allow it: {NOT_READABLE}")]
    NotReadable,
    /// It was never on the CPU: others have all counters, or so many at a time can't be.
    #[error("all counters of the CPU were in use")]
    Crowded,
}

#[cfg(target_arch = "aarch64")]
const NOT_READABLE: &str = "sysctl kernel.perf_user_access=1";
#[cfg(not(target_arch = "aarch64"))]
const NOT_READABLE: &str = "echo 1 >/sys/bus/event_source/devices/cpu/rdpmc";

fn remedy(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            "; to allow it to users other than root: sysctl kernel.perf_event_paranoid=2"
        }
        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV) => {
            "; this machine has no such counter, like most virtual machines"
        }
        _ => "",
    }
}

/// An event that counts what this thread executes in user space.
#[derive(Debug)]
pub struct Counter {
    page: NonNull<Page>,
    /// Kept, so that more can join its group.
    fd: OwnedFd,
}

/// What a thread executes in user space; nothing of the kernel's or a hypervisor's.
pub(super) fn in_user_space(kind: u32, config: [u64; 3]) -> perf::bindings::perf_event_attr {
    let mut attributes = perf::bindings::perf_event_attr {
        size: size_of::<perf::bindings::perf_event_attr>() as u32,
        type_: kind,
        config: config[0],
        ..Default::default()
    };
    attributes.__bindgen_anon_3.config1 = config[1];
    attributes.__bindgen_anon_4.config2 = config[2];
    attributes.set_exclude_kernel(1);
    attributes.set_exclude_hv(1);
    attributes
}

/// Opens an event for a thread, wherever it runs; 0 is the calling one.
pub(super) fn open(
    mut attributes: perf::bindings::perf_event_attr,
    tid: libc::pid_t,
    leader: Option<&OwnedFd>,
) -> io::Result<OwnedFd> {
    // SAFETY: the attributes are a valid structure of the size that they name; the call
    // returns a fresh descriptor or an error.
    let fd = unsafe {
        perf::perf_event_open(
            &mut attributes,
            tid,
            -1,
            leader.map_or(-1, AsRawFd::as_raw_fd),
            perf::bindings::PERF_FLAG_FD_CLOEXEC.into(),
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just opened, and ours.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

const PAGE_BYTES: usize = 4096; // the kernel maps whole pages of its own size

impl Counter {
    /// Opens an event for the calling thread, in the group of `leader`. A leader counts from
    /// [`Counter::start`] on, and so do those of its group.
    ///
    /// # Errors
    /// The kernel's: `ENOENT` and `EOPNOTSUPP` where there is no such counter, `EACCES` where it
    /// is not allowed, `EINVAL` where the group does not fit.
    pub fn open(event: &abi::ts_event, leader: Option<&Counter>) -> io::Result<Self> {
        let config = [event.config, event.config1, event.config2];
        let mut attributes = in_user_space(event.type_, config);
        attributes.set_disabled(leader.is_none().into());
        let fd = open(attributes, 0, leader.map(|leader| &leader.fd))?;
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing of ours.
        let page = unsafe {
            mmap(
                ptr::null_mut(),
                PAGE_BYTES,
                ProtFlags::READ,
                MapFlags::SHARED,
                &fd,
                0,
            )?
        };
        let page = NonNull::new(page.cast()).ok_or_else(|| io::Error::other("mapped at null"))?;
        Ok(Self { page, fd })
    }

    /// Puts the group that this one leads on the CPU.
    pub fn start(&self) -> io::Result<()> {
        // SAFETY: a perf event's descriptor; the argument is a number.
        let done = unsafe {
            perf::ioctls::ENABLE(self.fd.as_raw_fd(), perf::bindings::PERF_IOC_FLAG_GROUP)
        };
        if done < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Whether user space is let read it.
    fn is_readable(&self) -> bool {
        // SAFETY: mapped for as long as `self` lives; the word is read whole.
        let capabilities = unsafe {
            AtomicU64::from_ptr(&raw mut (*self.page.as_ptr()).__bindgen_anon_1.capabilities)
                .load(Relaxed)
        };
        const USER_RDPMC: u64 = 1 << 2;
        capabilities & USER_RDPMC != 0
    }

    /// The count now. Only for the thread that opened it; it is not `Send`.
    #[must_use]
    pub fn read(&self) -> Reading {
        let page = self.page.as_ptr();
        // SAFETY: all of these are words of the page, which is mapped for as long as `self` lives
        // and which the kernel writes meanwhile.
        let (lock, index, width, offset, enabled, running) = unsafe {
            (
                AtomicU32::from_ptr(&raw mut (*page).lock),
                AtomicU32::from_ptr(&raw mut (*page).index),
                AtomicU16::from_ptr(&raw mut (*page).pmc_width),
                AtomicU64::from_ptr((&raw mut (*page).offset).cast()),
                AtomicU64::from_ptr(&raw mut (*page).time_enabled),
                AtomicU64::from_ptr(&raw mut (*page).time_running),
            )
        };
        loop {
            // The kernel writes only in between two instructions of this thread.
            let before = lock.load(Relaxed);
            compiler_fence(SeqCst);
            let mut reading = Reading {
                value: None,
                enabled_ns: enabled.load(Relaxed),
                running_ns: running.load(Relaxed),
            };
            if let Some(number) = index.load(Relaxed).checked_sub(1)
                && self.is_readable()
            {
                // SAFETY: the page of an event of this thread shows that it may be read.
                let register = unsafe { register::read(number) };
                let signed = extended(register, width.load(Relaxed));
                reading.value = Some(offset.load(Relaxed).wrapping_add(signed));
            }
            compiler_fence(SeqCst);
            if lock.load(Relaxed) == before {
                return reading;
            }
        }
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        // SAFETY: mapped by `open` with this length; no reference outlives `self`.
        // Unmapping can only fail for arguments that were never mapped.
        let _ = unsafe { munmap(self.page.as_ptr().cast(), PAGE_BYTES) };
    }
}

/// Whether these events can be counted here together, tried on the calling thread.
pub fn can_count(events: &[abi::ts_event]) -> Result<(), Refusal> {
    let mut group: Vec<Counter> = Vec::new();
    for event in events {
        let counter = Counter::open(event, group.first()).map_err(Refusal::Kernel)?;
        group.push(counter);
    }
    if let Some(leader) = group.first() {
        leader.start().map_err(Refusal::Kernel)?;
    }
    if !group.iter().all(Counter::is_readable) {
        return Err(Refusal::NotReadable);
    }
    // Others may have it for a moment: it takes turns with them.
    for _ in 0..20 {
        if group.iter().all(|counter| counter.read().value.is_some()) {
            return Ok(());
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    Err(if is_switched_off() {
        Refusal::NotReadable
    } else {
        Refusal::Crowded
    })
}

/// Whether the machine keeps user space from reading. On arm64 the page says that it may, and then
/// never shows a register.
fn is_switched_off() -> bool {
    let switch = std::fs::read_to_string("/proc/sys/kernel/perf_user_access");
    cfg!(target_arch = "aarch64") && switch.is_ok_and(|text| text.trim() == "0")
}
