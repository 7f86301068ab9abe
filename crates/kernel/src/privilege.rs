//! What the programs need of the person who loads them.

use rustix::thread::{CapabilitySet, capabilities};

/// A capability that is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// Its name, as `capabilities(7)` has it.
    pub name: &'static str,
    /// What for.
    pub purpose: &'static str,
}

/// The capabilities that recording needs and this process lacks.
#[must_use]
pub fn missing_capabilities() -> Vec<Missing> {
    let have = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
    let admin = have.contains(CapabilitySet::SYS_ADMIN);
    [
        (CapabilitySet::BPF, "CAP_BPF", "load eBPF programs", admin),
        (
            CapabilitySet::PERFMON,
            "CAP_PERFMON",
            "attach them to the kernel's tracepoints",
            admin,
        ),
        (
            CapabilitySet::SYS_PTRACE,
            "CAP_SYS_PTRACE",
            "see other users' processes",
            false,
        ),
    ]
    .into_iter()
    .filter(|(capability, _, _, covered)| !have.contains(*capability) && !covered)
    .map(|(_, name, purpose, _)| Missing { name, purpose })
    .collect()
}
