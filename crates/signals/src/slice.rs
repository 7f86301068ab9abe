//! What threads of watched servers do, as it travels to the recorder: `struct sl_entry`.

use std::mem::{offset_of, size_of};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use smallvec::SmallVec;

use crate::abi;
use crate::little_endian::{u16_at, u32_at, u64_at};
use crate::ring::Entry;
use crate::row::{CAUSES, Malformed};

#[allow(missing_docs, non_camel_case_types, non_upper_case_globals, dead_code)]
#[allow(clippy::all, clippy::undocumented_unsafe_blocks)]
mod slice_abi {
    include!(concat!(env!("OUT_DIR"), "/slice_abi.rs"));
}

use slice_abi::{sl_entry, sl_socket};

/// What [`Slice::length`] of a block is if the thread waits in a call that sends.
pub const SENDS: u32 = slice_abi::SL_SENDS;
/// The same for a call that receives from one socket.
pub const RECEIVES: u32 = slice_abi::SL_RECEIVES;

/// What [`Slice::since`] of a stream's send is where TLS has encrypted it, and it is still to be sent.
pub const NOT_SENT: u64 = slice_abi::SL_NOT_SENT as u64;

/// Which end of a connection a socket is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Role {
    /// Not a connection between two programs.
    #[default]
    Other,
    /// Accepted: requests come in here.
    Server,
    /// Connected by this process: to another server.
    Client,
    /// One end of a pair that this process made.
    Internal,
}

/// What happened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Act {
    /// Something that this recorder does not know.
    #[default]
    Other,
    /// The first use of a socket.
    Socket(Role),
    /// A receive has returned.
    Receive(Role),
    /// A send has returned.
    Send(Role),
    /// This side of a connection sends no more.
    Close(Role),
    /// The thread left its CPU, for a cause by the meter's number.
    Block(u8),
    /// And it has a CPU again.
    Run(u8),
    /// It woke another thread, which waited for this cause.
    Wake(u8),
    /// It made another thread of its process, [`Slice::length`].
    Spawn,
    /// The request that it has just received belongs to a trace.
    Trace,
    /// TCP had kept back the end of the latest send on this socket.
    PassedOn,
    /// What it has received on this socket last has been decrypted.
    Plain,
    /// A frame of HTTP/2 was received; [`Slice::length`] is its stream.
    StreamReceive(Role, Frame),
    /// The same of a send.
    StreamSend(Role, Frame),
    /// More of the headers of the entry before.
    Headers(Frame),
    /// What TLS decrypts on this socket is HTTP/2.
    Framed,
    /// Where frames begin on this connection is not known.
    Unframed {
        /// This was learnt at a receive.
        received: bool,
    },
}

/// What a frame of HTTP/2 is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Frame {
    /// Headers: of a request, of an answer, or those that end one.
    pub begins: bool,
    /// Nothing more comes on the stream this way.
    pub ends: bool,
    /// The stream is broken off, both ways.
    pub resets: bool,
    /// More of the headers follows.
    pub more: bool,
    /// The headers go on, and the rest is not told.
    pub cut: bool,
}

impl Frame {
    fn of(detail: u8) -> Self {
        let has = |bit| u32::from(detail) & bit != 0;
        Self {
            begins: has(slice_abi::SL_BEGINS),
            ends: has(slice_abi::SL_ENDS),
            resets: has(slice_abi::SL_RESETS),
            more: has(slice_abi::SL_MORE),
            cut: has(slice_abi::SL_CUT),
        }
    }
}

/// What a share of an entry says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Share {
    /// The cause, by the meter's number.
    pub cause: u8,
    /// Who is to blame for the largest time, as a number that the kernel's programs gave out.
    pub who: u16,
    /// How many times.
    pub n: u32,
    /// How long together.
    pub ns: u64,
}

/// Those of an entry: hardly ever more than two.
pub type Shares = SmallVec<[Share; 2]>;

/// The other end of a connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Peer {
    /// Its address; `None`: a Unix socket, or not known.
    pub address: Option<SocketAddr>,
    /// The address of this end, likewise.
    pub local: Option<SocketAddr>,
    /// Of a Unix socket: its own number, and its peer's.
    pub unix: Option<(u64, u64)>,
    /// Whether it is a stream of TCP.
    pub tcp: bool,
}

