//! The eBPF programs that keep the meters of watched threads, and their loading.
//!
//! [`timeline`] loads programs of another kind, which write what happens as events.
//!
//! The programs are in `src/bpf/`, one family a file. [`Kernel::load`] finds out what this kernel
//! offers, takes the best rung of the ladder for each measurement, and says which it took. All
//! kernel objects are owned by the value it returns: nothing is pinned, so nothing outlives it,
//! however the process ends.

mod answers;
mod attach;
mod calibrate;
mod config;
mod culprits;
mod fault_events;
mod keeping;
mod ladder;
mod load;
mod losses;
mod meter_maps;
mod news;
mod pid_namespace;
mod privilege;
mod probes;
mod running;
mod sdk_files;
mod select;
mod shared;
mod socket_rung;
mod syscalls;
pub mod timeline;
mod watch;

pub use config::{Config, SocketSpans};
pub use culprits::{Names, softirq, vector};
pub use keeping::Source;
pub use ladder::{Ladder, Rung};
pub use load::{Ended, Kernel, LoadError};
pub use losses::{Losses, Uncovered};
pub use news::Event;
pub use pid_namespace::{NamespaceError, PidNamespace};
pub use privilege::{Also, Missing, drop_capabilities, missing_capabilities};
pub use probes::{Edge, MAX_PROBE_SOURCES, Probe, ProbeError, Spot};
pub use running::{Running, Thread};
pub use sdk_files::SdkFileError;
pub use watch::WatchError;
