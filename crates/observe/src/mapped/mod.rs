//! What a process has mapped: programs and libraries with their symbols and lines, and its table of
//! places.

mod code;
pub(crate) mod lines;
pub(crate) mod maps;
mod places;
pub(crate) mod symbol;

pub use code::Functions;
pub use places::Places;
pub(crate) use places::method;
