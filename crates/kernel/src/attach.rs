//! Attaching the programs that were loaded.

use libbpf_rs::{Link, Object};

use crate::load_error::{LoadError, kernel};
use crate::object::program;
use crate::select::FaultHook;
use crate::{Measurement, Mechanisms, fault_events};

/// Hard interrupts: each kind has its own pair of tracepoints, and not every machine all kinds.
const INTERRUPTS: &[&str] = &[
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

/// The programs at interrupts' entries and exits, each with its tracepoint; not every machine has all of
/// these. `vector_entry`: as for [`attach`].
pub(crate) fn interrupts(vector_entry: &str) -> impl Iterator<Item = (&str, String)> {
    INTERRUPTS.iter().flat_map(move |kind| {
        let (on_entry, on_exit) = match *kind {
            "irq_handler" => ("on_irq_entry", "on_irq_exit"),
            _ => (vector_entry, "on_vector_exit"),
        };
        [
            (on_entry, format!("{kind}_entry")),
            (on_exit, format!("{kind}_exit")),
        ]
    })
}

/// Attaches what says in its section where it belongs.
fn attach_traced(object: &mut Object) -> Result<Vec<Link>, LoadError> {
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

/// Attaches all programs. What can't be attached and need not be is in the mechanisms. `vector_entry`: the
/// program at the entry of an interrupt without a handler; `None` if interrupts are not recorded.
pub(crate) fn attach(
    object: &mut Object,
    vector_entry: Option<&str>,
    faults: FaultHook,
    mechanisms: &mut Mechanisms,
) -> Result<Vec<Link>, LoadError> {
    let mut links = attach_traced(object)?;
    if let Some(vector_entry) = vector_entry {
        links.extend(attach_to_interrupts(object, vector_entry, mechanisms));
    }
    if faults == FaultHook::Exception {
        links.extend(fault_events::attach(object)?);
    }
    Ok(links)
}

fn attach_to_interrupts(
    object: &mut Object,
    vector_entry: &str,
    mechanisms: &mut Mechanisms,
) -> Vec<Link> {
    let mut links = Vec::new();
    let mut kinds = Vec::new();
    let pairs: Vec<(&str, String)> = interrupts(vector_entry).collect();
    for (kind, pair) in INTERRUPTS.iter().zip(pairs.chunks(2)) {
        let mut link = |(name, tracepoint): &(&str, String)| {
            program(object, name).attach_raw_tracepoint(tracepoint)
        };
        if let [entry, exit] = pair
            && let (Ok(entry), Ok(exit)) = (link(entry), link(exit))
        {
            links.extend([exit, entry]);
            kinds.push(*kind);
        }
    }
    let (hook, why) = match kinds.as_slice() {
        [] => (None, "no interrupt tracepoint could be attached"),
        // Where there are no vectors, as on arm64, every interrupt has a handler.
        ["irq_handler"] => (Some("irq tracepoints"), ""),
        _ => (Some("irq and irq_vectors tracepoints"), ""),
    };
    mechanisms.set(Measurement::Irq, hook, why);
    links
}
