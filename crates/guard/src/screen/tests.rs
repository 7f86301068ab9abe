use proptest::prelude::*;
use tokio::io::AsyncReadExt;

use super::*;

/// What hyper gets of these bytes, which arrive in pieces of this size; and whether an error came.
fn through(bytes: &[u8], piece: usize) -> (Vec<u8>, bool) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let mut mock = Pieces {
            bytes: bytes.to_vec(),
            at: 0,
            piece,
        };
        let (mut screen, gate) = Screen::new(&mut mock, |_| {});
        gate.decide(false);
        let (mut got, mut buffer) = (Vec::new(), [0; 7]);
        loop {
            // An upgrade is undecided until somebody answers: nobody does here.
            let read = tokio::time::timeout(std::time::Duration::ZERO, screen.read(&mut buffer));
            match read.await {
                Ok(Ok(0)) | Err(_) => return (got, false),
                Ok(Ok(count)) => got.extend_from_slice(&buffer[..count]),
                Ok(Err(_)) => return (got, true),
            }
        }
    })
}

struct Pieces {
    bytes: Vec<u8>,
    at: usize,
    piece: usize,
}

impl AsyncRead for &mut Pieces {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let end = (self.at + self.piece).min(self.bytes.len());
        into.put_slice(&self.bytes[self.at..end]);
        self.at = end;
        Poll::Ready(Ok(()))
    }
}

const GOOD: &[&str] = &[
    "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET / HTTP/1.0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\na;x=1\r\n0123456789\r\n0\r\nX: y\r\n\r\n",
    "GET /a?b HTTP/1.1\r\nhost:a\r\nX-Empty:\r\nX-Utf: \u{e9}\r\n\r\n",
];

/// Each is refused, whatever it would do to whoever reads it differently.
pub(super) const BAD: &[&str] = &[
    "GET / HTTP/1.1\nHost: a\n\n",
    "GET / HTTP/1.1\r\nHost: a\nX: y\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\n X: y\r\n\r\n",
    "GET / HTTP/1.1\r\nHost : a\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "GET / HTTP/1.1\r\n\r\n",
    "GET /  HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET / HTTP/1.2\r\nHost: a\r\n\r\n",
    "GET / HTTP/2.0\r\nHost: a\r\n\r\n",
    "GET /\r\n\r\n",
    "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\nhello",
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 5\r\n\r\nhello",
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x5\r\n\r\nhello",
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\nhello",
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \u{b}chunked\r\n\r\n0\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nX y\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nX(y: z\r\n\r\n",
    "GET /#a HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET /\u{e9} HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a, b\r\n\r\n",
    "CONNECT a:1 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
    "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\nContent-Length: 5\r\n\r\nhello",
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
];

#[test]
fn good_requests_pass_unchanged_however_they_arrive() {
    for request in GOOD {
        let twice = [request.as_bytes(), request.as_bytes()].concat();
        for piece in [1, 3, 1000] {
            let (got, failed) = through(&twice, piece);
            assert_eq!(
                String::from_utf8_lossy(&got),
                String::from_utf8_lossy(&twice)
            );
            assert!(!failed, "{request:?}");
        }
    }
}

#[test]
fn of_a_bad_request_nothing_passes_but_what_hyper_refuses() {
    for request in BAD {
        for piece in [1, 1000] {
            let (got, failed) = through(request.as_bytes(), piece);
            assert_eq!((got.as_slice(), failed), (REFUSED, false), "{request:?}");
        }
    }
}

#[test]
fn a_bad_chunk_ends_the_connection() {
    let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    for body in [
        "5\nhello\r\n0\r\n\r\n",
        "5\r\nhello0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "-5\r\n",
        "0x5\r\nhello\r\n",
        "\r\n",
        "5 \r\nhello\r\n",
        "fffffffffffffffff\r\n",
        "0\r\n X: y\r\n\r\n",
        "0\r\nX: y\n\r\n",
    ] {
        let (_, failed) = through(format!("{head}{body}").as_bytes(), 1000);
        assert!(failed, "{body:?}");
    }
}

#[test]
fn heads_have_a_largest_size() {
    let request = format!(
        "GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n",
        "y".repeat(LARGEST_HEAD)
    );
    assert_eq!(through(request.as_bytes(), 1000).0, REFUSED);
    let endless = "GET /".to_owned() + &"y".repeat(2 * LARGEST_HEAD);
    assert_eq!(through(endless.as_bytes(), 1000).0, REFUSED);
    let many = format!(
        "GET / HTTP/1.1\r\nHost: a\r\n{}\r\n",
        "X: y\r\n".repeat(101)
    );
    assert_eq!(through(many.as_bytes(), 1000).0, REFUSED);
}

#[test]
fn bytes_after_a_request_to_upgrade_wait_for_its_answer() {
    let upgrade = "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n";
    let (got, failed) = through(format!("{upgrade}GET /smuggled").as_bytes(), 1000);
    assert_eq!(
        (String::from_utf8_lossy(&got).as_ref(), failed),
        (upgrade, false)
    );
}

proptest! {
    #[test]
    fn foreign_bytes_never_panic_and_pass_only_as_requests(
        bytes in proptest::collection::vec(any::<u8>(), 0..200), piece in 1usize..50,
    ) {
        let (got, _) = through(&bytes, piece);
        prop_assert!(got.is_empty() || got == REFUSED);
    }

    #[test]
    fn how_bytes_arrive_makes_no_difference(
        words in proptest::collection::vec(0usize..GOOD.len() + BAD.len(), 1..4), piece in 1usize..50,
    ) {
        let request = |at: &usize| *GOOD.iter().chain(BAD).nth(*at).expect("in range");
        let bytes: String = words.iter().map(request).collect();
        prop_assert_eq!(through(bytes.as_bytes(), piece), through(bytes.as_bytes(), 1000));
    }
}
