//! Where cgroups are mounted, and whose CPU time a process shares.

use std::fs;
use std::path::{Path, PathBuf};

/// Where the cgroup hierarchies are mounted that matter here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hierarchies {
    /// Version 2.
    pub unified: Option<PathBuf>,
    /// Version 1 with the CPU controller.
    pub cpu: Option<PathBuf>,
    /// Version 1 with the freezer.
    pub freezer: Option<PathBuf>,
}

impl Hierarchies {
    /// Those of this machine, as this process sees them.
    #[must_use]
    pub fn here() -> Self {
        let mounts = fs::read_to_string("/proc/self/mountinfo");
        Self::among(&mounts.unwrap_or_default())
    }

    /// Of what `/proc/self/mountinfo` says. Of several mounts of one hierarchy the last counts: it may
    /// lie over the others.
    fn among(mounts: &str) -> Self {
        let mut found = Self::default();
        for mount in mounts.lines() {
            let Some((place, kind)) = mount.split_once(" - ") else {
                continue;
            };
            let Some(place) = place.split(' ').nth(4) else {
                continue;
            };
            let place = Some(PathBuf::from(place.replace("\\040", " ")));
            let mut kind = kind.splitn(3, ' ');
            let (name, options) = (kind.next(), kind.nth(1).unwrap_or_default());
            let has = |controller| options.split(',').any(|option| option == controller);
            match name {
                Some("cgroup2") => found.unified = place,
                Some("cgroup") if has("cpu") => found.cpu = place,
                Some("cgroup") if has("freezer") => found.freezer = place,
                _ => {}
            }
        }
        found
    }

    /// The group in whose CPU time a process shares, and whether that includes an autogroup.
    fn cpu_group(&self, pid: u32) -> Option<(String, Option<String>)> {
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
        let of = |wanted: &dyn Fn(&str) -> bool| {
            groups.lines().find_map(|line| {
                let mut fields = line.splitn(3, ':').skip(1);
                let (controllers, path) = (fields.next()?, fields.next()?);
                wanted(controllers).then(|| path.to_owned())
            })
        };
        let group = if self.cpu.is_some() {
            of(&|controllers| controllers.split(',').any(|name| name == "cpu"))?
        } else {
            let path = of(&|controllers| controllers.is_empty())?;
            let root = self.unified.as_deref().unwrap_or(Path::new("/"));
            // The CPU controller may be off this deep: the next group above that has it counts.
            let mut ancestors = Path::new(&path).ancestors();
            let has_cpu = |path: &&Path| {
                root.join(path.strip_prefix("/").unwrap_or(path))
                    .join("cpu.weight")
                    .exists()
            };
            let found = ancestors.find(has_cpu).unwrap_or(Path::new("/"));
            found.to_string_lossy().into_owned()
        };
        let enabled = fs::read_to_string("/proc/sys/kernel/sched_autogroup_enabled");
        let autogroup = (group == "/" && enabled.is_ok_and(|text| text.trim() == "1"))
            .then(|| fs::read_to_string(format!("/proc/{pid}/autogroup")).ok())
            .flatten()
            .and_then(|text| Some(text.split_whitespace().next()?.to_owned()));
        Some((group, autogroup))
    }

    /// Whether `SCHED_IDLE` alone keeps a process of `ours` below the server: only threads of one
    /// group, and of the groups below it, are compared by their own policy.
    pub(crate) fn policy_suffices(&self, ours: u32, server: u32) -> bool {
        match (self.cpu_group(ours), self.cpu_group(server)) {
            (Some(ours), Some(server)) => is_at_or_above(&ours, &server),
            _ => false,
        }
    }
}

fn is_at_or_above(ours: &(String, Option<String>), server: &(String, Option<String>)) -> bool {
    let ((ours, our_auto), (server, its_auto)) = (ours, server);
    if our_auto.is_some() || (ours == "/" && its_auto.is_some()) {
        return our_auto == its_auto && ours == server;
    }
    let above = format!("{}/", ours.trim_end_matches('/'));
    ours == server || server.starts_with(&above)
}

/// Whether hardware threads share cores here.
pub(crate) fn has_smt() -> bool {
    fs::read_to_string("/sys/devices/system/cpu/smt/active").is_ok_and(|text| text.trim() == "1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_of_both_versions_are_found() {
        let hybrid = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset
37 31 0:34 / /sys/fs/cgroup/freezer rw,relatime - cgroup cgroup rw,freezer
41 31 0:38 / /sys/fs/cgroup/my\\040own rw,relatime shared:9 - cgroup2 cgroup2 rw
broken";
        let found = Hierarchies::among(hybrid);
        let expected = Hierarchies {
            unified: Some("/sys/fs/cgroup/my own".into()),
            cpu: Some("/sys/fs/cgroup/cpu,cpuacct".into()),
            freezer: Some("/sys/fs/cgroup/freezer".into()),
        };
        assert_eq!(found, expected);
        assert_eq!(Hierarchies::among(""), Hierarchies::default());
    }

    #[test]
    fn only_a_group_above_the_server_compares_policies() {
        let group = |path: &str| (path.to_owned(), None);
        let auto = |number: &str| ("/".to_owned(), Some(number.to_owned()));
        assert!(is_at_or_above(&group("/"), &group("/system.slice/s")));
        assert!(is_at_or_above(&group("/a"), &group("/a/b")));
        assert!(!is_at_or_above(&group("/a"), &group("/ab")));
        assert!(!is_at_or_above(&group("/user.slice"), &group("/")));
        assert!(is_at_or_above(&auto("7"), &auto("7")));
        assert!(!is_at_or_above(&auto("7"), &auto("8")));
        assert!(!is_at_or_above(&auto("7"), &group("/system.slice")));
    }
}
