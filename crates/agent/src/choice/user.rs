//! Who started a process.

use std::fs;

use nix::unistd;
use serde::{Deserialize, Deserializer, de};

/// A user of this machine, whose name is looked up when the configuration is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct User(u32);

impl User {
    pub(super) fn number(&self) -> u32 {
        self.0
    }
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a user's name or number")]
enum Written {
    Number(u32),
    Name(String),
}

impl<'de> Deserialize<'de> for User {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = match Written::deserialize(from)? {
            Written::Number(number) => return Ok(Self(number)),
            Written::Name(name) => name,
        };
        match unistd::User::from_name(&name) {
            Ok(Some(user)) => Ok(Self(user.uid.as_raw())),
            Ok(None) => Err(de::Error::custom(format!(
                "this machine has no user '{name}'; check the name, or use the user's number"
            ))),
            Err(e) => Err(de::Error::custom(format!(
                "can't look up user '{name}': {e}; use the user's number"
            ))),
        }
    }
}

/// The user who started a process: its real number on the host. That of a program with the set-uid
/// bit is its caller's.
pub(super) fn of(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().next()?.parse().ok()
}
