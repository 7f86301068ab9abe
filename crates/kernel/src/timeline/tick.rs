//! Attaching to the timer's interrupts, which show where threads spend their time.

use libbpf_rs::{Link, Object};

use crate::object::program;
use crate::{Measurement, Mechanisms};

/// Where the kernel tells of the timer's interrupt: on x86 only.
const TRACEPOINT: &str = "local_timer_entry";

/// Attaches the program at ticks; nothing where there is no such tracepoint.
pub(super) fn attach(object: &mut Object, mechanisms: &mut Mechanisms) -> Option<Link> {
    let link = program(object, "on_tick").attach_raw_tracepoint(TRACEPOINT);
    let (hook, why) = match &link {
        Ok(_) => (Some("irq_vectors tracepoint"), ""),
        Err(_) => (None, "no tracepoint of the timer's interrupt"),
    };
    mechanisms.set(Measurement::Tick, hook, why);
    link.ok()
}
