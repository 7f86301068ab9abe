//! Where recorders can listen.

mod abi;
mod channels;
mod chunks;
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
pub(crate) use probe::{is_heard, is_heard_by};
pub(crate) use rows::{begin, begin_both, end, end_both};
pub(crate) use thread::Reading;
