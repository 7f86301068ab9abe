//! Where spans come from: what `--span` names.

use std::fmt;
use std::str::FromStr;

/// A source of spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanSource {
    /// `sdk`: the program says where its spans begin and end.
    Sdk,
    /// `syscall:recv..send`: from the return of a receive to the end of the next send on the same
    /// socket.
    RecvSend,
    /// `syscall:ready..send`: the same from the moment when the request was ready at its socket,
    /// so that the wait for the thread is part of the span.
    ReadySend,
}

/// What `--span` was given is no source.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// It is not known.
    #[error("unknown span source '{0}': use sdk, syscall:recv..send or syscall:ready..send")]
    Unknown(String),
    /// Both kinds of socket spans at once.
    #[error(
        "syscall:recv..send and syscall:ready..send exclude each other: the second holds the first"
    )]
    TwoSockets,
}

impl SpanSource {
    /// The name that spans of this source have in the ledger; the SDK's have their own.
    #[must_use]
    pub const fn span_name(self) -> &'static str {
        match self {
            Self::Sdk => "sdk",
            Self::RecvSend => "recv..send",
            Self::ReadySend => "ready..send",
        }
    }

    /// Checks that sources go together.
    pub fn check(sources: &[Self]) -> Result<(), SourceError> {
        if sources.contains(&Self::RecvSend) && sources.contains(&Self::ReadySend) {
            return Err(SourceError::TwoSockets);
        }
        Ok(())
    }
}

impl FromStr for SpanSource {
    type Err = SourceError;

    fn from_str(text: &str) -> Result<Self, SourceError> {
        match text {
            "sdk" => Ok(Self::Sdk),
            "syscall:recv..send" => Ok(Self::RecvSend),
            "syscall:ready..send" => Ok(Self::ReadySend),
            _ => Err(SourceError::Unknown(text.to_owned())),
        }
    }
}

impl fmt::Display for SpanSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sdk => "sdk",
            Self::RecvSend => "syscall:recv..send",
            Self::ReadySend => "syscall:ready..send",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_source_reads_its_own_text() {
        for source in [SpanSource::Sdk, SpanSource::RecvSend, SpanSource::ReadySend] {
            assert_eq!(source.to_string().parse(), Ok(source));
        }
    }

    #[test]
    fn an_unknown_source_names_the_known_ones() {
        let error = "usdt:x"
            .parse::<SpanSource>()
            .expect_err("it is unknown")
            .to_string();
        assert!(error.contains("syscall:recv..send"), "{error}");
    }
}
