//! Attaching to the timer's interrupts, which show where threads spend their time.

use libbpf_rs::btf::Btf;
use libbpf_rs::{Link, Object};

use crate::hook_list::{Hook, HookPlace};
use crate::object::program;
use crate::select::has_tracepoint;
use crate::{Measurement, Mechanisms};

const PROGRAM: &str = "on_tick";
/// Where the kernel reports the timer's interrupt: on x86 only, and not where a hypervisor has a timer
/// of its own for its guests.
const TRACEPOINT: &str = "local_timer_entry";

/// The program and its place, if this kernel has that.
pub(super) fn hook(btf: &Btf<'_>) -> Option<Hook> {
    has_tracepoint(btf, TRACEPOINT).then(|| Hook {
        program: PROGRAM.to_owned(),
        place: HookPlace::Tracepoint(TRACEPOINT.to_owned()),
    })
}

/// Attaches the program; where that fails, no function has a name.
pub(super) fn attach(object: &mut Object, mechanisms: &mut Mechanisms) -> Option<Link> {
    let link = program(object, PROGRAM).attach_raw_tracepoint(TRACEPOINT);
    let (hook, why) = match &link {
        Ok(_) => (Some("irq_vectors tracepoint"), String::new()),
        Err(e) => (None, format!("{TRACEPOINT}: {e}")),
    };
    mechanisms.set(Measurement::Tick, hook, why);
    link.ok()
}
