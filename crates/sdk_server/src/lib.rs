//! The recorder's side of the SDK: programs that mark their spans themselves (`sdk/`).
//!
//! [`Server`] is the same for a recording and for a timeline. A process with the SDK passes through
//! these steps:
//!
//! 1. The [`finder`] reads the files whose code a watched process has mapped. If a file has the SDK's
//!    probe, the eBPF programs attach to it, which tells the SDK that a recorder is here. Processes of a
//!    [program](programs) that was searched just now are searched later.
//! 2. The SDK connects to a socket ([`sockets`]). The process is known by its peer credentials.
//! 3. If the process is watched and its user's [`admission`] allows it, the server sends two
//!    descriptors: the process's map of meters, and the [`region`] for its rows.
//! 4. The server drains the rows into a [`Sink`], and writes a heartbeat into each region.
//!
//! The connection stays open. Its end tells the process that the recorder is gone.

pub mod finder;
pub mod region;
pub mod sockets;

mod admission;
mod client;
mod inspected;
mod losses;
mod problems;
mod programs;
mod server;
mod waiting;

pub use client::Sink;
pub use losses::Losses;
pub use server::{Execs, Server};
pub use tailscope_symbols::sdk::Address;
