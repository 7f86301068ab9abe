//! The PROXY protocol, version 1 and 2: who a client is, as a proxy in front of guard says it, and as
//! guard says it to replicas.
//!
//! It is read only where the settings ask for it, and then each connection must begin with it: a
//! client that could choose whether to send it could forge its address. It is written where the
//! settings ask for that, at the start of each connection to a replica.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::io::{AsyncRead, AsyncReadExt};

const SIGNATURE_2: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Version 2 with its command: the proxy speaks for itself, or for a client.
const LOCAL: u8 = 0x20;
const PROXY: u8 = 0x21;
/// Families of version 2.
const TCP_4: u8 = 0x11;
const TCP_6: u8 = 0x21;
/// The longest line of version 1, with its end.
const LONGEST_1: usize = 107;
/// Addresses and additions of version 2 together.
const LONGEST_2: usize = 4096;

/// A version of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyHeader {
    /// A line of text.
    V1,
    /// Binary.
    V2,
}

/// Both ends of a client's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    /// The client's.
    pub source: SocketAddr,
    /// Where it connected to.
    pub destination: SocketAddr,
}

impl Ends {
    /// Both addresses in one family: IPv4 where both have one.
    fn in_one_family(self) -> (IpAddr, IpAddr) {
        let both = (self.source.ip(), self.destination.ip());
        match (both.0.to_canonical(), both.1.to_canonical()) {
            (source @ IpAddr::V4(_), to @ IpAddr::V4(_)) => (source, to),
            (source, to) => (in_six(source).into(), in_six(to).into()),
        }
    }
}

fn in_six(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(four) => four.to_ipv6_mapped(),
        IpAddr::V6(six) => six,
    }
}

/// The header of a connection. `None`: guard speaks for itself, as in health checks.
#[must_use]
pub fn header(version: ProxyHeader, ends: Option<Ends>) -> Vec<u8> {
    match version {
        ProxyHeader::V1 => line(ends).into_bytes(),
        ProxyHeader::V2 => binary(ends),
    }
}

fn line(ends: Option<Ends>) -> String {
    let Some(ends) = ends else {
        return "PROXY UNKNOWN\r\n".to_owned();
    };
    let (source, to) = ends.in_one_family();
    let family = if source.is_ipv4() { "TCP4" } else { "TCP6" };
    let ports = (ends.source.port(), ends.destination.port());
    format!("PROXY {family} {source} {to} {} {}\r\n", ports.0, ports.1)
}

fn binary(ends: Option<Ends>) -> Vec<u8> {
    let Some(ends) = ends else {
        return [&SIGNATURE_2[..], &[LOCAL, 0, 0, 0]].concat();
    };
    let (family, mut addresses) = match ends.in_one_family() {
        (IpAddr::V4(source), IpAddr::V4(to)) => (TCP_4, [source.octets(), to.octets()].concat()),
        (source, to) => (
            TCP_6,
            [in_six(source).octets(), in_six(to).octets()].concat(),
        ),
    };
    for end in [ends.source, ends.destination] {
        addresses.extend(end.port().to_be_bytes());
    }
    let length = (addresses.len() as u16).to_be_bytes();
    [&SIGNATURE_2[..], &[PROXY, family], &length, &addresses].concat()
}

/// Reads the header. `None`: the proxy speaks for itself, or does not know.
///
/// # Errors
/// If there is none, or the connection breaks.
pub async fn read<S: AsyncRead + Unpin>(stream: &mut S) -> io::Result<Option<Ends>> {
    let mut first = [0; 12];
    stream.read_exact(&mut first).await?;
    if &first == SIGNATURE_2 {
        let mut head = [0; 4];
        stream.read_exact(&mut head).await?;
        let length = usize::from(u16::from_be_bytes([head[2], head[3]]));
        if length > LONGEST_2 {
            return Err(wrong());
        }
        let mut rest = vec![0; length];
        stream.read_exact(&mut rest).await?;
        return version_2(head[0], head[1], &rest).ok_or_else(wrong);
    }
    let mut line = first.to_vec();
    while !line.ends_with(b"\r\n") {
        // What follows the line is not for us: no byte of it may be taken.
        line.push(stream.read_u8().await?);
        if line.len() > LONGEST_1 || !line.starts_with(b"PROXY ") {
            return Err(wrong());
        }
    }
    version_1(&line).ok_or_else(wrong)
}

fn wrong() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "it does not begin with a PROXY header",
    )
}

