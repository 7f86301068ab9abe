//! Network namespaces: which addresses each has, and what it lists of its sockets.

use std::cell::OnceCell;
use std::collections::HashSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

/// The most other namespaces that are looked at.
const MOST: usize = 1024;

/// A network namespace, by the folder in which a process of it shows its tables. Its addresses are read
/// once.
#[derive(Debug)]
pub(super) struct Namespace {
    folder: PathBuf,
    v4: OnceCell<Option<String>>,
    v6: OnceCell<Option<String>>,
}

impl Namespace {
    /// That of this process.
    pub fn own() -> Self {
        Self::at("/proc/self/net".into())
    }

    fn at(folder: PathBuf) -> Self {
        Self {
            folder,
            v4: OnceCell::new(),
            v6: OnceCell::new(),
        }
    }

    /// Those of other processes: containers, for example. We see those that we may look at.
    pub fn others() -> impl Iterator<Item = Self> {
        let mut seen: HashSet<PathBuf> = fs::read_link("/proc/self/ns/net").into_iter().collect();
        let all = fs::read_dir("/proc").into_iter().flatten().flatten();
        let fresh = all.filter_map(move |entry| {
            let name = entry.file_name();
            name.to_str()?.parse::<u32>().ok()?;
            let namespace = fs::read_link(entry.path().join("ns/net")).ok()?;
            let is_new = seen.insert(namespace);
            is_new.then(|| Self::at(entry.path().join("net")))
        });
        fresh.take(MOST)
    }

    /// Whether connections to this address arrive here. `None`: it does not say.
    pub fn has(&self, ip: IpAddr) -> Option<bool> {
        if ip.is_loopback() || ip.is_unspecified() {
            return Some(true);
        }
        match ip {
            IpAddr::V4(ip) => {
                let trie = self.v4.get_or_init(|| self.read("fib_trie"));
                Some(has_v4(trie.as_deref()?, ip))
            }
            IpAddr::V6(ip) => {
                let table = self.v6.get_or_init(|| self.read("if_inet6"));
                Some(has_v6(table.as_deref()?, ip))
            }
        }
    }

    /// One of its tables.
    pub fn read(&self, table: &str) -> Option<String> {
        fs::read_to_string(self.folder.join(table)).ok()
    }
}

/// Reads `/proc/net/fib_trie`: below each address stands what it is to this host.
fn has_v4(trie: &str, ip: Ipv4Addr) -> bool {
    let mut is_below = false;
    for line in trie.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            is_below = address.parse() == Ok(ip);
        } else if is_below && line.starts_with("/32 ") && line.ends_with(" LOCAL") {
            return true;
        }
    }
    false
}

/// Reads `/proc/net/if_inet6`: each line begins with an address.
fn has_v6(table: &str, ip: Ipv6Addr) -> bool {
    let mut addresses = table.lines().filter_map(|line| line.split(' ').next());
    addresses.any(|text| u128::from_str_radix(text, 16) == Ok(ip.to_bits()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TRIE: &str = "Local:\n  +-- 192.0.2.0/24 2 0 2\n     |-- 192.0.2.0\n        \
                        /24 link UNICAST\n     |-- 192.0.2.2\n        /32 host LOCAL\n     \
                        |-- 192.0.2.255\n        /32 link BROADCAST\n";

    #[test]
    fn addresses_of_this_host_are_told_from_those_of_its_networks() {
        let has = |text: &str| has_v4(TRIE, text.parse().expect("an address"));
        assert!(has("192.0.2.2"));
        assert!(!has("192.0.2.0") && !has("192.0.2.255") && !has("192.0.2.3"));
        let table = "fd000000000000000000000000000002 04 40 00 82     eth0\n";
        assert!(has_v6(table, "fd00::2".parse().expect("an address")));
        assert!(!has_v6(table, "fd00::3".parse().expect("an address")));
    }

    #[test]
    fn our_own_namespace_has_loopback_and_no_address_for_documentation() {
        let own = Namespace::own();
        assert_eq!(own.has(Ipv4Addr::LOCALHOST.into()), Some(true));
        let other = Ipv4Addr::new(203, 0, 113, 77).into();
        assert_ne!(own.has(other), Some(true));
    }

    proptest! {
        #[test]
        fn foreign_tables_never_panic(table in "[ -~\n]{0,200}") {
            has_v4(&table, Ipv4Addr::LOCALHOST);
            has_v6(&table, Ipv6Addr::LOCALHOST);
        }
    }
}
