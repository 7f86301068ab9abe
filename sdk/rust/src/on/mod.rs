//! Where recorders can listen.

mod abi;
mod channels;
mod clock;
mod counters;
mod guard;
#[cfg(test)]
mod layout;
mod names;
mod perf;
mod probe;
mod process;
mod rows;
mod sys;
mod thread;
mod turns;

pub(crate) use channels::{Kind, open_channel};
pub(crate) use probe::is_heard;
pub(crate) use rows::{begin, end};
pub(crate) use thread::Reading;
