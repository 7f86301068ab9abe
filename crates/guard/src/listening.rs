//! Which processes listen on an address of this machine.
//!
//! `/proc/net/tcp` has the inodes of listening sockets, and `/proc/PID/fd` says who holds them.

mod namespace;

use std::cell::OnceCell;
use std::collections::HashSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use self::namespace::Namespace;

/// TCP_LISTEN of the kernel, as `/proc/net/tcp` writes it.
const LISTENS: &str = "0A";

/// The machine at one moment. What several searches need is read once.
#[derive(Debug, Default)]
pub struct Machine {
    /// The network namespaces of other processes, such as those of containers.
    others: OnceCell<Vec<Namespace>>,
}

impl Machine {
    /// The processes that listen on this address, in the order of their ids. Empty: none does, or it
    /// is on another machine, or of another user whom we may not look at.
    ///
    /// Other network namespaces are searched too: but not for a loopback address, which each of them
    /// has.
    #[must_use]
    pub fn processes(&self, address: SocketAddr) -> Vec<u32> {
        let address = SocketAddr::new(address.ip().to_canonical(), address.port());
        let mut sockets = sockets(&Namespace::own(), address);
        if sockets.is_empty() && !address.ip().is_loopback() {
            let others = self.others.get_or_init(|| Namespace::others().collect());
            let others = others
                .iter()
                .filter(|one| one.has(address.ip()) == Some(true));
            let mut found = others.map(|one| self::sockets(one, address));
            sockets = found.find(|found| !found.is_empty()).unwrap_or_default();
        }
        if sockets.is_empty() {
            return Vec::new();
        }
        let Ok(all) = fs::read_dir("/proc") else {
            return Vec::new();
        };
        let mut found: Vec<u32> = all
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter(|pid| holds(*pid, &sockets))
            .collect();
        found.sort_unstable();
        found
    }
}

/// Whether this is an address of this machine, in our network namespace.
#[must_use]
pub fn is_ours(ip: IpAddr) -> bool {
    Namespace::own().has(ip.to_canonical()) == Some(true)
}

/// Inodes of a namespace's sockets that listen on this address.
fn sockets(of: &Namespace, address: SocketAddr) -> HashSet<u64> {
    let tables = ["tcp", "tcp6"].into_iter();
    // Another machine's address is not meant by who listens on all addresses of this one.
    let is_here = of.has(address.ip()) != Some(false);
    let listed = tables.filter_map(|table| Some(inodes(&of.read(table)?, address, is_here)));
    listed.flatten().collect()
}

/// Inodes of the sockets in a table that listen on this address. One that listens on all addresses
/// counts only where none listens on this one, and where connections to it arrive (`is_here`).
fn inodes(table: &str, address: SocketAddr, is_here: bool) -> Vec<u64> {
    let (mut exact, mut any) = (Vec::new(), Vec::new());
    for line in table.lines().skip(1) {
        let mut fields = line.split_whitespace();
        let (Some(local), Some(LISTENS)) = (fields.nth(1), fields.nth(1)) else {
            continue;
        };
        let (Some(local), Some(inode)) = (
            parse_address(local),
            fields.nth(5).and_then(|f| f.parse().ok()),
        ) else {
            continue;
        };
        if local.port() != address.port() {
            continue;
        }
        if local.ip().is_unspecified() {
            if is_here {
                any.push(inode);
            }
        } else if local.ip().to_canonical() == address.ip().to_canonical() {
            exact.push(inode);
        }
    }
    if exact.is_empty() { any } else { exact }
}

/// `0100007F:1F90`: the address as words of the machine's byte order, and the port.
fn parse_address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| u32::from_str_radix(ip.get(at..at + 8)?, 16).ok();
    let ip = match ip.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?.to_ne_bytes())),
        32 => {
            let mut bytes = [0; 16];
            for (i, part) in bytes.chunks_exact_mut(4).enumerate() {
                part.copy_from_slice(&word(i * 8)?.to_ne_bytes());
            }
            IpAddr::V6(Ipv6Addr::from(bytes))
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

fn holds(pid: u32, sockets: &HashSet<u64>) -> bool {
    let Ok(all) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return false;
    };
    all.flatten().any(|entry| {
        let Ok(link) = fs::read_link(entry.path()) else {
            return false;
        };
        let inode = link.to_str().and_then(|text| {
            text.strip_prefix("socket:[")?
                .strip_suffix(']')?
                .parse()
                .ok()
        });
        inode.is_some_and(|inode: u64| sockets.contains(&inode))
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_listener_of_ours_is_found() {
        for any in ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(any) else {
                continue; // without IPv6
            };
            let mut address = listener.local_addr().expect("bound");
            if address.ip().is_unspecified() {
                address.set_ip(Ipv4Addr::LOCALHOST.into());
            }
            assert!(
                Machine::default()
                    .processes(address)
                    .contains(&std::process::id()),
                "{any}"
            );
        }
    }

    #[test]
    fn who_listens_on_all_addresses_is_no_server_of_another_machine() {
        let listener = TcpListener::bind("0.0.0.0:0").expect("bound");
        let port = listener.local_addr().expect("bound").port();
        let other = SocketAddr::from(([203, 0, 113, 77], port));
        assert!(
            !Machine::default()
                .processes(other)
                .contains(&std::process::id())
        );
    }

    #[test]
    fn nobody_listens_where_nobody_does() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let address = listener.local_addr().expect("bound");
        drop(listener);
        assert!(
            !Machine::default()
                .processes(address)
                .contains(&std::process::id())
        );
    }

    #[test]
    fn addresses_are_read_as_the_kernel_writes_them() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
             0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100 0 0 10 0\n   \
             1: 0100007F:1F90 0100007F:9999 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 0 100 0 0 10 0\n";
        let address = "127.0.0.1:8080".parse().expect("an address");
        assert_eq!(inodes(table, address, true), [4711]);
    }

    proptest! {
        #[test]
        fn foreign_tables_never_panic(table in "[ -~\n]{0,200}") {
            inodes(&table, "127.0.0.1:80".parse().expect("an address"), true);
        }
    }
}
