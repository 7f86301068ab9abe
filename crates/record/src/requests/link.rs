//! What joins a request with other records: its connection, the call that it waited for the
//! longest, and the trace that it belongs to.

use std::net::{IpAddr, SocketAddr};

use tailscope_signals::slice::Peer;

/// The trace of a request, as W3C Trace Context has it. Nothing else of the header is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Trace {
    /// Of the whole trace.
    pub(crate) id: u128,
    /// Of the span that sent the request.
    pub(crate) parent: u64,
}

impl Trace {
    /// By the value of a `traceparent` header: `VERSION-TRACE-PARENT-FLAGS`. `None` if it is not one.
    pub(crate) fn parse(value: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(value.get(..55)?).ok()?;
        let mut parts = text.split('-');
        let (version, id, parent, flags) =
            (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let lengths = [version, id, parent, flags].map(str::len);
        let is_hex = |b: u8| matches!(b, b'0'..=b'9' | b'a'..=b'f' | b'-');
        if lengths != [2, 32, 16, 2] || version == "ff" || !text.bytes().all(is_hex) {
            return None;
        }
        let id = u128::from_str_radix(id, 16).ok()?;
        let parent = u64::from_str_radix(parent, 16).ok()?;
        (id != 0 && parent != 0).then_some(Self { id, parent })
    }
}

/// A call of another server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asked {
    /// The number of the connection.
    pub(crate) connection: i64,
    /// When it was sent, and when its answer was ready (`CLOCK_MONOTONIC`, ns).
    pub(crate) sent: u64,
    pub(crate) ready: u64,
}

/// All of that; what is not known is left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Links {
    /// The number of the request's own connection.
    pub(crate) connection: Option<i64>,
    /// The call that it waited for the longest.
    pub(crate) asked: Option<Asked>,
    pub(crate) trace: Option<Trace>,
}

/// The number of a connection of TCP, or of a stream on it, the same at both of its ends: FNV-1a of
/// both addresses, the lower one first, and then of the stream's number. `None` for other sockets.
pub(super) fn connection(peer: &Peer, stream: u32) -> Option<i64> {
    if !peer.tcp {
        return None;
    }
    let mut ends = [bytes(peer.local?), bytes(peer.address?)];
    ends.sort_unstable();
    let mut number = 0xcbf2_9ce4_8422_2325u64;
    let stream = stream.to_be_bytes();
    let stream = if stream == [0; 4] { &[][..] } else { &stream };
    for byte in ends.as_flattened().iter().chain(stream) {
        number = (number ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    Some(number as i64)
}

/// An address with its port.
fn bytes(address: SocketAddr) -> [u8; 18] {
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let mut bytes = [0; 18];
    bytes[..16].copy_from_slice(&ip.octets());
    bytes[16..].copy_from_slice(&address.port().to_be_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn peer(local: &str, address: &str) -> Peer {
        let parsed = |text: &str| Some(text.parse().expect("an address"));
        Peer {
            local: parsed(local),
            address: parsed(address),
            tcp: true,
            ..Peer::default()
        }
    }

    #[test]
    fn both_ends_give_a_connection_the_same_number() {
        let (server, client) = ("10.0.0.9:80", "10.0.0.7:4711");
        let one = connection(&peer(server, client), 0).expect("a number");
        assert_eq!(connection(&peer(client, server), 0), Some(one));
        assert_ne!(connection(&peer(server, "10.0.0.7:4712"), 0), Some(one));
        assert_ne!(connection(&peer("10.0.0.9:81", client), 0), Some(one));
        assert_eq!(connection(&Peer::default(), 0), None);
    }

    #[test]
    fn each_stream_of_a_connection_has_a_number() {
        let (server, client) = ("10.0.0.9:80", "10.0.0.7:4711");
        let third = connection(&peer(server, client), 3);
        assert_eq!(connection(&peer(client, server), 3), third);
        assert_ne!(connection(&peer(server, client), 5), third);
        assert_ne!(connection(&peer(server, client), 0), third);
    }

    #[test]
    fn the_number_of_a_connection_stays_the_same_in_all_versions() {
        let number = connection(&peer("127.0.0.1:80", "127.0.0.1:4711"), 0);
        assert_eq!(number, Some(4_707_211_097_701_429_934));
    }

    #[test]
    fn a_trace_is_what_the_standard_says() {
        let id = "4bf92f3577b34da6a3ce929d0e0e4736";
        let (parent, none) = ("00f067aa0ba902b7", "0".repeat(16));
        let known = Trace {
            id: 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736,
            parent: 0x00f0_67aa_0ba9_02b7,
        };
        for (value, expected) in [
            (format!("00-{id}-{parent}-01"), Some(known)),
            (format!("cc-{id}-{parent}-01-what-comes-later"), Some(known)),
            (format!("ff-{id}-{parent}-01"), None),
            (format!("00-{id}-{none}-01"), None),
            (format!("00-{none}{none}-{parent}-01"), None),
            (format!("00-{}-{parent}-01", id.to_uppercase()), None),
            (format!("00-{id}-{parent}"), None),
            (format!("00-{parent}-{id}-01"), None),
        ] {
            assert_eq!(Trace::parse(value.as_bytes()), expected, "{value}");
        }
    }

    proptest! {
        #[test]
        fn foreign_bytes_never_panic(value: Vec<u8>) {
            let _ = Trace::parse(&value);
        }

        #[test]
        fn any_trace_is_read_as_it_was_written(id in 1u128.., parent in 1u64.., flags: u8) {
            let value = format!("00-{id:032x}-{parent:016x}-{flags:02x}");
            prop_assert_eq!(Trace::parse(value.as_bytes()), Some(Trace { id, parent }));
        }
    }
}
