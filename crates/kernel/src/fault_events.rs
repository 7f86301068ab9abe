//! The last resort for page faults: the software event that fires when a fault has been handled.

use std::io;

use libbpf_rs::{Link, Object, ProgramMut};
use perf_event_open_sys::bindings::{PERF_COUNT_SW_PAGE_FAULTS_MAJ, PERF_COUNT_SW_PAGE_FAULTS_MIN};

use crate::load_error::{LoadError, kernel};
use crate::object::program;
use crate::software_event::SoftwareEvent;

/// The program at the exceptions, and their tracepoints.
pub(crate) const ON_EXCEPTION: &str = "on_fault_exception";
pub(crate) const EXCEPTIONS: &[&str] = &["page_fault_user", "page_fault_kernel"];
/// The program at the events.
pub(crate) const ON_EVENT: &str = "on_fault_event";

/// Attaches an object's programs for it: to the exceptions' tracepoints, and to the events.
pub(crate) fn attach(object: &mut Object) -> Result<Vec<Link>, LoadError> {
    let mut links = Vec::new();
    for tracepoint in EXCEPTIONS {
        links.push(
            program(object, ON_EXCEPTION)
                .attach_raw_tracepoint(tracepoint)
                .map_err(kernel("attach to page faults"))?,
        );
    }
    let ends = at_ends(&program(object, ON_EVENT));
    links.extend(ends.map_err(|source| LoadError::System {
        what: "count page faults",
        source,
    })?);
    Ok(links)
}

/// Runs `program` at the end of each page fault, minor or major, on every CPU.
fn at_ends(program: &ProgramMut<'_>) -> io::Result<Vec<Link>> {
    let mut links = Vec::new();
    for event in [PERF_COUNT_SW_PAGE_FAULTS_MIN, PERF_COUNT_SW_PAGE_FAULTS_MAJ] {
        let each = SoftwareEvent {
            event,
            period: 1,
            idle: true,
        };
        links.extend(each.attach(program)?);
    }
    Ok(links)
}
