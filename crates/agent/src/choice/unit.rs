//! Which systemd unit a process belongs to, as systemd and nobody else put it there.

/// Whether the text of `/proc/PID/cgroup` has this unit.
///
/// A name is a slice's, or that of the first service or scope on the way down from the system's
/// root. What is below that one may be in the hands of its user. A name that begins with `/` is a
/// whole path: that group and those below it.
pub(super) fn is_in(cgroup: &str, unit: &str) -> bool {
    cgroup.lines().filter_map(own_path).any(|path| {
        if unit.starts_with('/') {
            return is_below(path, unit);
        }
        units(path).any(|part| part == unit)
    })
}

/// The path in the hierarchy that systemd keeps: that of version 2, or the one of its name. Others
/// are made by whoever may.
fn own_path(line: &str) -> Option<&str> {
    let mut parts = line.splitn(3, ':');
    let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
    let own = controllers.is_empty() || controllers == "name=systemd";
    // With a namespace of its own, the agent does not see the system's root.
    (own && path != "/.." && !path.starts_with("/../")).then_some(path)
}

/// The slices, and what is first in them.
fn units(path: &str) -> impl Iterator<Item = &str> {
    let parts = path.split('/').filter(|part| !part.is_empty());
    parts.scan(true, |inside, part| {
        let reached = *inside;
        *inside &= part.ends_with(".slice");
        reached.then_some(part)
    })
}

fn is_below(path: &str, whole: &str) -> bool {
    let whole = whole.trim_end_matches('/');
    path.strip_prefix(whole)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_the_first_below_the_slices() {
        let cgroup = "1:name=systemd:/x\n0::/system.slice/system-postgresql.slice/postgresql@15-main.service/sub\n";
        assert!(is_in(cgroup, "postgresql@15-main.service"));
        assert!(is_in(cgroup, "system.slice"));
        assert!(is_in(cgroup, "system-postgresql.slice"));
        assert!(is_in(cgroup, "x"));
        for other in ["postgresql", "sub", "sub.service", ""] {
            assert!(!is_in(cgroup, other), "{other}");
        }
    }

    #[test]
    fn a_user_imitates_no_unit() {
        let home = "/user.slice/user-1000.slice/user@1000.service";
        for made in [
            "/nginx.service",
            "/app.slice/nginx.service",
            "/system.slice/nginx.service",
            "/nginx.service/nginx.service",
        ] {
            let cgroup = format!("0::{home}{made}\n");
            assert!(!is_in(&cgroup, "nginx.service"), "{made}");
            assert!(!is_in(&cgroup, "/system.slice/nginx.service"), "{made}");
            assert!(!is_in(&cgroup, "system.slice"), "{made}");
            assert!(is_in(&cgroup, "user@1000.service"), "{made}");
        }
        // Another hierarchy, and one of which the root is not the system's.
        assert!(!is_in(
            "5:cpu:/system.slice/nginx.service\n",
            "nginx.service"
        ));
        assert!(!is_in(
            "0::/../system.slice/nginx.service\n",
            "nginx.service"
        ));
        assert!(!is_in("0::/..\n", ".."));
    }

    #[test]
    fn a_whole_path_is_a_group_and_those_below() {
        let cgroup = "0::/kubepods/burstable/pod1/app\n";
        assert!(is_in(cgroup, "/kubepods/burstable/pod1"));
        assert!(is_in(cgroup, "/kubepods/burstable/pod1/app/"));
        assert!(!is_in(cgroup, "/kubepods/burstable/pod"));
        assert!(!is_in(cgroup, "/burstable/pod1"));
        assert!(!is_in(cgroup, "pod1"));
    }
}
