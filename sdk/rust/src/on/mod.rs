//! Where recorders can listen.

mod abi;
mod channels;
mod clock;
#[cfg(test)]
mod layout;
mod probe;
mod process;
mod rows;
mod sys;

pub(crate) use channels::{Kind, open_channel};
pub(crate) use probe::is_heard;
pub(crate) use rows::{Reading, begin, end};
