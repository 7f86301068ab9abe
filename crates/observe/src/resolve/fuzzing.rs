//! What `make fuzz` calls: a parser of foreign bytes that nobody else needs.

use super::hsperf;

/// HotSpot's counters.
pub fn hsperfdata(bytes: &[u8]) {
    let _ = hsperf::described(bytes);
}
