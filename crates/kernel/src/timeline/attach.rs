//! Attaching the timeline's programs.

use libbpf_rs::{Link, Object};

use crate::attach::{INTERRUPTS, attach_traced};
use crate::load::{LoadError, program};
use crate::select::FaultHook;
use crate::{Measurement, Mechanisms, fault_events};

pub(super) fn attach(
    object: &mut Object,
    faults: FaultHook,
    mechanisms: &mut Mechanisms,
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
        mechanisms.set(
            Measurement::Irq,
            None,
            "no tracepoint of an interrupt could be attached to",
        );
    } else {
        mechanisms.set(Measurement::Irq, Some("irq and irq_vectors tracepoints"), "");
    }
    if faults == FaultHook::Exception {
        links.extend(fault_events::attach(object)?);
    }
    Ok(links)
}
