//! The PROXY protocol, version 1 and 2: who a client is, as a proxy in front of guard says it.
//!
//! It is read only where the settings ask for it, and then each connection must begin with it: a
//! client that could choose whether to send it could forge its address.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tokio::io::{AsyncRead, AsyncReadExt};

const SIGNATURE_2: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// The longest line of version 1, with its end.
const LONGEST_1: usize = 107;
/// Addresses and additions of version 2 together.
const LONGEST_2: usize = 4096;

/// Reads the header. `None`: the proxy speaks for itself, or does not know.
///
/// # Errors
/// If there is none, or the connection breaks.
pub async fn read<S: AsyncRead + Unpin>(stream: &mut S) -> io::Result<Option<IpAddr>> {
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
fn version_1(line: &[u8]) -> Option<Option<IpAddr>> {
    let line = std::str::from_utf8(line).ok()?.strip_suffix("\r\n")?;
    let words: Vec<&str> = line.split(' ').collect();
    match words[..] {
        ["PROXY", "UNKNOWN", ..] => Some(None),
        ["PROXY", family, source, destination, port, other] => {
            port.parse::<u16>().ok()?;
            other.parse::<u16>().ok()?;
            let both: (IpAddr, IpAddr) = (source.parse().ok()?, destination.parse().ok()?);
            match (family, both) {
                ("TCP4", (source @ IpAddr::V4(_), IpAddr::V4(_)))
                | ("TCP6", (source @ IpAddr::V6(_), IpAddr::V6(_))) => Some(Some(source)),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Version and command, family and protocol, then addresses and additions.
fn version_2(command: u8, family: u8, rest: &[u8]) -> Option<Option<IpAddr>> {
    match (command, family) {
        (0x20, _) => Some(None), // the proxy's own health check
        (0x21, 0x11) => {
            let source: [u8; 4] = rest.get(..12)?[..4].try_into().ok()?;
            Some(Some(Ipv4Addr::from(source).into()))
        }
        (0x21, 0x21) => {
            let source: [u8; 16] = rest.get(..36)?[..16].try_into().ok()?;
            Some(Some(Ipv6Addr::from(source).into()))
        }
        (0x21, _) => Some(None), // not TCP over IP
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The address, and what is left for the protocol behind it; `None`: it is wrong.
    fn header(mut bytes: &[u8]) -> Option<(Option<IpAddr>, Vec<u8>)> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime");
        let found = runtime.block_on(read(&mut bytes)).ok()?;
        Some((found, bytes.to_vec()))
    }

    fn second(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let length = (rest.len() as u16).to_be_bytes();
        [&SIGNATURE_2[..], &[command, family], &length, rest, b"GET"].concat()
    }

    #[test]
    fn both_versions_say_who_asks_and_take_no_more() {
        let rest = b"GET".to_vec();
        let four = Some([10, 1, 2, 3].into());
        let line = b"PROXY TCP4 10.1.2.3 10.0.0.1 5000 80\r\nGET";
        assert_eq!(header(line), Some((four, rest.clone())));
        let line = b"PROXY TCP6 ::1 ::2 5000 80\r\nGET";
        let six: IpAddr = Ipv6Addr::LOCALHOST.into();
        assert_eq!(header(line), Some((Some(six), rest.clone())));
        assert_eq!(header(b"PROXY UNKNOWN\r\nGET"), Some((None, rest.clone())));
        let bytes = second(0x21, 0x11, &[10, 1, 2, 3, 10, 0, 0, 1, 0, 1, 0, 2, 9, 9, 9]);
        assert_eq!(header(&bytes), Some((four, rest.clone())));
        assert_eq!(header(&second(0x20, 0, &[])), Some((None, rest)));
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
            assert_eq!(header(bytes), None, "{}", String::from_utf8_lossy(bytes));
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
            header(&bytes);
        }
    }
}
