//! HTTP/1.1: keep-alive GET of one URL.

use std::str::FromStr;

use super::protocol::{Garbled, Protocol, Reply, Verdict, line};
use crate::random::Random;

/// A head longer than this is not one: servers refuse at 8 to 64 KiB.
const LONGEST_HEAD: usize = 64 << 10;

/// An `http://` URL, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// HOST:PORT
    pub address: String,
    host: String,
    path: String,
}

impl FromStr for Url {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rest = text
            .strip_prefix("http://")
            .ok_or("must begin with http://")?;
        let slash = rest.find('/').unwrap_or(rest.len());
        let (host, path) = rest.split_at(slash);
        if host.is_empty() || text.contains(char::is_whitespace) {
            return Err("expected http://HOST[:PORT]/PATH".to_owned());
        }
        // The colons of [::1] are no port's.
        let has_port = host.rfind(':') > host.rfind(']');
        let address = if has_port {
            host.to_owned()
        } else {
            format!("{host}:80")
        };
        let path = if path.is_empty() { "/" } else { path };
        Ok(Self {
            address,
            host: host.to_owned(),
            path: path.to_owned(),
        })
    }
}

/// GETs of one URL.
pub struct Http {
    request: Vec<u8>,
}

impl Http {
    /// `fresh`: the connection is for one request, and the server is asked to close it.
    pub fn new(url: &Url, fresh: bool) -> Self {
        let Url { host, path, .. } = url;
        let close = if fresh { "Connection: close\r\n" } else { "" };
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: tailscope-lab\r\n{close}\r\n"
        );
        Self {
            request: request.into_bytes(),
        }
    }
}

impl Protocol for Http {
    fn request(&self, _: &mut Random, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.request);
    }

    fn reply(&self, received: &[u8]) -> Result<Option<Reply>, Garbled> {
        let garbled = |expected| Garbled::new("HTTP/1.1", expected, received);
        let start = &received[..received.len().min(5)];
        if start != &b"HTTP/"[..start.len()] {
            return Err(garbled("HTTP/"));
        }
        let Some(end) = received.windows(4).position(|four| four == b"\r\n\r\n") else {
            return if received.len() > LONGEST_HEAD {
                Err(garbled("a head"))
            } else {
                Ok(None)
            };
        };
        let head = Head::read(&received[..end]).ok_or_else(|| garbled("status and headers"))?;
        let body = end + 4;
        let length = match head.body {
            Body::Length(length) => {
                let total = body
                    .checked_add(length)
                    .ok_or_else(|| garbled("a length"))?;
                (received.len() >= total).then_some(total)
            }
            Body::Chunked => chunked_end(received, body).map_err(garbled)?,
            Body::ToTheEnd if head.closes => None,
            // No keep-alive is possible after such a body, and the server did not say so.
            Body::ToTheEnd => return Err(garbled("a length")),
        };
        Ok(length.map(|length| Reply {
            verdict: head.verdict(),
            length,
            closes: head.closes,
        }))
    }

    fn last_reply(&self, received: &[u8]) -> Option<Reply> {
        let end = received.windows(4).position(|four| four == b"\r\n\r\n")?;
        let head = Head::read(&received[..end])?;
        matches!(head.body, Body::ToTheEnd).then(|| Reply {
            verdict: head.verdict(),
            length: received.len(),
            closes: true,
        })
    }

    fn prepare(&self, _: usize, _: &mut Vec<u8>) -> Option<usize> {
        None
    }
}

enum Body {
    Length(usize),
    Chunked,
    /// It ends with the connection.
    ToTheEnd,
}

struct Head {
    status: u16,
    body: Body,
    closes: bool,
}

impl Head {
    fn verdict(&self) -> Verdict {
        if (200..400).contains(&self.status) {
            Verdict::Ok
        } else {
            Verdict::Error
        }
    }

    fn read(head: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(head);
        let mut lines = text.split("\r\n");
        let (version, rest) = lines.next()?.split_once(' ')?;
        let status = rest.get(..3)?.parse().ok()?;
        let bodiless = matches!(status, 100..200 | 204 | 304);
        let mut read = Self {
            status,
            body: Body::Length(0),
            closes: version == "HTTP/1.0",
        };
        let mut length = None;
        for header in lines {
            let (name, value) = header.split_once(':')?;
            let value = value.trim();
            if name.eq_ignore_ascii_case("content-length") {
                length = Some(value.parse().ok()?);
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                read.body = Body::Chunked;
            } else if name.eq_ignore_ascii_case("connection") {
                read.closes = value.eq_ignore_ascii_case("close");
            }
        }
        match (&read.body, length) {
            _ if bodiless => read.body = Body::Length(0),
            (Body::Chunked, _) => {}
            (_, Some(length)) => read.body = Body::Length(length),
            (_, None) => read.body = Body::ToTheEnd,
        }
        Some(read)
    }
}

