//! What the generator asks of a protocol: write a request, recognise a reply.

use crate::random::Random;

/// One whole reply, judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Ok,
    /// A well-formed answer without the thing asked for.
    Miss,
    /// The server says that it failed.
    Error,
}

/// A reply at the head of what was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    pub verdict: Verdict,
    /// Bytes that it takes up.
    pub length: usize,
    /// The server closes the connection after this one.
    pub closes: bool,
}

/// The bytes received can't be the beginning of a reply.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server does not speak {protocol}: expected {expected}, received {received:?}")]
pub struct Garbled {
    protocol: &'static str,
    expected: &'static str,
    received: String,
}

impl Garbled {
    pub fn new(protocol: &'static str, expected: &'static str, received: &[u8]) -> Self {
        let shown = &received[..received.len().min(60)];
        Self {
            protocol,
            expected,
            received: String::from_utf8_lossy(shown).into_owned(),
        }
    }
}

/// A client's half of a protocol whose replies come in the order of the requests.
pub trait Protocol {
    /// Appends one request.
    fn request(&self, random: &mut Random, out: &mut Vec<u8>);

    /// The first reply in `received`, or None while it isn't whole. Keeps no state: the same bytes
    /// give the same answer, however the network split them.
    fn reply(&self, received: &[u8]) -> Result<Option<Reply>, Garbled>;

    /// The reply that the end of the connection makes whole, if there is one in `received`.
    fn last_reply(&self, _received: &[u8]) -> Option<Reply> {
        None
    }

    /// Requests to be answered once before load starts, with the number of replies they bring.
    /// None when `step` is past the last.
    fn prepare(&self, step: usize, out: &mut Vec<u8>) -> Option<usize>;
}

/// Where the first line ends: (its bytes without CR LF, the offset after them).
pub fn line(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    Some((&bytes[..end], end + 2))
}
