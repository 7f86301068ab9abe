//! Software events of perf on every CPU, each with a BPF program that runs when it fires.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use libbpf_rs::{Link, ProgramMut};
use perf_event_open_sys as perf;

/// An event, and how often it fires.
#[derive(Clone, Copy)]
pub(crate) struct SoftwareEvent {
    /// `PERF_COUNT_SW_…`.
    pub event: u32,
    /// It fires once in this many: of ns for a clock, else of occurrences.
    pub period: u64,
    /// Whether it counts while the CPU is idle, too.
    pub idle: bool,
}

impl SoftwareEvent {
    /// Runs a program at an event of every CPU that is there. It counts for all threads, so it
    /// needs no descriptor for each of them.
    ///
    /// # Errors
    /// If the kernel refuses the event, or the program for it.
    pub(crate) fn attach(self, program: &ProgramMut<'_>) -> io::Result<Vec<Link>> {
        let mut links = Vec::new();
        let cpus = libbpf_rs::num_possible_cpus().map_err(io::Error::other)?;
        for cpu in 0..cpus as i32 {
            let Some(event) = self.open(cpu)? else {
                continue; // a CPU that could be there and isn't
            };
            let link = program
                .attach_perf_event(event.as_raw_fd())
                .map_err(io::Error::other)?;
            std::mem::forget(event); // the link closes it
            links.push(link);
        }
        Ok(links)
    }

    /// `None`: there is no such CPU.
    fn open(self, cpu: i32) -> io::Result<Option<OwnedFd>> {
        let mut attributes = perf::bindings::perf_event_attr {
            size: size_of::<perf::bindings::perf_event_attr>() as u32,
            type_: perf::bindings::PERF_TYPE_SOFTWARE,
            config: u64::from(self.event),
            ..Default::default()
        };
        attributes.__bindgen_anon_1.sample_period = self.period;
        attributes.set_exclude_idle(u64::from(!self.idle));
        let flags = perf::bindings::PERF_FLAG_FD_CLOEXEC.into();
        // SAFETY: the attributes are a valid structure of the size that they name; the call returns
        // a fresh descriptor or an error.
        let fd = unsafe { perf::perf_event_open(&mut attributes, -1, cpu, -1, flags) };
        if fd >= 0 {
            // SAFETY: it was just opened, and nobody else has it.
            return Ok(Some(unsafe { OwnedFd::from_raw_fd(fd) }));
        }
        match io::Error::last_os_error() {
            e if e.raw_os_error() == Some(libc::ENODEV) => Ok(None),
            e => Err(e),
        }
    }
}