/// One entry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Slice {
    /// When, by `CLOCK_MONOTONIC`, in ns.
    pub at: u64,
    /// Receive: when its data was ready. Run: when the thread was woken. Passed on: when TCP had
    /// done so. 0: not known. Send: whether TCP keeps back its end. Block: where a lock lies, or the
    /// longest time for which the thread waits for sockets, in ns; 0: none that is known.
    pub since: u64,
    /// The socket; 0: none.
    pub socket: u64,
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// Bytes, the thread that was woken, or the stream. Run: 1 if a timer woke the thread.
    pub length: u32,
    /// Which one of its thread's entries this is.
    pub number: u32,
    /// The CPU.
    pub cpu: u16,
    /// What happened.
    pub act: Act,
    /// An entry of the same socket was lost before this one.
    pub after_loss: bool,
    /// Of a receive: its data was ready before the connection was accepted.
    pub unaccepted: bool,
    /// Receive and send: on a socket of UDP on which requests come in.
    pub datagram: bool,
    /// Receive: what comes in there is QUIC.
    pub quic: bool,
    /// What the thread's meter grew by since its entry before.
    pub shares: Shares,
    /// Of a receive: the first bytes, if it may begin a request. Of a trace: its header's value.
    /// Of what was decrypted: its first bytes. Of a frame: its headers, compressed.
    pub text: Vec<u8>,
    /// Of headers of HTTP/2: which part of those of their connection this is.
    pub part: u32,
    /// Of a socket, which is rare among entries.
    pub peer: Option<Box<Peer>>,
}

const IPPROTO_TCP: u32 = 6;
const AF_UNIX: u16 = 1;
const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;

const AFTER_LOSS: u8 = slice_abi::SL_AFTER_LOSS as u8;
const UNACCEPTED: u8 = slice_abi::SL_UNACCEPTED as u8;
const DATAGRAM: u8 = slice_abi::SL_DATAGRAM as u8;
const QUIC: u8 = slice_abi::SL_QUIC as u8;

fn role_of(detail: u8) -> Role {
    match u32::from(detail) & slice_abi::SL_ROLE_MASK {
        slice_abi::SL_SERVER => Role::Server,
        slice_abi::SL_CLIENT => Role::Client,
        slice_abi::SL_INTERNAL => Role::Internal,
        _ => Role::Other,
    }
}

fn act_of(kind: u8, detail: u8) -> Act {
    match u32::from(kind) {
        slice_abi::SL_SOCKET => Act::Socket(role_of(detail)),
        slice_abi::SL_RECEIVE => Act::Receive(role_of(detail)),
        slice_abi::SL_SEND => Act::Send(role_of(detail)),
        slice_abi::SL_CLOSE => Act::Close(role_of(detail)),
        slice_abi::SL_BLOCK => Act::Block(detail),
        slice_abi::SL_RUN => Act::Run(detail),
        slice_abi::SL_WAKE => Act::Wake(detail),
        slice_abi::SL_SPAWN => Act::Spawn,
        slice_abi::SL_TRACE => Act::Trace,
        slice_abi::SL_PASSED_ON => Act::PassedOn,
        slice_abi::SL_PLAIN => Act::Plain,
        slice_abi::SL_STREAM_RECEIVE => Act::StreamReceive(role_of(detail), Frame::of(detail)),
        slice_abi::SL_STREAM_SEND => Act::StreamSend(role_of(detail), Frame::of(detail)),
        slice_abi::SL_HEADERS => Act::Headers(Frame::of(detail)),
        slice_abi::SL_FRAMED => Act::Framed,
        slice_abi::SL_UNFRAMED => Act::Unframed {
            received: Frame::of(detail).begins,
        },
        _ => Act::Other,
    }
}

/// Whether it is of a socket and says so.
fn is_after_loss(act: Act, detail: u8) -> bool {
    let of_socket = !matches!(act, Act::Block(_) | Act::Run(_) | Act::Wake(_) | Act::Spawn);
    of_socket && detail & AFTER_LOSS != 0
}

fn ip_at(bytes: &[u8], at: usize, family: u16) -> Option<IpAddr> {
    let octets: [u8; 16] = bytes[at..at + 16].try_into().expect("sixteen");
    let [a, b, c, d, ..] = octets;
    let ip: IpAddr = match family {
        AF_INET => Ipv4Addr::new(a, b, c, d).into(),
        AF_INET6 => Ipv6Addr::from(octets).into(),
        _ => return None,
    };
    Some(ip.to_canonical())
}

fn peer_of(bytes: &[u8]) -> Peer {
    let family = u16_at(bytes, offset_of!(sl_socket, family));
    let port = u16_at(bytes, offset_of!(sl_socket, port)).swap_bytes();
    let ip = ip_at(bytes, offset_of!(sl_socket, address), family);
    // A UDP socket that is not connected has no peer of its own.
    let is_known = |ip: &IpAddr| port != 0 || !ip.is_unspecified();
    let local_port = u16_at(bytes, offset_of!(sl_socket, local_port));
    let local = ip_at(bytes, offset_of!(sl_socket, local_address), family);
    let own = u64_at(bytes, offset_of!(sl_socket, own));
    let peer = u64_at(bytes, offset_of!(sl_socket, peer));
    Peer {
        address: ip.filter(is_known).map(|ip| SocketAddr::new(ip, port)),
        local: local.map(|ip| SocketAddr::new(ip, local_port)),
        unix: (family == AF_UNIX).then_some((own, peer)),
        tcp: ip.is_some() && u32_at(bytes, offset_of!(sl_socket, protocol)) == IPPROTO_TCP,
    }
}