/// `PROXY TCP4 SOURCE DESTINATION PORT PORT`. The outer `None`: it is wrong.
fn version_1(line: &[u8]) -> Option<Option<Ends>> {
    let line = std::str::from_utf8(line).ok()?.strip_suffix("\r\n")?;
    let words: Vec<&str> = line.split(' ').collect();
    match words[..] {
        ["PROXY", "UNKNOWN", ..] => Some(None),
        ["PROXY", family, source, destination, port, other] => {
            let ports: (u16, u16) = (port.parse().ok()?, other.parse().ok()?);
            let both: (IpAddr, IpAddr) = (source.parse().ok()?, destination.parse().ok()?);
            match (family, both) {
                ("TCP4", (IpAddr::V4(_), IpAddr::V4(_)))
                | ("TCP6", (IpAddr::V6(_), IpAddr::V6(_))) => Some(Some(Ends {
                    source: (both.0, ports.0).into(),
                    destination: (both.1, ports.1).into(),
                })),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Version and command, family and protocol, then addresses and additions.
fn version_2(command: u8, family: u8, rest: &[u8]) -> Option<Option<Ends>> {
    match (command, family) {
        (LOCAL, _) => Some(None), // the proxy's own health check
        (PROXY, TCP_4) => {
            let both: &[u8; 8] = rest.first_chunk()?;
            let at = |from: usize| Ipv4Addr::from([0, 1, 2, 3].map(|i| both[from + i]));
            Some(Some(with_ports(at(0).into(), at(4).into(), &rest[8..])?))
        }
        (PROXY, TCP_6) => {
            let (source, others) = rest.split_first_chunk::<16>()?;
            let (to, ports) = others.split_first_chunk::<16>()?;
            let (source, to) = (Ipv6Addr::from(*source), Ipv6Addr::from(*to));
            Some(Some(with_ports(source.into(), to.into(), ports)?))
        }
        (PROXY, _) => Some(None), // not TCP over IP
        _ => None,
    }
}

fn with_ports(source: IpAddr, destination: IpAddr, ports: &[u8]) -> Option<Ends> {
    let [a, b, c, d] = *ports.first_chunk()?;
    Some(Ends {
        source: (source, u16::from_be_bytes([a, b])).into(),
        destination: (destination, u16::from_be_bytes([c, d])).into(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Both ends, and what is left for the protocol behind the header; `None`: it is wrong.
    fn parsed(mut bytes: &[u8]) -> Option<(Option<Ends>, Vec<u8>)> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime");
        let found = runtime.block_on(read(&mut bytes)).ok()?;
        Some((found, bytes.to_vec()))
    }

    fn ends(source: &str, destination: &str) -> Ends {
        let address = |text: &str| text.parse().expect("an address");
        Ends {
            source: address(source),
            destination: address(destination),
        }
    }

    fn second(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let length = (rest.len() as u16).to_be_bytes();
        [&SIGNATURE_2[..], &[command, family], &length, rest, b"GET"].concat()
    }

    #[test]
    fn both_versions_say_who_asks_and_take_no_more() {
        let rest = b"GET".to_vec();
        let four = Some(ends("10.1.2.3:5000", "10.0.0.1:80"));
        let line = b"PROXY TCP4 10.1.2.3 10.0.0.1 5000 80\r\nGET";
        assert_eq!(parsed(line), Some((four, rest.clone())));
        let line = b"PROXY TCP6 ::1 ::2 5000 80\r\nGET";
        let six = Some(ends("[::1]:5000", "[::2]:80"));
        assert_eq!(parsed(line), Some((six, rest.clone())));
        assert_eq!(parsed(b"PROXY UNKNOWN\r\nGET"), Some((None, rest.clone())));
        let bytes = [10, 1, 2, 3, 10, 0, 0, 1, 0x13, 0x88, 0, 80, 9, 9, 9];
        let bytes = second(0x21, 0x11, &bytes);
        assert_eq!(parsed(&bytes), Some((four, rest.clone())));
        assert_eq!(parsed(&second(0x20, 0, &[])), Some((None, rest)));
    }

    #[test]
    fn what_is_written_is_read_again() {
        let four = ends("10.1.2.3:5000", "10.0.0.1:80");
        let line = header(ProxyHeader::V1, Some(four));
        assert_eq!(line, b"PROXY TCP4 10.1.2.3 10.0.0.1 5000 80\r\n");
        assert_eq!(header(ProxyHeader::V1, None), b"PROXY UNKNOWN\r\n");
        for version in [ProxyHeader::V1, ProxyHeader::V2] {
            for (given, read) in [
                (None, None),
                (Some(four), Some(four)),
                // A socket of IPv6 that accepts IPv4 too.
                (
                    Some(ends("[::ffff:10.1.2.3]:5000", "10.0.0.1:80")),
                    Some(four),
                ),
                (
                    Some(ends("10.1.2.3:5000", "[::2]:80")),
                    Some(ends("[::ffff:10.1.2.3]:5000", "[::2]:80")),
                ),
            ] {
                let bytes = [&header(version, given)[..], b"GET"].concat();
                assert_eq!(parsed(&bytes), Some((read, b"GET".to_vec())));
            }
        }
    }

    #[test]
    fn what_is_no_header_is_refused() {
        for bytes in [
            &b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..],
            b"PROXY TCP4 10.1.2.3 10.0.0.1 5000\r\n",
            b"PROXY TCP4 ::1 ::2 5000 80\r\n",
            b"PROXY TCP4 10.1.2.3 10.0.0.1 5000 99999\r\n",
            b"PROXY TCP4 10.1.2.3  10.0.0.1 5000 80\r\n",
            b"PROXY",
            &[b"PROXY ".to_vec(), vec![b'x'; 200]].concat(),
            &second(0x31, 0x11, &[0; 12]),
            &second(0x21, 0x11, &[0; 11]),
            &second(0x21, 0x11, &[0; 5000]),
        ] {
            assert_eq!(parsed(bytes), None, "{}", String::from_utf8_lossy(bytes));
        }
    }

    proptest! {
        #[test]
        fn foreign_bytes_never_panic(rest in proptest::collection::vec(any::<u8>(), 0..120), with in 0..3) {
            let bytes = match with {
                0 => rest,
                1 => [&b"PROXY "[..], &rest].concat(),
                _ => [&SIGNATURE_2[..], &rest].concat(),
            };
            parsed(&bytes);
        }
    }
}
