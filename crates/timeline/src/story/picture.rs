//! What a picture of a request's CPUs shows; [`picture`](crate::picture()) makes it.

use std::collections::BTreeMap;

use serde::Serialize;

/// An interval: its start in ns after the request's start, its length in ns, and what was there.
pub type Interval<T> = (i64, u64, T);

/// What a picture shows. Times are in ns after the request's start, below 0 for before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Picture {
    /// Where the picture starts.
    pub from_ns: i64,
    /// Where it ends.
    pub to_ns: i64,
    /// The threads that the story follows.
    pub threads: Vec<u32>,
    /// The CPUs, by their number.
    pub cpus: Vec<Lane>,
    /// Wake-ups of the story's threads: when, on which CPU, when the thread ran, and on which CPU.
    pub wake_ups: Vec<(i64, u32, i64, u32)>,
    /// The names of the threads in `cpus`.
    pub names: BTreeMap<u32, String>,
    /// Intervals and wake-ups that are left out: too short to be seen, or too many.
    pub left_out: u64,
}

/// One CPU.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Lane {
    /// Its number.
    pub cpu: u32,
    /// The threads that it ran. Between them it was idle.
    pub threads: Vec<Interval<u32>>,
    /// What ran on top of them, such as softirqs.
    pub on_top: Vec<Interval<String>>,
}
