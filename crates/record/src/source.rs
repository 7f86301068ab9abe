//! Where spans come from: what `--span` names.

use std::fmt;
use std::str::FromStr;

use tailscope_kernel::MAX_PROBE_SOURCES;

use crate::probe::{ProbeSource, ProbeSyntax};

/// A source of spans.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SpanSource {
    /// `sdk`: the program says where its spans begin and end.
    Sdk,
    /// `syscall:recv..send`: from the return of a receive to the end of the next send on the same
    /// socket.
    RecvSend,
    /// `syscall:ready..send`: the same from the moment when the request was ready at its socket,
    /// so that the wait for the thread is part of the span.
    ReadySend,
    /// `request`: from the moment when a request was ready at its socket to the last send of its
    /// answer, by any thread, put together from what threads did for it.
    Request,
    /// `usdt:…` and `uprobe:…`: probes in a program begin and end it.
    Probes(ProbeSource),
}

/// What `--span` was given is no source.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// It is not known.
    #[error(
        "unknown span source '{0}': use sdk, syscall:recv..send, syscall:ready..send, request, \
         usdt:PATH:PROVIDER:BEGIN..END or uprobe:PATH:SYMBOL"
    )]
    Unknown(String),
    /// It names no probes.
    #[error(transparent)]
    Probes(#[from] ProbeSyntax),
    /// Two kinds of socket spans at once.
    #[error(
        "syscall:recv..send, syscall:ready..send and request exclude each other: each records the same \
         requests; use one"
    )]
    TwoSockets,
    /// Threads that the SDK meters are not followed.
    #[error("request and sdk exclude each other: threads with SDK spans are not followed; use one")]
    RequestAndSdk,
    /// More than can be told apart.
    #[error("{0} sources with probes are too many; use at most {MAX_PROBE_SOURCES}")]
    TooManyProbes(usize),
}

impl SpanSource {
    /// The name that spans of this source have in the ledger, where they have none of their own.
    #[must_use]
    pub fn span_name(&self) -> String {
        match self {
            Self::Sdk => "sdk".into(),
            Self::RecvSend => "recv..send".into(),
            Self::ReadySend => "ready..send".into(),
            Self::Request => "request".into(),
            Self::Probes(source) => source.span_name(),
        }
    }

    /// What suits programs that don't have the SDK, if so large a share of their requests is metered. A
    /// share is chosen as requests begin, and a request that changes threads takes in all that those do.
    #[must_use]
    pub fn usual(sample: f64) -> Self {
        if sample < 1.0 {
            Self::ReadySend
        } else {
            Self::Request
        }
    }

    /// Those that are probes, in their order.
    pub fn probes(sources: &[Self]) -> impl Iterator<Item = &ProbeSource> {
        sources.iter().filter_map(|source| match source {
            Self::Probes(probes) => Some(probes),
            _ => None,
        })
    }

    /// Checks that sources go together.
    pub fn check(sources: &[Self]) -> Result<(), SourceError> {
        let of_sockets = [Self::RecvSend, Self::ReadySend, Self::Request];
        if of_sockets.iter().filter(|of| sources.contains(of)).count() > 1 {
            return Err(SourceError::TwoSockets);
        }
        if sources.contains(&Self::Request) && sources.contains(&Self::Sdk) {
            return Err(SourceError::RequestAndSdk);
        }
        match Self::probes(sources).count() {
            count if count > MAX_PROBE_SOURCES => Err(SourceError::TooManyProbes(count)),
            _ => Ok(()),
        }
    }
}

impl FromStr for SpanSource {
    type Err = SourceError;

    fn from_str(text: &str) -> Result<Self, SourceError> {
        match text {
            "sdk" => Ok(Self::Sdk),
            "syscall:recv..send" => Ok(Self::RecvSend),
            "syscall:ready..send" => Ok(Self::ReadySend),
            "request" => Ok(Self::Request),
            probes if ProbeSource::is_meant(probes) => Ok(Self::Probes(probes.parse()?)),
            _ => Err(SourceError::Unknown(text.to_owned())),
        }
    }
}

impl fmt::Display for SpanSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sdk => f.write_str("sdk"),
            Self::RecvSend => f.write_str("syscall:recv..send"),
            Self::ReadySend => f.write_str("syscall:ready..send"),
            Self::Request => f.write_str("request"),
            Self::Probes(source) => source.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_source_reads_its_own_text() {
        let probes = "work=usdt:/bin/server:server:begin(id=arg0)..end".parse();
        for source in [
            SpanSource::Sdk,
            SpanSource::RecvSend,
            SpanSource::ReadySend,
            SpanSource::Request,
            SpanSource::Probes(probes.expect("it is one")),
        ] {
            assert_eq!(source.to_string().parse(), Ok(source));
        }
    }

    #[test]
    fn an_unknown_source_names_the_known_ones() {
        let error = "jvm:x"
            .parse::<SpanSource>()
            .expect_err("it is unknown")
            .to_string();
        assert!(error.contains("syscall:recv..send"), "{error}");
        assert!(error.contains("usdt:PATH"), "{error}");
    }

    #[test]
    fn more_probes_than_can_be_told_apart_are_refused() {
        let source: SpanSource = "uprobe:server:work".parse().expect("it is one");
        let sources = vec![source; MAX_PROBE_SOURCES + 1];
        assert_eq!(SpanSource::check(&sources[..MAX_PROBE_SOURCES]), Ok(()));
        assert_eq!(
            SpanSource::check(&sources),
            Err(SourceError::TooManyProbes(MAX_PROBE_SOURCES + 1))
        );
    }
}
