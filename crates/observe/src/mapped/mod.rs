//! What a process has mapped: programs and libraries with their symbols and lines, and its table of
//! places.

mod code;
mod places;

pub use code::Functions;
pub use places::Places;
pub(crate) use places::method;
