//! Where a request ends, by the strict reading of RFC 9112: whoever reads it differently reads it
//! wrong.

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// A line of the head does not end with CR LF, or has a control character.
    Line,
    /// The request line is not `METHOD TARGET HTTP/1.1`.
    RequestLine,
    /// A header's name, or what is between it and its colon.
    HeaderName,
    /// A header's value goes on in the next line (obs-fold), or begins the head.
    Folded,
    /// More than one length, one that is no number, or one beside a Transfer-Encoding.
    Length,
    /// A Transfer-Encoding that is not `chunked` alone, or in HTTP/1.0.
    TransferEncoding,
    /// No Host, or several.
    Host,
    /// The head is too large.
    TooLarge,
    /// A chunk's size, or what follows it.
    Chunk,
}

/// A complete head.
#[derive(Debug, PartialEq, Eq)]
pub struct Head {
    /// In bytes, with the empty line.
    pub length: usize,
    /// What follows.
    pub next: Body,
}

/// What follows a head.
#[derive(Debug, PartialEq, Eq)]
pub enum Body {
    /// This number of bytes, then the next request.
    Length(u64),
    /// Chunks.
    Chunked,
    /// Whatever the server's answer decides.
    Upgrade,
}

/// More headers are refused: hyper takes 100.
const MOST_HEADERS: usize = 100;

/// Reads a request's head. `None`: it is not complete.
///
/// # Errors
/// If any server could read it in another way, or it is longer than `largest` bytes.
pub fn check(bytes: &[u8], largest: usize) -> Result<Option<Head>, Refusal> {
    // Empty lines before a request line: RFC 9112 allows one, and no client of today sends it.
    if bytes
        .first()
        .is_some_and(|byte| *byte == b'\r' || *byte == b'\n')
    {
        return Err(Refusal::RequestLine);
    }
    let mut lines = Lines { bytes, at: 0 };
    let mut facts = Facts::default();
    let Some(first) = lines.next()? else {
        return too_large(bytes, largest);
    };
    facts.request_line(first)?;
    loop {
        if lines.at > largest {
            return Err(Refusal::TooLarge);
        }
        match lines.next()? {
            None => return too_large(bytes, largest),
            Some([]) => {
                return Ok(Some(Head {
                    length: lines.at,
                    next: facts.body()?,
                }));
            }
            Some(line) => facts.header(line)?,
        }
    }
}

fn too_large(bytes: &[u8], largest: usize) -> Result<Option<Head>, Refusal> {
    if bytes.len() > largest {
        return Err(Refusal::TooLarge);
    }
    Ok(None)
}

/// Lines that end with CR LF, and in which neither occurs alone.
struct Lines<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl<'b> Lines<'b> {
    fn next(&mut self) -> Result<Option<&'b [u8]>, Refusal> {
        let rest = &self.bytes[self.at..];
        let bad = |byte: u8| byte < b' ' && byte != b'\t' || byte == 0x7f;
        let Some(end) = rest.iter().position(|byte| bad(*byte)) else {
            return Ok(None);
        };
        match rest[end..] {
            [b'\r'] => Ok(None),
            [b'\r', b'\n', ..] => {
                self.at += end + 2;
                Ok(Some(&rest[..end]))
            }
            _ => Err(Refusal::Line),
        }
    }
}

/// What a head says about framing.
#[derive(Debug, Default)]
struct Facts {
    is_1_0: bool,
    is_connect: bool,
    length: Option<u64>,
    chunked: bool,
    upgrade: bool,
    connection_upgrade: bool,
    hosts: usize,
    headers: usize,
}

impl Facts {
    fn request_line(&mut self, line: &[u8]) -> Result<(), Refusal> {
        let mut words = line.split(|byte| *byte == b' ');
        let (Some(method), Some(target), Some(version), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(Refusal::RequestLine);
        };
        let is_target = |byte: &u8| (0x21..0x7f).contains(byte);
        if method.is_empty()
            || !method.iter().all(is_token)
            || target.is_empty()
            || !target.iter().all(is_target)
            || target.contains(&b'#')
        {
            return Err(Refusal::RequestLine);
        }
        self.is_connect = method == b"CONNECT";
        self.is_1_0 = match version {
            b"HTTP/1.1" => false,
            b"HTTP/1.0" => true,
            _ => return Err(Refusal::RequestLine),
        };
        Ok(())
    }