impl Entry for Slice {
    fn read(&mut self, bytes: &[u8]) -> Result<usize, Malformed> {
        const HEAD: usize = size_of::<sl_entry>();
        const SHARE: usize = size_of::<abi::ts_share>();
        const TEXT: usize = slice_abi::SL_TEXT as usize;
        const PART: usize = slice_abi::SL_HEADERS_PART as usize;
        let malformed = |want| Err(Malformed::of(bytes.len(), want));
        if bytes.len() < HEAD {
            return malformed(HEAD);
        }
        let causes = u16_at(bytes, offset_of!(sl_entry, causes));
        let extra = usize::from(u16_at(bytes, offset_of!(sl_entry, extra)));
        let kind = bytes[offset_of!(sl_entry, kind)];
        let text = HEAD + causes.count_ones() as usize * SHARE;
        let want = text + if extra > 0 { TEXT } else { 0 };
        if bytes.len() < want || causes >> CAUSES != 0 || extra > TEXT || kind == 0 {
            return malformed(want);
        }
        self.at = u64_at(bytes, offset_of!(sl_entry, at));
        self.since = u64_at(bytes, offset_of!(sl_entry, since));
        self.socket = u64_at(bytes, offset_of!(sl_entry, socket));
        self.pid = u32_at(bytes, offset_of!(sl_entry, pid));
        self.tid = u32_at(bytes, offset_of!(sl_entry, tid));
        self.length = u32_at(bytes, offset_of!(sl_entry, length));
        self.number = u32_at(bytes, offset_of!(sl_entry, number));
        self.cpu = u16_at(bytes, offset_of!(sl_entry, cpu));
        let detail = bytes[offset_of!(sl_entry, detail)];
        self.act = act_of(kind, detail);
        self.after_loss = is_after_loss(self.act, detail);
        let receives = matches!(self.act, Act::Receive(_));
        let is_of_socket = receives || matches!(self.act, Act::Send(_));
        self.unaccepted = receives && detail & UNACCEPTED != 0;
        self.datagram = is_of_socket && detail & DATAGRAM != 0;
        self.quic = receives && detail & QUIC != 0;
        self.shares.clear();
        let set = (0..CAUSES as u8).filter(|cause| causes & 1 << cause != 0);
        for (place, cause) in set.enumerate() {
            let at = HEAD + place * SHARE;
            self.shares.push(Share {
                cause,
                who: u16_at(bytes, at + offset_of!(abi::ts_share, who)),
                n: u32_at(bytes, at + offset_of!(abi::ts_share, n)),
                ns: u64_at(bytes, at + offset_of!(abi::ts_share, ns)),
            });
        }
        self.text.clear();
        self.part = 0;
        self.peer = None;
        match self.act {
            Act::Socket(_) if extra >= size_of::<sl_socket>() => {
                self.peer = Some(Box::new(peer_of(&bytes[text..])));
            }
            Act::Receive(_) | Act::Trace | Act::Plain => {
                self.text.extend(&bytes[text..text + extra])
            }
            Act::StreamReceive(..) | Act::Headers(_) if (1..=PART).contains(&extra) => {
                self.text.extend(&bytes[text..text + extra]);
                self.part = u32_at(bytes, text + PART);
            }
            _ => {}
        }
        Ok(want)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const _: () = assert!(size_of::<sl_entry>() == 48);

    proptest! {
        #[test]
        fn foreign_bytes_never_panic(bytes: Vec<u8>) {
            let _ = Slice::default().read(&bytes);
        }

        #[test]
        fn an_entry_says_what_was_written(
            at: u64, since: u64, socket: u64, tid: u32, mask in 0u16..1 << CAUSES, text in proptest::collection::vec(any::<u8>(), 0..=64), tail: Vec<u8>,
        ) {
            let mut bytes = Vec::new();
            for word in [at, since, socket] {
                bytes.extend(word.to_le_bytes());
            }
            for word in [7, tid, 9, 11] {
                bytes.extend(word.to_le_bytes());
            }
            for word in [mask, 3, text.len() as u16] {
                bytes.extend(word.to_le_bytes());
            }
            bytes.extend([slice_abi::SL_RECEIVE as u8, slice_abi::SL_CLIENT as u8]);
            for cause in (0..CAUSES as u64).filter(|cause| mask & 1 << cause != 0) {
                bytes.extend((1000 + cause).to_le_bytes());
                bytes.extend(2u32.to_le_bytes());
                bytes.extend([5, 0, 0, 0]);
            }
            if !text.is_empty() {
                bytes.extend(&text);
                bytes.extend(vec![0; 64 - text.len()]);
            }
            let len = bytes.len();
            bytes.extend(tail);
            let mut slice = Slice::default();
            prop_assert_eq!(slice.read(&bytes), Ok(len));
            prop_assert_eq!((slice.at, slice.since, slice.socket, slice.tid), (at, since, socket, tid));
            prop_assert_eq!(slice.act, Act::Receive(Role::Client));
            prop_assert_eq!(&slice.text, &text);
            prop_assert_eq!(slice.shares.len(), mask.count_ones() as usize);
            prop_assert!(slice.shares.iter().all(|s| s.ns == 1000 + u64::from(s.cause) && s.who == 5));
        }
    }
}
