//! What a borrower asks its keeper for.

use serde::{Deserialize, Serialize};

use crate::message::Pace;

/// What is to be lent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Who lends: this process.
    pub borrower: u32,
    /// The server's processes; the first is the one that was named.
    pub server: Vec<u32>,
    /// The CPUs that are lent; `None`: those that the server may run on.
    pub cpus: Option<Vec<u32>>,
    /// How much at first.
    pub pace: Pace,
    /// Whether the batch prints to stderr: stdout is for the report.
    pub output_to_stderr: bool,
}