    fn header(&mut self, line: &[u8]) -> Result<(), Refusal> {
        self.headers += 1;
        if self.headers > MOST_HEADERS {
            return Err(Refusal::TooLarge);
        }
        if line[0] == b' ' || line[0] == b'\t' {
            return Err(Refusal::Folded);
        }
        let Some(colon) = line.iter().position(|byte| *byte == b':') else {
            return Err(Refusal::HeaderName);
        };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.is_empty() || !name.iter().all(is_token) {
            return Err(Refusal::HeaderName);
        }
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        if is("content-length") {
            if self.length.is_some() {
                return Err(Refusal::Length);
            }
            self.length = Some(number(value).ok_or(Refusal::Length)?);
        } else if is("transfer-encoding") {
            if self.chunked || !value.eq_ignore_ascii_case(b"chunked") {
                return Err(Refusal::TransferEncoding);
            }
            self.chunked = true;
        } else if is("host") {
            self.hosts += 1;
            if value.iter().any(|byte| b" \t,/@?#".contains(byte)) {
                return Err(Refusal::Host);
            }
        } else if is("upgrade") {
            self.upgrade = true;
        } else if is("connection") {
            self.connection_upgrade |= value
                .split(|byte| *byte == b',')
                .any(|word| word.trim_ascii().eq_ignore_ascii_case(b"upgrade"));
        }
        Ok(())
    }

    fn body(&self) -> Result<Body, Refusal> {
        if self.hosts > 1 || self.hosts == 0 && !self.is_1_0 {
            return Err(Refusal::Host);
        }
        if self.chunked && (self.is_1_0 || self.length.is_some()) {
            return Err(if self.is_1_0 {
                Refusal::TransferEncoding
            } else {
                Refusal::Length
            });
        }
        let has_body = self.chunked || self.length.is_some_and(|length| length > 0);
        let wants_upgrade = self.is_connect || self.upgrade && self.connection_upgrade;
        Ok(match (wants_upgrade, has_body) {
            // Where a body would end and the other protocol begin is read in more than one way.
            (true, true) => return Err(Refusal::Length),
            (true, false) => Body::Upgrade,
            (false, _) if self.chunked => Body::Chunked,
            (false, _) => Body::Length(self.length.unwrap_or(0)),
        })
    }
}

/// A character of a method or of a header's name (RFC 9110, 5.6.2).
fn is_token(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte)
}

/// Decimal digits, and nothing else.
fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 18 || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// A chunked body, followed from its first byte to the end of its trailers.
#[derive(Debug, Default)]
pub struct Chunks {
    at: At,
    /// Bytes of the chunk, or of the line, that were seen or are left.
    size: u64,
    digits: u32,
    trailers: usize,
    /// Whether the line of trailers is empty so far.
    empty: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum At {
    #[default]
    Size,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    Trailer,
    TrailerLf,
}

/// Bytes that all trailers and extensions of a body may have together.
const MOST_TRAILERS: usize = 8192;

impl Chunks {
    /// Follows the body through these bytes. Returns how many are part of it, and whether it ended.
    pub fn follow(&mut self, bytes: &[u8]) -> Result<(usize, bool), Refusal> {
        let mut at = 0;
        while at < bytes.len() {
            if self.at == At::Data {
                let left = usize::try_from(self.size).unwrap_or(usize::MAX);
                let part = left.min(bytes.len() - at);
                self.size -= part as u64;
                at += part;
                if self.size == 0 {
                    self.at = At::DataCr;
                }
                continue;
            }
            let ended = self.byte(bytes[at])?;
            at += 1;
            if ended {
                return Ok((at, true));
            }
        }
        Ok((at, false))
    }

    fn byte(&mut self, byte: u8) -> Result<bool, Refusal> {
        self.at = match (self.at, byte) {
            (At::Size, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') if self.digits < 15 => {
                let digit = char::from(byte).to_digit(16).unwrap_or(0);
                self.size = self.size << 4 | u64::from(digit);
                self.digits += 1;
                At::Size
            }
            (At::Size, b'\r') if self.digits > 0 => At::SizeLf,
            (At::Size, b';') if self.digits > 0 => At::Extension,
            (At::Extension, b'\r') => At::SizeLf,
            (At::Extension, b'\t' | b' '..=b'~' | 0x80..) => {
                self.spend()?;
                At::Extension
            }
            (At::SizeLf, b'\n') => {
                self.digits = 0;
                self.empty = true;
                if self.size == 0 {
                    At::Trailer
                } else {
                    At::Data
                }
            }
            (At::DataCr, b'\r') => At::DataLf,
            (At::DataLf, b'\n') => At::Size,
            (At::Trailer, b'\r') => At::TrailerLf,
            (At::Trailer, b' ' | b'\t') if self.empty => return Err(Refusal::Folded),
            (At::Trailer, b'\t' | b' '..=b'~' | 0x80..) => {
                self.spend()?;
                self.empty = false;
                At::Trailer
            }
            (At::TrailerLf, b'\n') if self.empty => return Ok(true),
            (At::TrailerLf, b'\n') => {
                self.empty = true;
                At::Trailer
            }
            _ => return Err(Refusal::Chunk),
        };
        Ok(false)
    }

    fn spend(&mut self) -> Result<(), Refusal> {
        self.trailers += 1;
        if self.trailers > MOST_TRAILERS {
            return Err(Refusal::TooLarge);
        }
        Ok(())
    }
}
