//! A cgroup with a CPU quota, in version 1 or 2, whichever has the CPU controller here.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::clock::Nanos;

/// Groups are named for the process that made them, so that a later run can tell which are stale.
const PREFIX: &str = "tailscope-lab-";

/// Where the CPU controller is: in version 1 a hierarchy of its own, in version 2 the only one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchy {
    root: PathBuf,
    version: Version,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

impl Hierarchy {
    fn find() -> anyhow::Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts").context("can't read the mounts")?;
        Self::among(&mounts).context(
            "this machine has no cgroup hierarchy with the CPU controller: \
             mount -t cgroup2 none /sys/fs/cgroup, or cgroup with -o cpu",
        )
    }

    /// Version 1 first: a controller that is mounted there is not to be had in version 2.
    fn among(mounts: &str) -> Option<Self> {
        let mut v2 = None;
        for mount in mounts.lines() {
            let mut fields = mount.split(' ').skip(1);
            let (root, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
            let root = PathBuf::from(root);
            if kind == "cgroup" && options.split(',').any(|option| option == "cpu") {
                return Some(Self {
                    root,
                    version: Version::V1,
                });
            }
            if kind == "cgroup2" && v2.is_none() {
                v2 = Some(Self {
                    root,
                    version: Version::V2,
                });
            }
        }
        v2
    }

    /// The group that a process is in now.
    pub fn group_of(&self, pid: u32) -> anyhow::Result<PathBuf> {
        let text = fs::read_to_string(format!("/proc/{pid}/cgroup"))
            .with_context(|| format!("no process {pid}"))?;
        let path = self.line_of(&text).context("the process is in no group")?;
        Ok(self.root.join(path.trim_start_matches('/')))
    }

    /// From lines of `number:controllers:path`.
    fn line_of<'a>(&self, text: &'a str) -> Option<&'a str> {
        text.lines().find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            let mine = match self.version {
                Version::V1 => controllers.split(',').any(|name| name == "cpu"),
                Version::V2 => controllers.is_empty(),
            };
            mine.then_some(path)
        })
    }

    pub fn put(&self, pid: u32, group: &Path) -> anyhow::Result<()> {
        fs::write(group.join("cgroup.procs"), pid.to_string())
            .with_context(|| format!("can't put process {pid} into {}", group.display()))
    }
}

/// A group with a quota, removed when dropped.
pub struct Group {
    pub hierarchy: Hierarchy,
    pub path: PathBuf,
}

impl Group {
    pub fn create(quota_us: u64, period_us: u64) -> anyhow::Result<Self> {
        let hierarchy = Hierarchy::find()?;
        sweep(&hierarchy.root);
        if hierarchy.version == Version::V2 {
            fs::write(hierarchy.root.join("cgroup.subtree_control"), "+cpu").with_context(
                || {
                    format!(
                        "can't give the CPU controller to groups in {}",
                        hierarchy.root.display()
                    )
                },
            )?;
        }
        let path = hierarchy
            .root
            .join(format!("{PREFIX}{}", std::process::id()));
        fs::create_dir(&path)
            .with_context(|| format!("can't make the group {}: are you root?", path.display()))?;
        let group = Self { hierarchy, path };
        // The most weight that there is: within its quota nobody else keeps it from its CPU.
        match group.hierarchy.version {
            Version::V1 => {
                group.write("cpu.shares", "262144")?;
                group.write("cpu.cfs_period_us", &period_us.to_string())?;
                group.write("cpu.cfs_quota_us", &quota_us.to_string())?;
            }
            Version::V2 => {
                group.write("cpu.weight", "10000")?;
                group.write("cpu.max", &format!("{quota_us} {period_us}"))?;
            }
        }
        Ok(group)
    }

    fn write(&self, file: &str, value: &str) -> anyhow::Result<()> {
        fs::write(self.path.join(file), value)
            .with_context(|| format!("can't set {file} of {} to {value}", self.path.display()))
    }

    /// What the kernel counted: a person wants to know whether the quota bit.
    pub fn throttling(&self) -> String {
        let stat = fs::read_to_string(self.path.join("cpu.stat")).unwrap_or_default();
        let number = |name: &str| {
            stat.lines()
                .find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
        };
        let throttled = number("throttled_time ")
            .or_else(|| number("throttled_usec ").map(|us| us * 1000))
            .unwrap_or(0);
        format!(
            "throttled in {} of {} periods, for {} in all",
            number("nr_throttled ").unwrap_or(0),
            number("nr_periods ").unwrap_or(0),
            Nanos(throttled)
        )
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // What the command left behind goes on without the quota.
        for pid in fs::read_to_string(self.path.join("cgroup.procs"))
            .unwrap_or_default()
            .lines()
        {
            let _ = fs::write(self.hierarchy.root.join("cgroup.procs"), pid);
        }
        if let Err(error) = fs::remove_dir(&self.path) {
            eprintln!(
                "tailscope-lab: can't remove {}: {error}",
                self.path.display()
            );
        }
    }
}

/// Removes the empty groups of earlier runs that were killed.
fn sweep(root: &Path) {
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name
            .to_str()
            .and_then(|name| name.strip_prefix(PREFIX)?.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            // Refused, rightly, while processes are in it.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_controller_is_found_in_either_version() {
        let v1 = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
                  cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0\n\
                  cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0\n\
                  cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0\n";
        let found = Hierarchy::among(v1).expect("a hierarchy");
        assert_eq!(found.root, Path::new("/sys/fs/cgroup/cpu,cpuacct"));
        assert_eq!(found.version, Version::V1);
        let v2 = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n";
        assert_eq!(
            Hierarchy::among(v2).expect("a hierarchy").version,
            Version::V2
        );
        assert_eq!(Hierarchy::among("proc /proc proc rw 0 0\n"), None);
    }

    #[test]
    fn a_process_is_found_in_its_group() {
        let hierarchy = |version| Hierarchy {
            root: "/sys/fs/cgroup".into(),
            version,
        };
        let text = "4:cpuset:/a\n3:cpu,cpuacct:/b\n0::/c\n";
        assert_eq!(hierarchy(Version::V1).line_of(text), Some("/b"));
        assert_eq!(hierarchy(Version::V2).line_of(text), Some("/c"));
    }
}
