//! The eBPF programs that keep the meters of watched threads, and their loading.
//!
//! [`timeline`] loads programs of another kind, which write what happens as events. [`hazard`] loads
//! those that keep the hazard words of replicas.
//!
//! The programs are in `src/bpf/`, one family a file. [`Kernel::load`] finds out what this kernel
//! offers, takes the best mechanism for each measurement, and says which. All
//! kernel objects are owned by the value it returns: nothing is pinned, so nothing outlives it,
//! however the process ends.
//!
//! # Time off the CPU
//!
//! `src/bpf/sched.h` charges it. A runnable thread that leaves its CPU is `preempted`. For a thread
//! that blocks, the first match decides (`blocked.h`): stopped, contended kernel lock, I/O wait,
//! memory stall (`reclaim`), system call (`syscalls.rs`). Outside system calls, as in a page fault,
//! an uninterruptible block is `io`.
//!
//! The wakeup charges the block and starts `runqueue`. The switch-in charges the wait in three
//! parts: `throttled`, interrupts and softirqs that had the CPU, and the rest as `runqueue` or
//! `preempted`.
//! Some kernels hide a switch-in from tracing. Then the scheduler's count of run time gives the
//! wait, and `ledger.json` counts it under `adjusted` as `switches`.

mod answers;
mod attach;
mod blame;
mod calibrate;
mod config;
pub mod cost;
mod fault_events;
pub mod hazard;
mod hook_list;
pub mod jvm_probes;
mod load;
mod load_error;
mod losses;
mod mechanism;
mod meter_maps;
mod object;
mod open;
mod pid_namespace;
mod privilege;
mod probes;
mod process_events;
mod retention;
mod running;
pub mod scheduling;
mod sdk;
mod sdk_files;
mod select;
mod shared;
mod socket_hooks;
mod software_event;
mod stacks;
mod syscalls;
pub mod timeline;
mod tls_calls;
mod uprobes;
mod watch;
mod watch_error;
mod watched;

pub use blame::{BY_INTERRUPT, Names, is_thread, softirq, vector};
pub use config::{Config, SocketSpans};
pub use hook_list::{Hook, HookPlace};
pub use load::{Ended, Kernel};
pub use load_error::{LoadError, Missing, NamespaceError};
pub use losses::{Losses, Uncovered};
pub use mechanism::{Measurement, Mechanism, Mechanisms};
pub use pid_namespace::PidNamespace;
pub use privilege::{
    Also, drop_all_capabilities, drop_capabilities, drop_capabilities_but_reading,
    missing_capabilities,
};
pub use probes::{Edge, MAX_PROBE_SOURCES, Probe, ProbeError, Spot};
pub use process_events::Event;
pub use retention::Source;
pub use running::{Running, Thread};
pub use sdk::SdkPrograms;
pub use sdk_files::SdkFileError;
pub use shared::python as PythonFrames;
pub use stacks::{PythonFrame, Registers, StackSample};
pub use tls_calls::TlsCall;
pub use watch_error::WatchError;
