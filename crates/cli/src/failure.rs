//! Exit codes: 0 done, 1 the answer is "no", 2 wrong usage, 3 this machine can't.

use std::fmt;

use anyhow::Error;

/// An error that says which exit code it deserves. What says nothing is 3.
#[derive(Debug)]
pub enum Failure {
    /// Something was asked that can't be: exit 2.
    Usage(String),
    /// This machine, kernel or user can't: exit 3.
    Machine(String),
}

impl Failure {
    /// The exit code of an error.
    pub fn code(error: &Error) -> u8 {
        match error.downcast_ref::<Self>() {
            Some(Self::Usage(_)) => 2,
            _ => 3,
        }
    }

    /// Wrong usage.
    pub fn usage(text: impl fmt::Display) -> Error {
        Self::Usage(text.to_string()).into()
    }

    /// This machine can't.
    pub fn machine(text: impl fmt::Display) -> Error {
        Self::Machine(text.to_string()).into()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(text) | Self::Machine(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Failure {}
