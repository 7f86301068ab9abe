//! What is watched for hazards: the server that listens on an address, or processes by their ids.

use std::fs;
use std::net::SocketAddr;

use tailscope_process::owner;

use crate::listening::Machine;

/// A replica's processes, however they are named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Those that listen on this address.
    Address(SocketAddr),
    /// This one.
    Process(u32),
}

impl Target {
    /// Its processes now. `known`: those that it had and that still live. To search for a
    /// listening socket takes ms, so that is only done where none is known; those that are known
    /// may have started others of the same program.
    pub(crate) fn processes(&self, known: &[u32], machine: &Machine) -> Vec<u32> {
        match self {
            Self::Process(pid) if known.is_empty() => vec![*pid],
            Self::Process(_) => known.to_vec(),
            Self::Address(address) if known.is_empty() => machine.processes(*address),
            Self::Address(_) => with_workers(known),
        }
    }
}

/// The most processes of a replica that are watched.
const MOST: usize = 256;

/// These, and their children that run the same program: workers that came later.
fn with_workers(known: &[u32]) -> Vec<u32> {
    let mut all = known.to_vec();
    let mut at = 0;
    while at < all.len() && all.len() < MOST {
        let parent = all[at];
        at += 1;
        let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
        let children = children.unwrap_or_default(); // it has ended
        let program = owner::program_of(parent);
        for child in children.split_whitespace().filter_map(|w| w.parse().ok()) {
            if !all.contains(&child) && program.is_some() && owner::program_of(child) == program {
                all.push(child);
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn workers_that_came_later_are_found_by_their_program() {
        // A shell with another one as child, which has a child of another program.
        let script = "sh -c 'sleep 60 & wait' & wait";
        let mut shell = Command::new("sh")
            .args(["-c", script])
            .stdout(Stdio::null())
            .spawn()
            .expect("a shell");
        let found = (0..1000).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(5));
            let found = with_workers(&[shell.id()]);
            (found.len() == 2).then_some(found)
        });
        let ours: Vec<u32> = found.expect("the worker, and not what it started");
        for pid in ours.iter().rev() {
            let children = format!("/proc/{pid}/task/{pid}/children");
            let children = std::fs::read_to_string(children).unwrap_or_default();
            for child in children.split_whitespace() {
                let _ = Command::new("kill").arg(child).status();
            }
        }
        shell.kill().expect("it can be ended");
        shell.wait().expect("it ends");
    }
}
