//! What `make fuzz` calls: clients' bytes, against another reading of them, and datagrams of hazards.

use crate::screen::{Body, Chunks, LARGEST_HEAD, check};

/// Follows requests one after the other. Each head that passes must be one for httparse too, of the
/// same length, with one length of the body at most.
///
/// # Panics
/// If the two readings differ.
pub fn requests(bytes: &[u8]) {
    let mut at = 0;
    while let Ok(Some(head)) = check(&bytes[at..], LARGEST_HEAD) {
        agree(&bytes[at..], head.length, &head.next);
        at += head.length;
        match head.next {
            Body::Upgrade => return,
            Body::Length(length) => {
                let left = (bytes.len() - at) as u64;
                at += length.min(left) as usize;
            }
            Body::Chunked => match Chunks::default().follow(&bytes[at..]) {
                Ok((length, true)) => at += length,
                _ => return,
            },
        }
    }
}

/// Reads a datagram of hazards, both ways.
///
/// # Panics
/// If what was read is written as other bytes.
pub fn datagrams(bytes: &[u8]) {
    crate::remote::fuzz(bytes);
}

fn agree(bytes: &[u8], length: usize, next: &Body) {
    let mut headers = [httparse::EMPTY_HEADER; 100];
    let mut request = httparse::Request::new(&mut headers);
    let parsed = request.parse(bytes);
    assert_eq!(parsed, Ok(httparse::Status::Complete(length)));
    let of = |name: &str| {
        let all = request.headers.iter();
        let named = all.filter(|header| header.name.eq_ignore_ascii_case(name));
        named.map(|header| header.value).collect::<Vec<_>>()
    };
    let (lengths, codings) = (of("content-length"), of("transfer-encoding"));
    match next {
        Body::Length(0) | Body::Upgrade => assert!(codings.is_empty() && lengths.len() <= 1),
        Body::Length(length) => {
            assert!(codings.is_empty());
            let text = String::from_utf8_lossy(lengths[0]);
            assert_eq!(text.parse(), Ok(*length));
        }
        Body::Chunked => {
            assert!(lengths.is_empty() && request.version == Some(1));
            assert!(codings.len() == 1 && codings[0].eq_ignore_ascii_case(b"chunked"));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PIECES: &[&[u8]] = &[
        b"GET / HTTP/1.1\r\nHost: a\r\n",
        b"POST /\x80 HTTP/1.0\r\n",
        b"Content-Length: 3\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Connection: upgrade\r\nUpgrade: x\r\n",
        b"X:\t y \r\n",
        b"X: \xff\r\n",
        b"3\r\nabc\r\n",
        b"0\r\n",
        b"abc",
        b"\r\n",
        b"\n",
        b"\r",
        b" ",
        b"\0",
        b":",
    ];

    proptest! {
        #[test]
        fn two_readings_of_requests_agree(
            pieces in proptest::collection::vec(proptest::sample::select(PIECES), 0..12),
        ) {
            requests(&pieces.concat());
        }
    }
}
