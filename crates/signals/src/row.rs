//! Rows on their way from where a span ended to the recorder: `struct ts_row` and its shares.
//!
//! They come out of memory that a measured process can write, so nothing in them is trusted: a
//! row that makes no sense is an error, never a panic or a read past its end.

use std::mem::{offset_of, size_of};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::abi;
use crate::little_endian::{u16_at, u32_at, u64_at};
use crate::retention::Kept;

/// How many causes the kernel meters.
pub const CAUSES: usize = abi::TS_CAUSES as usize;

/// How many hardware counters are read at a time.
pub const COUNTERS: usize = abi::TS_COUNTERS as usize;

/// What the hardware counted in a span.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Which group of events it was: the recorder's own number.
    pub group: u16,
    /// For each event of it: how many, where that is known.
    pub values: [Option<u64>; COUNTERS],
}

/// What is known of a request beside its thread's meter: `struct ts_request`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Request {
    /// How long its connection waited to be accepted.
    pub accept_ns: u64,
    /// How long TCP kept the end of the answer back.
    pub tcp_ns: u64,
    /// How long another thread had it, or nobody.
    pub unknown_ns: u64,
    /// Why TCP did, as `enum ts_held`.
    pub tcp_why: u16,
    /// Requests that its thread began or answered while it was open.
    pub others: u32,
    /// Whose request it queued behind, where that is known.
    pub behind: Option<Behind>,
    /// How long it waited for other servers; only the recorder itself knows.
    pub downstream_ns: u64,
    /// How many times it asked them.
    pub downstreams: u32,
}

/// A request that kept a thread busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Behind {
    /// The peer's address and port; `None` for one on a Unix socket.
    pub peer: Option<SocketAddr>,
    /// How long it took.
    pub ns: u64,
}

/// One span as it was measured, times still in the unit of its source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Row {
    /// When it began: cycles (SDK) or `CLOCK_MONOTONIC` ns (kernel).
    pub begin: u64,
    /// How long it took, in the same unit.
    pub wall: u64,
    /// The request it was part of.
    pub id: Option<u64>,
    /// Thread group; 0 in rows of the SDK, which are their region's.
    pub pid: u32,
    /// Thread, as the initial namespace numbers it.
    pub tid: u32,
    /// Where it ended; `u16::MAX` if not known.
    pub cpu: u16,
    /// Index into the region's names (SDK).
    pub name: u8,
    /// Number of the name that an argument of a probe gave (kernel); 0: none.
    pub text: u16,
    /// How long the request was ready while its thread did other work.
    pub queue_ns: u64,
    /// The probability with which this row is here.
    pub kept: Kept,
    /// For each cause: ns.
    pub ns: [u64; CAUSES],
    /// For each cause: how many times.
    pub n: [u32; CAUSES],
    /// For each cause: who is to blame for the largest, as a number that the kernel's programs
    /// gave out; 0: nobody is known.
    pub who: [u16; CAUSES],
    /// What was counted, where something was (SDK).
    pub counts: Option<Counts>,
    /// What is known of the request beside the meter (sockets).
    pub request: Request,
}

/// The bytes are not a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a row of {have} bytes that should have {want}, or with causes that don't exist")]
pub struct Malformed {
    have: usize,
    want: usize,
}

impl Malformed {
    /// There are `have` bytes, and there should be `want`.
    pub(crate) const fn of(have: usize, want: usize) -> Self {
        Self { have, want }
    }
}

impl Row {
    /// Reads the row at the front of `bytes`; returns it with its length.
    pub fn parse(bytes: &[u8]) -> Result<(Self, usize), Malformed> {
        let mut row = Self::default();
        let len = row.read(bytes)?;
        Ok((row, len))
    }

