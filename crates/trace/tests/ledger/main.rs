//! Ledgers written and read through the public interface.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod checksum;
mod crash;
mod full_disk;
mod info;
mod refusal;
mod round_trip;
mod sample;
mod sealing;
mod tables;
