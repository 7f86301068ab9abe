//! What can be read in nanoseconds: the clock, the meters of threads, and the rows of spans that
//! measured processes leave in shared memory.
//!
//! Everything here is memory that somebody else writes at the same time. The layout is described
//! once, in `sdk/c/tailscope_abi.h` ([`abi`] is generated from it) and, for the timeline's events, in
//! `include/tailscope_event.h`, for slices in `include/tailscope_slice.h`. The word that says what
//! keeps a server's replica from answering is in `include/tailscope_hazard.h`.

pub mod abi;
pub mod clock;
pub mod cut_short;
pub mod event;
pub mod event_ring;
pub mod hazard;
pub mod little_endian;
pub mod mapping;
pub mod meters;
pub mod patience;
pub mod preempted;
pub mod remote;
pub mod retention;
pub mod ring;
pub mod row;
pub mod slice;
pub mod view;
