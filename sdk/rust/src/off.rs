//! Where none can: another system, another processor, or switched off.

/// There are none.
#[derive(Debug)]
pub(crate) enum Reading {}

#[inline(always)]
pub(crate) fn is_heard() -> bool {
    false
}

#[inline(always)]
pub(crate) fn begin() -> Option<Reading> {
    None
}

#[inline(always)]
pub(crate) fn end(reading: &Reading, _name: &'static str, _id: Option<i64>) {
    match *reading {}
}
