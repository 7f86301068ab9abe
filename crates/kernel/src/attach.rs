//! Attaching the programs that were loaded.

use libbpf_rs::{Link, Object};

use crate::load::{LoadError, kernel, program};
use crate::select::FaultRung;
use crate::{Ladder, fault_events};

/// Hard interrupts: each kind has its own pair of tracepoints, and not every machine all kinds.
pub(crate) const INTERRUPTS: &[&str] = &[
    "irq_handler",
    "local_timer",
    "reschedule",
    "call_function",
    "call_function_single",
    "irq_work",
    "x86_platform_ipi",
    "thermal_apic",
    "threshold_apic",
    "deferred_error_apic",
    "error_apic",
    "spurious_apic",
];

/// Attaches what says in its section where it belongs.
pub(crate) fn attach_traced(object: &mut Object) -> Result<Vec<Link>, LoadError> {
    let mut links = Vec::new();
    for program in object.progs_mut() {
        let section = program.section().to_string_lossy().into_owned();
        let traced = ["tp_btf/", "fentry/", "fexit/", "kprobe/", "kretprobe/"];
        if traced.iter().any(|kind| section.starts_with(kind)) && program.autoload() {
            links.push(program.attach().map_err(kernel("attach a program"))?);
        }
    }
    Ok(links)
}

/// Attaches everything; what can't be attached and need not be is said in the ladder.
pub(crate) fn attach(
    object: &mut Object,
    faults: FaultRung,
    ladder: &mut Ladder,
) -> Result<Vec<Link>, LoadError> {
    let mut links = attach_traced(object)?;
    let mut kinds = Vec::new();
    for kind in INTERRUPTS {
        let entry = program(object, "on_irq_entry").attach_raw_tracepoint(format!("{kind}_entry"));
        let on_exit = match *kind {
            "irq_handler" => "on_irq_exit",
            _ => "on_vector_exit",
        };
        let exit = program(object, on_exit).attach_raw_tracepoint(format!("{kind}_exit"));
        if let (Ok(entry), Ok(exit)) = (entry, exit) {
            links.extend([exit, entry]);
            kinds.push(*kind);
        }
    }
    match kinds.as_slice() {
        [] => ladder.set("irq", None, "no interrupt tracepoint could be attached"),
        // Where there are no vectors, as on arm64, every interrupt has a handler.
        ["irq_handler"] => ladder.set("irq", Some("irq tracepoints"), ""),
        _ => ladder.set("irq", Some("irq and irq_vectors tracepoints"), ""),
    }
    if faults == FaultRung::Exception {
        links.extend(fault_events::attach(object)?);
    }
    Ok(links)
}