    /// Becomes the row at the front of `bytes`; returns its length. Where there is none, it stays
    /// as it was, or lacks its counts. For many rows, one after the other: a row is large to move.
    pub fn read(&mut self, bytes: &[u8]) -> Result<usize, Malformed> {
        const HEAD: usize = size_of::<abi::ts_row>();
        const SHARE: usize = size_of::<abi::ts_share>();
        let have = bytes.len();
        if have < HEAD {
            return Err(Malformed { have, want: HEAD });
        }
        let causes = u16_at(bytes, offset_of!(abi::ts_row, causes));
        let want = HEAD + causes.count_ones() as usize * SHARE;
        if have < want || causes >> CAUSES != 0 {
            return Err(Malformed { have, want });
        }
        let flags = u32::from(bytes[offset_of!(abi::ts_row, flags)]);
        self.begin = u64_at(bytes, offset_of!(abi::ts_row, begin));
        self.wall = u64_at(bytes, offset_of!(abi::ts_row, wall));
        self.id =
            (flags & abi::TS_ROW_HAS_ID != 0).then(|| u64_at(bytes, offset_of!(abi::ts_row, id)));
        self.pid = u32_at(bytes, offset_of!(abi::ts_row, pid));
        self.tid = u32_at(bytes, offset_of!(abi::ts_row, tid));
        self.cpu = u16_at(bytes, offset_of!(abi::ts_row, cpu));
        self.name = bytes[offset_of!(abi::ts_row, name)];
        self.text = u16_at(bytes, offset_of!(abi::ts_row, text));
        self.queue_ns = u64_at(bytes, offset_of!(abi::ts_row, queue_ns));
        self.kept = Kept::from_code(u16_at(bytes, offset_of!(abi::ts_row, kept)));
        (self.ns, self.n, self.who) = ([0; CAUSES], [0; CAUSES], [0; CAUSES]);
        self.counts = None;
        let mut left = causes;
        let mut at = HEAD;
        while left != 0 {
            let cause = left.trailing_zeros() as usize;
            self.ns[cause] = u64_at(bytes, at + offset_of!(abi::ts_share, ns));
            self.n[cause] = u32_at(bytes, at + offset_of!(abi::ts_share, n));
            self.who[cause] = u16_at(bytes, at + offset_of!(abi::ts_share, who));
            at += SHARE;
            left &= left - 1;
        }
        self.request = Request::default();
        let mut len = want;
        if flags & abi::TS_ROW_HAS_COUNTS != 0 {
            let (counts, more) = Counts::parse(&bytes[len..])?;
            self.counts = Some(counts);
            len += more;
        }
        if flags & abi::TS_ROW_HAS_REQUEST != 0 {
            self.request = Request::parse(&bytes[len..])?;
            len += Request::BYTES;
        }
        Ok(len)
    }
}

/// Numbers of address families, the same on all of Linux.
const AF_UNIX: u16 = 1;
const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;

impl Request {
    const BYTES: usize = size_of::<abi::ts_request>();

    /// Reads the one at the front of `bytes`.
    fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let have = bytes.len();
        if have < Self::BYTES {
            return Err(Malformed {
                have,
                want: Self::BYTES,
            });
        }
        let address = offset_of!(abi::ts_request, address);
        let octets: [u8; 16] = bytes[address..address + 16].try_into().expect("sixteen");
        let port = u16_at(bytes, offset_of!(abi::ts_request, port)).swap_bytes();
        let [a, b, c, d, ..] = octets;
        let of_ip = |ip: IpAddr| Some(SocketAddr::new(ip.to_canonical(), port));
        let peer = match u16_at(bytes, offset_of!(abi::ts_request, family)) {
            AF_UNIX => Some(None),
            AF_INET => Some(of_ip(Ipv4Addr::new(a, b, c, d).into())),
            AF_INET6 => Some(of_ip(Ipv6Addr::from(octets).into())),
            _ => None,
        };
        let ns = u64_at(bytes, offset_of!(abi::ts_request, blocked_ns));
        Ok(Self {
            accept_ns: u64_at(bytes, offset_of!(abi::ts_request, accept_ns)),
            tcp_ns: u64_at(bytes, offset_of!(abi::ts_request, tcp_ns)),
            unknown_ns: u64_at(bytes, offset_of!(abi::ts_request, unknown_ns)),
            tcp_why: u16_at(bytes, offset_of!(abi::ts_request, tcp_why)),
            others: u32_at(bytes, offset_of!(abi::ts_request, others)),
            behind: peer.map(|peer| Behind { peer, ns }),
            ..Self::default()
        })
    }
}