/// Where a chunked body that starts at `at` ends. A trailer after the last chunk is skipped.
fn chunked_end(received: &[u8], mut at: usize) -> Result<Option<usize>, &'static str> {
    loop {
        let Some((size, after)) = received.get(at..).and_then(line) else {
            return Ok(None);
        };
        let digits = size.split(|&byte| byte == b';').next().unwrap_or_default();
        let size = std::str::from_utf8(digits)
            .ok()
            .and_then(|digits| usize::from_str_radix(digits.trim(), 16).ok())
            .ok_or("a chunk's size")?;
        at += after;
        if size == 0 {
            break;
        }
        at = at
            .checked_add(size)
            .and_then(|end| end.checked_add(2))
            .ok_or("a chunk's size")?;
    }
    loop {
        let Some((trailer, after)) = received.get(at..).and_then(line) else {
            return Ok(None);
        };
        at += after;
        if trailer.is_empty() {
            return Ok(Some(at));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn http() -> Http {
        Http::new(&"http://127.0.0.1:8080/a?b".parse().expect("a URL"), false)
    }

    fn reply(text: &str) -> Option<Reply> {
        http().reply(text.as_bytes()).expect("well-formed")
    }

    #[test]
    fn urls_are_taken_apart() {
        let url: Url = "http://127.0.0.1:8080/a?b".parse().expect("a URL");
        assert_eq!(
            (url.address.as_str(), url.path.as_str()),
            ("127.0.0.1:8080", "/a?b")
        );
        let url: Url = "http://[::1]".parse().expect("a URL");
        assert_eq!((url.address.as_str(), url.path.as_str()), ("[::1]:80", "/"));
        assert!("https://x/".parse::<Url>().is_err());
        assert!("http:///x".parse::<Url>().is_err());
    }

    #[test]
    fn replies_are_judged() {
        let ok = |length, closes| {
            Some(Reply {
                verdict: Verdict::Ok,
                length,
                closes,
            })
        };
        assert_eq!(
            reply("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcHTTP"),
            ok(41, false)
        );
        assert_eq!(
            reply("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab"),
            None
        );
        assert_eq!(
            reply("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"),
            ok(57, true)
        );
        assert_eq!(
            reply("HTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\n"),
            ok(38, false)
        );
        let error = reply("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n").expect("whole");
        assert_eq!(error.verdict, Verdict::Error);
    }

    #[test]
    fn a_body_without_a_length_ends_with_the_connection() {
        let whole = "HTTP/1.0 200 OK\r\n\r\nuntil the end";
        assert_eq!(reply(whole), None);
        let last = http().last_reply(whole.as_bytes());
        let expected = Reply {
            verdict: Verdict::Ok,
            length: whole.len(),
            closes: true,
        };
        assert_eq!(last, Some(expected));
        let cut = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab";
        assert_eq!(http().last_reply(cut), None);
        assert_eq!(http().last_reply(b"HTTP/1.1 200 OK\r\n"), None);
    }

    #[test]
    fn what_is_not_http_is_refused() {
        assert!(http().reply(b"ERROR\r\n").is_err());
        assert!(
            http()
                .reply(b"HTTP/1.1 200 OK\r\n\r\nuntil the end")
                .is_err()
        );
        assert!(
            http()
                .reply(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n")
                .is_err()
        );
    }

    proptest! {
        #[test]
        fn chunked_replies_do_not_depend_on_how_reads_are_split(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..8),
            cut in 1usize..30,
        ) {
            let mut one = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
            for chunk in &chunks {
                one.extend_from_slice(format!("{:x};ext=1\r\n", chunk.len()).as_bytes());
                one.extend_from_slice(chunk);
                one.extend_from_slice(b"\r\n");
            }
            one.extend_from_slice(b"0\r\nTrailer: x\r\n\r\n");
            let stream = [&one[..], &one[..], &one[..]].concat();
            let (mut inbox, mut lengths) = (Vec::new(), Vec::new());
            for piece in stream.chunks(cut) {
                inbox.extend_from_slice(piece);
                while let Some(reply) = http().reply(&inbox).expect("well-formed") {
                    lengths.push(reply.length);
                    inbox.drain(..reply.length);
                }
            }
            prop_assert_eq!(lengths, vec![one.len(); 3]);
        }

        #[test]
        fn no_input_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = (http().reply(&bytes), http().last_reply(&bytes));
            for head in ["HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: x\r\n\r\n"] {
                let _ = http().reply(&[head.as_bytes(), &bytes[..]].concat());
            }
        }
    }
}
