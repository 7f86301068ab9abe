//! Attaching the timeline's programs.

use libbpf_rs::{Link, Object};

use crate::attach::{INTERRUPTS, attach_traced};
use crate::load::{LoadError, program};
use crate::select::FaultRung;
use crate::{Ladder, fault_events};

pub(super) fn attach(
    object: &mut Object,
    faults: FaultRung,
    ladder: &mut Ladder,
) -> Result<Vec<Link>, LoadError> {
    let mut links = attach_traced(object)?;
    let before = links.len();
    for kind in INTERRUPTS {
        let (on_entry, on_exit) = match *kind {
            "irq_handler" => ("on_irq_entry", "on_irq_exit"),
            _ => ("on_vector_entry", "on_vector_exit"),
        };
        let entry = program(object, on_entry).attach_raw_tracepoint(format!("{kind}_entry"));
        let exit = program(object, on_exit).attach_raw_tracepoint(format!("{kind}_exit"));
        if let (Ok(entry), Ok(exit)) = (entry, exit) {
            links.extend([exit, entry]);
        }
    }
    if links.len() == before {
        ladder.set("irq", None, "no interrupt tracepoint could be attached");
    } else {
        ladder.set("irq", Some("irq and irq_vectors tracepoints"), "");
    }
    if faults == FaultRung::Exception {
        links.extend(fault_events::attach(object)?);
    }
    Ok(links)
}
