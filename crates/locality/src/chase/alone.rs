//! Values that share no cache line with others.

/// A value with its cache lines to itself.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Alone<T>(pub T);
