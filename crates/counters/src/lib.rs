//! Hardware counters: events by the names that perf has for them, and their values, read by the
//! thread that they count for, without a system call.
//!
//! [`Event::parse`] makes of a name what the kernel wants to be told, from generic names, from the
//! PMUs that this machine shows in sysfs, or from raw numbers. [`Counter`] opens one for this
//! thread and reads it; [`ThreadCounter`] is one of another thread, read by a system call;
//! [`page`] is the arithmetic of a reading, on x86-64 (`rdpmc`) and arm64 (`mrs`) alike. The SDK has
//! the same in C (`sdk/c/tailscope_counters.h`), for it runs in other programs.

mod entries;
mod event;
mod generic;
pub mod known;
mod open;
pub mod page;
mod pmu;
mod register;
mod ring;
mod sampled;
mod thread;
mod user_sample;

pub use entries::{Entries, EntryCounter};
pub use event::{Event, EventError};
pub use open::{Counter, Refusal, can_count};
pub use pmu::{Pmu, Pmus};
pub use sampled::{Drained, SampledEvent, Sampling, Whose};
pub use thread::ThreadCounter;
pub use user_sample::{REGISTERS, ThreadSampler, ThreadSamples, UserSample, WATCHED, WatchHit};
