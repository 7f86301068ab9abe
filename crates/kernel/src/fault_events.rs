//! The last resort for page faults: the software event that fires when a fault has been handled.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use libbpf_rs::{Link, Object, ProgramMut};
use perf_event_open_sys as perf;

use crate::load_error::{LoadError, kernel};
use crate::object::program;

/// Attaches an object's programs for it: to the exceptions' tracepoints, and to the events.
pub(crate) fn attach(object: &mut Object) -> Result<Vec<Link>, LoadError> {
    let mut links = Vec::new();
    for tracepoint in ["page_fault_user", "page_fault_kernel"] {
        links.push(
            program(object, "on_fault_exception")
                .attach_raw_tracepoint(tracepoint)
                .map_err(kernel("attach to page faults"))?,
        );
    }
    let ends = at_ends(&program(object, "on_fault_event"));
    links.extend(ends.map_err(|source| LoadError::System {
        what: "count page faults",
        source,
    })?);
    Ok(links)
}

/// Runs `program` at the end of each page fault, minor or major, on every CPU.
fn at_ends(program: &ProgramMut<'_>) -> io::Result<Vec<Link>> {
    let mut links = Vec::new();
    let cpus = libbpf_rs::num_possible_cpus().map_err(io::Error::other)?;
    for cpu in 0..cpus as i32 {
        for event in [
            perf::bindings::PERF_COUNT_SW_PAGE_FAULTS_MIN,
            perf::bindings::PERF_COUNT_SW_PAGE_FAULTS_MAJ,
        ] {
            let Some(event) = open(cpu, u64::from(event))? else {
                continue; // a CPU that could be there and isn't
            };
            let link = program
                .attach_perf_event(event.as_raw_fd())
                .map_err(io::Error::other)?;
            std::mem::forget(event); // the link closes it
            links.push(link);
        }
    }
    Ok(links)
}

fn open(cpu: i32, event: u64) -> io::Result<Option<OwnedFd>> {
    let mut attributes = perf::bindings::perf_event_attr {
        size: size_of::<perf::bindings::perf_event_attr>() as u32,
        type_: perf::bindings::PERF_TYPE_SOFTWARE,
        config: event,
        ..Default::default()
    };
    attributes.__bindgen_anon_1.sample_period = 1;
    // SAFETY: the attributes are a valid structure of the size that they name; the call returns
    // a fresh descriptor or an error.
    let fd = unsafe {
        perf::perf_event_open(
            &mut attributes,
            -1,
            cpu,
            -1,
            perf::bindings::PERF_FLAG_FD_CLOEXEC.into(),
        )
    };
    if fd >= 0 {
        // SAFETY: just opened, and ours.
        return Ok(Some(unsafe { OwnedFd::from_raw_fd(fd) }));
    }
    match io::Error::last_os_error() {
        e if e.raw_os_error() == Some(libc::ENODEV) => Ok(None),
        e => Err(e),
    }
}