impl Counts {
    /// Reads those at the front of `bytes`; returns them with their length.
    fn parse(bytes: &[u8]) -> Result<(Self, usize), Malformed> {
        const HEAD: usize = size_of::<abi::ts_counts>();
        let have = bytes.len();
        if have < HEAD {
            return Err(Malformed { have, want: HEAD });
        }
        let known = u16_at(bytes, offset_of!(abi::ts_counts, known));
        let want = HEAD + known.count_ones() as usize * size_of::<u64>();
        if have < want || known >> COUNTERS != 0 {
            return Err(Malformed { have, want });
        }
        let mut counts = Self {
            group: u16_at(bytes, offset_of!(abi::ts_counts, group)),
            values: [None; COUNTERS],
        };
        let known = (0..COUNTERS).filter(|i| known & 1 << i != 0);
        for (place, i) in known.enumerate() {
            counts.values[i] = Some(u64_at(bytes, HEAD + place * size_of::<u64>()));
        }
        Ok((counts, want))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encode(row: &Row) -> Vec<u8> {
        let causes = (0..CAUSES).filter(|&c| row.ns[c] != 0 || row.n[c] != 0);
        let mut bytes = Vec::new();
        bytes.extend(row.begin.to_le_bytes());
        bytes.extend(row.wall.to_le_bytes());
        bytes.extend(row.id.unwrap_or(0).to_le_bytes());
        bytes.extend(row.pid.to_le_bytes());
        bytes.extend(row.tid.to_le_bytes());
        bytes.extend(causes.clone().fold(0u16, |m, c| m | 1 << c).to_le_bytes());
        bytes.extend(row.cpu.to_le_bytes());
        let counted = u8::from(row.counts.is_some()) * abi::TS_ROW_HAS_COUNTS as u8;
        let asked = u8::from(row.request != Request::default()) * abi::TS_ROW_HAS_REQUEST as u8;
        bytes.extend([row.name, u8::from(row.id.is_some()) | counted | asked]);
        bytes.extend(row.text.to_le_bytes());
        bytes.extend(row.queue_ns.to_le_bytes());
        bytes.extend(row.kept.code().to_le_bytes());
        bytes.extend([0; 6]);
        for c in causes {
            bytes.extend(row.ns[c].to_le_bytes());
            bytes.extend(row.n[c].to_le_bytes());
            bytes.extend(row.who[c].to_le_bytes());
            bytes.extend([0; 2]);
        }
        if let Some(counts) = row.counts {
            let known = (0..COUNTERS).filter(|i| counts.values[*i].is_some());
            bytes.extend(counts.group.to_le_bytes());
            bytes.extend(known.fold(0u16, |m, i| m | 1 << i).to_le_bytes());
            bytes.extend([0; 4]);
            let values = counts.values.iter().flatten();
            values.for_each(|value| bytes.extend(value.to_le_bytes()));
        }
        if row.request != Request::default() {
            encode_request(&row.request, &mut bytes);
        }
        bytes
    }

    fn encode_request(request: &Request, bytes: &mut Vec<u8>) {
        let (family, port, octets) = match request.behind.map(|behind| behind.peer) {
            None => (0, 0, [0; 16]),
            Some(None) => (AF_UNIX, 0, [0; 16]),
            Some(Some(SocketAddr::V4(v4))) => {
                let mut octets = [0; 16];
                octets[..4].copy_from_slice(&v4.ip().octets());
                (AF_INET, v4.port(), octets)
            }
            Some(Some(SocketAddr::V6(v6))) => (AF_INET6, v6.port(), v6.ip().octets()),
        };
        bytes.extend(request.accept_ns.to_le_bytes());
        bytes.extend(request.tcp_ns.to_le_bytes());
        bytes.extend(request.unknown_ns.to_le_bytes());
        bytes.extend(request.others.to_le_bytes());
        bytes.extend(request.tcp_why.to_le_bytes());
        bytes.extend(family.to_le_bytes());
        let ns = request.behind.map_or(0, |behind| behind.ns);
        bytes.extend(ns.to_le_bytes());
        bytes.extend(octets);
        bytes.extend(port.to_be_bytes());
        bytes.extend([0; 6]);
    }

    prop_compose! {
        fn requests()(accept_ns: u64, tcp_ns: u64, unknown_ns: u64, tcp_why: u16, others: u32, ip: IpAddr, port: u16,
                      ns: u64, known in 0..3) -> Request {
            let behind = match known {
                0 => None,
                1 => Some(Behind { peer: None, ns }),
                _ => Some(Behind { peer: Some(SocketAddr::new(ip.to_canonical(), port)), ns }),
            };
            Request { accept_ns, tcp_ns, unknown_ns, tcp_why, others, behind, ..Request::default() }
        }
    }

    prop_compose! {
        fn rows()(begin: u64, wall: u64, id: Option<u64>, pid: u32, tid: u32, cpu: u16, name: u8, text: u16,
                  queue_ns: u64, kept: u16, ns: [u64; CAUSES], n: [u32; CAUSES], who: [u16; CAUSES], mask: u16, group: u16, request in requests(),
                  values: Option<[Option<u64>; COUNTERS]>) -> Row {
            let counts = values.map(|values| Counts { group, values });
            let mut row = Row { begin, wall, id, pid, tid, cpu, name, text, queue_ns, kept: Kept::from_code(kept), ns, n, who, counts, request };
            for c in (0..CAUSES).filter(|c| mask & 1 << c == 0) {
                row.ns[c] = 0;
                row.n[c] = 0;
                row.who[c] = 0;
            }
            row
        }
    }

    proptest! {
        #[test]
        fn a_row_comes_back_as_it_went(row in rows(), tail: Vec<u8>) {
            let mut bytes = encode(&row);
            let len = bytes.len();
            bytes.extend(tail);
            prop_assert_eq!(Row::parse(&bytes), Ok((row, len)));
        }

        #[test]
        fn nothing_is_left_of_the_row_before(row in rows(), mut before in rows()) {
            let bytes = encode(&row);
            prop_assert_eq!(before.read(&bytes), Ok(bytes.len()));
            prop_assert_eq!(before, row);
        }

        #[test]
        fn foreign_bytes_never_panic(bytes: Vec<u8>) {
            let _ = Row::parse(&bytes);
        }

        #[test]
        fn a_row_cut_short_is_an_error(row in rows(), cut in 0usize..1000) {
            let bytes = encode(&row);
            let cut = cut % bytes.len();
            prop_assert!(Row::parse(&bytes[..cut]).is_err());
        }
    }
}
