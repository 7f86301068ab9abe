//! Which mechanisms of lending this machine and this user have, for `tailscope doctor`.

use std::fs;
use std::path::Path;

use rustix::fs::{Access, access};
use serde::Serialize;

use crate::hierarchies::{Hierarchies, has_smt};

/// One mechanism.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Available {
    /// What it is, in the terms of the kernel's documentation.
    pub name: &'static str,
    /// Whether `borrow` uses it here.
    pub used: bool,
    /// Why not, or what to know about it.
    pub why: String,
}

/// All mechanisms that `borrow` uses here or could use.
#[must_use]
pub fn available() -> Vec<Available> {
    vec![
        Available {
            name: "SCHED_IDLE",
            used: true,
            why: String::new(),
        },
        idle_group(&Hierarchies::here()),
        Available {
            name: "hyperthreads (SMT): core scheduling, sched_ext",
            used: false,
            why: format!(
                "not built; {}; {}",
                if has_smt() {
                    "this machine has them, so the batch shares cores with the server"
                } else {
                    "this machine has none, so nothing is missing"
                },
                if Path::new("/sys/kernel/sched_ext").exists() {
                    "this kernel has sched_ext"
                } else {
                    "this kernel has no sched_ext"
                }
            ),
        },
    ]
}

fn idle_group(on: &Hierarchies) -> Available {
    let enabled = |root: &Path| {
        fs::read_to_string(root.join("cgroup.subtree_control"))
            .is_ok_and(|text| text.split_whitespace().any(|name| name == "cpu"))
    };
    let unified = on.unified.as_deref().filter(|root| enabled(root));
    let v1 = (on.cpu.as_deref()).filter(|root| root.join("cpu.idle").exists());
    let (used, why) = match unified.or(v1) {
        Some(root) if access(root, Access::WRITE_OK).is_ok() => (
            true,
            format!("version {}", if unified.is_some() { 2 } else { 1 }),
        ),
        Some(root) => (false, format!("this user may not write to {}", root.display())),
        None => (
            false,
            "no mounted cgroup hierarchy has the CPU controller enabled at its root, or the kernel is \
             older than 5.15"
                .to_owned(),
        ),
    };
    Available {
        name: "cgroup with cpu.idle",
        used,
        why,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_group_needs_the_controller_where_it_would_be_made() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let on = Hierarchies {
            unified: Some(folder.path().to_owned()),
            ..Hierarchies::default()
        };
        assert!(!idle_group(&on).used);
        let control = folder.path().join("cgroup.subtree_control");
        fs::write(&control, "cpuset io\n").expect("written");
        assert!(!idle_group(&on).used);
        fs::write(&control, "cpuset cpu io\n").expect("written");
        assert!(idle_group(&on).used);
    }
}
