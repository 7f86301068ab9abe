//! The capabilities that loading the programs needs, and the fewer that a running recorder keeps.

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs,
};

use crate::load_error::{LoadError, Missing};
use crate::uprobes::uprobes_need_admin;

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

/// What a running recorder does that needs a capability beyond [`RUNNING`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Also {
    /// It ends a command that it started. The command may run as another user by then.
    EndCommand,
    /// It attaches to probes in files that are mapped later, as programs with the SDK do.
    AttachProbes,
    /// It writes results to a folder that another user owns.
    WriteAnywhere,
}

impl Also {
    fn needs(self) -> CapabilitySet {
        match self {
            Self::EndCommand => CapabilitySet::KILL,
            Self::AttachProbes if uprobes_need_admin() => CapabilitySet::SYS_ADMIN,
            Self::AttachProbes => CapabilitySet::empty(),
            Self::WriteAnywhere => CapabilitySet::DAC_OVERRIDE,
        }
    }
}

/// What every running recorder needs:
///
/// - `CAP_BPF`: a map of meters for each process with the SDK that starts later;
/// - `CAP_PERFMON`: probes in files that are mapped later (before Linux 6.6: [`Also::AttachProbes`]);
/// - `CAP_SYS_PTRACE`: `/proc/PID/maps`, `root` and memory of other users' processes;
/// - `CAP_DAC_READ_SEARCH`: their programs, in folders that only they may read;
/// - `CAP_CHECKPOINT_RESTORE`: their programs after an upgrade (`/proc/PID/map_files`).
const RUNNING: CapabilitySet = CapabilitySet::BPF
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::SYS_PTRACE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::CHECKPOINT_RESTORE);

/// Whether this process lacks what the kernel asks for to attach to one more probe.
pub(crate) fn lacks_admin_for_uprobes() -> bool {
    let have = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
    !have.contains(CapabilitySet::SYS_ADMIN) && uprobes_need_admin()
}

/// Those of the capabilities in `have` that a running recorder keeps.
fn kept(have: CapabilitySet, also: &[Also]) -> CapabilitySet {
    let wanted = also
        .iter()
        .fold(RUNNING, |wanted, more| wanted.union(more.needs()));
    let kept = have & wanted;
    // Where it is not there by its own name, it came with this one.
    if kept.contains(CapabilitySet::BPF | CapabilitySet::PERFMON) {
        kept
    } else {
        kept | (have & CapabilitySet::SYS_ADMIN)
    }
}

/// Drops all capabilities that a running recorder does not need, for good: no program that this
/// thread executes gets more, not even as root.
///
/// `also`: what it does besides, each with whether it does. This affects the calling thread and the threads that it starts later. So call it after the
/// programs are loaded, and before threads are started.
///
/// # Errors
/// If the system refuses it.
pub fn drop_capabilities(also: impl IntoIterator<Item = (Also, bool)>) -> Result<(), LoadError> {
    let also: Vec<Also> = also
        .into_iter()
        .filter_map(|(also, needed)| needed.then_some(also))
        .collect();
    drop_all_but(|have| kept(have, &also))
}

/// Drops all capabilities of the calling thread, for good, except the one to read any file.
///
/// A thread that starts another program after this hands it no more: the program can read its own
/// files in folders that only their owner may enter.
///
/// # Errors
/// If the system refuses it.
pub fn drop_capabilities_but_reading() -> Result<(), LoadError> {
    drop_all_but(|have| have & CapabilitySet::DAC_READ_SEARCH)
}

/// Drops all capabilities of the calling thread, for good, and of threads that it starts later.
///
/// # Errors
/// If the system refuses it.
pub fn drop_all_capabilities() -> Result<(), LoadError> {
    drop_all_but(|_| CapabilitySet::empty())
}

fn drop_all_but(kept: impl FnOnce(CapabilitySet) -> CapabilitySet) -> Result<(), LoadError> {
    let system = |source: rustix::io::Errno| LoadError::System {
        what: "drop the capabilities that are not needed",
        source: source.into(),
    };
    let have = capabilities(None).map_err(system)?;
    let kept = kept(have.permitted);
    let left = CapabilitySets {
        effective: have.effective & kept,
        permitted: kept,
        inheritable: CapabilitySet::empty(),
    };
    // A service that began with no more may be forbidden the call (SystemCallFilter).
    if left != have {
        set_capabilities(None, left).map_err(system)?;
    }
    set_no_new_privs(true).map_err(system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_keeps_what_it_needs_and_gains_nothing() {
        let all = CapabilitySet::all();
        assert_eq!(kept(all, &[]), RUNNING);
        let command = kept(all, &[Also::EndCommand]);
        assert_eq!(command, RUNNING | CapabilitySet::KILL);
        let granted = CapabilitySet::BPF | CapabilitySet::PERFMON | CapabilitySet::SYS_PTRACE;
        assert_eq!(kept(granted, &[Also::EndCommand]), granted);
        assert_eq!(kept(CapabilitySet::empty(), &[]), CapabilitySet::empty());
    }

    #[test]
    fn an_administrator_without_the_newer_capabilities_stays_one() {
        let old = CapabilitySet::SYS_ADMIN | CapabilitySet::SYS_PTRACE | CapabilitySet::CHOWN;
        let left = CapabilitySet::SYS_ADMIN | CapabilitySet::SYS_PTRACE;
        assert_eq!(kept(old, &[]), left);
    }

    #[test]
    fn capabilities_are_gone_in_this_thread_and_in_those_that_it_starts() {
        let sets = || capabilities(None).expect("read");
        let before = sets();
        let (here, later) = std::thread::spawn(move || {
            drop_capabilities([]).expect("one may give up what one has");
            (sets(), std::thread::spawn(sets).join().expect("it ends"))
        })
        .join()
        .expect("it ends");
        assert_eq!(here.permitted, kept(before.permitted, &[]));
        assert_eq!(here.effective, later.effective);
        assert_eq!(here.permitted, later.permitted);
        assert_eq!(sets().permitted, before.permitted);
    }
}
