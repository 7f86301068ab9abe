//! What tells one process from another in figures, in words that stay few: its name, and the port
//! on which it listens. Processes that share both, such as the workers of one server, are one.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// A server opens its listening sockets early: they are among its lowest descriptors.
const MOST_DESCRIPTORS: usize = 256;
/// How many ancestors of one name are looked at: a server's workers have one or two.
const MOST_ANCESTORS: usize = 4;
/// TCP_LISTEN, as `/proc/net/tcp` writes it.
const LISTENS: &str = "0A";

/// A process, as figures name it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    /// Its name, as `ps -o comm` shows it.
    pub(crate) name: String,
    /// The lowest TCP port on which it listens, or its nearest ancestor of the same name.
    pub(crate) port: Option<u16>,
}

impl Identity {
    /// Reads it; `None`: the process has ended.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        let (name, mut parent) = name_and_parent(pid)?;
        let mut port = lowest_port(pid);
        for _ in 0..MOST_ANCESTORS {
            if port.is_some() {
                break;
            }
            match name_and_parent(parent) {
                Some((of_parent, next)) if of_parent == name => {
                    port = lowest_port(parent);
                    parent = next;
                }
                _ => break,
            }
        }
        Some(Self { name, port })
    }
}

/// From the begin of `/proc/PID/stat`. A name may hold anything, brackets too.
fn name_and_parent(pid: u32) -> Option<(String, u32)> {
    let mut stat = [0; 256];
    let mut file = File::open(format!("/proc/{pid}/stat")).ok()?;
    let length = file.read(&mut stat).ok()?;
    let stat = String::from_utf8_lossy(&stat[..length]);
    let (front, rest) = stat.rsplit_once(')')?;
    let name = front.split_once('(')?.1;
    let parent = rest.split_whitespace().nth(1)?.parse().ok()?;
    Some((name.to_owned(), parent))
}

fn lowest_port(pid: u32) -> Option<u16> {
    let sockets = sockets(pid);
    if sockets.is_empty() {
        return None;
    }
    let tables = ["tcp", "tcp6"].map(|table| format!("/proc/{pid}/net/{table}"));
    tables
        .iter()
        .flat_map(|table| listening(Path::new(table)))
        .filter(|(inode, _)| sockets.contains(inode))
        .map(|(_, port)| port)
        .min()
}

/// The inodes of its sockets that may listen at a port.
fn sockets(pid: u32) -> HashSet<u64> {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd"));
    let entries = descriptors.into_iter().flatten().take(MOST_DESCRIPTORS);
    entries
        .filter_map(|entry| {
            let descriptor = entry.ok()?.path();
            let link = fs::read_link(&descriptor).ok()?;
            let inode = link.to_str()?.strip_prefix("socket:[")?;
            let inode = inode.strip_suffix(']')?.parse().ok()?;
            may_have_port(&descriptor).then_some(inode)
        })
        .collect()
}

/// Whether a socket may have a port, by the name that the kernel gives its protocol (net/socket.c,
/// sockfs_xattr_handler). The tables of ports cost a millisecond, and most programs with a socket have
/// a Unix socket only.
fn may_have_port(descriptor: &Path) -> bool {
    let mut name = [0; 32];
    let read = rustix::fs::getxattr(descriptor, "system.sockprotoname", &mut name);
    !read.is_ok_and(|length| name[..length].starts_with(b"UNIX"))
}

/// Inodes and ports of listening sockets. The kernel lists those first, so a machine's many
/// connections are not read.
fn listening(table: &Path) -> Vec<(u64, u16)> {
    let lines = File::open(table).map(|file| BufReader::new(file).lines().skip(1));
    lines
        .into_iter()
        .flatten()
        .map_while(Result::ok)
        .map_while(|line| of_line(&line))
        .collect()
}

/// A line of the table, if it is of a listening socket.
fn of_line(line: &str) -> Option<(u64, u16)> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let port = fields.get(1)?.rsplit_once(':')?.1;
    if *fields.get(3)? != LISTENS {
        return None;
    }
    let port = u16::from_str_radix(port, 16).ok()?;
    Some((fields.get(9)?.parse().ok()?, port))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_server_is_known_by_its_name_and_its_lowest_port() {
        let mut ports: Vec<u16> = Vec::new();
        let listeners: Vec<_> = ["127.0.0.1:0", "[::1]:0"]
            .iter()
            .filter_map(|address| TcpListener::bind(address).ok())
            .collect();
        ports.extend(
            listeners
                .iter()
                .map(|l| l.local_addr().expect("bound").port()),
        );
        let me = Identity::of(std::process::id()).expect("we live");
        let comm = fs::read_to_string("/proc/self/comm").expect("ours");
        assert_eq!(me.name, comm.trim_end());
        // Other tests of this process may listen, too.
        assert!(
            me.port
                .is_some_and(|port| port <= *ports.iter().min().expect("one"))
        );
    }

    #[test]
    fn a_unix_socket_has_no_port() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let path = |fd: i32| format!("/proc/self/fd/{fd}");
        assert!(!may_have_port(Path::new(&path(one.as_raw_fd()))));
        assert!(may_have_port(Path::new(&path(listener.as_raw_fd()))));
    }

    #[test]
    fn a_process_that_has_ended_has_none() {
        assert_eq!(Identity::of(u32::MAX), None);
    }

    #[test]
    fn only_listening_sockets_are_taken_from_the_table() {
        let listens = "   0: 0100007F:18EB 00000000:0000 0A 00000000:00000000 00:00000000 00000000 \
                       0 0 4242 1 0000000000000000 100 0 0 10 0";
        assert_eq!(of_line(listens), Some((4242, 6379)));
        assert_eq!(of_line(&listens.replace(" 0A ", " 01 ")), None);
        assert_eq!(of_line("x"), None);
    }
}
