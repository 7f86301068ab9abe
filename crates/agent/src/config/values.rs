//! How values are written in the configuration: mostly as on the command line.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use tailscope_record::Naming;
use tailscope_record::quantity::{
    parse_byte_rate, parse_bytes, parse_duration, parse_percentile, parse_probability,
};
use toml::Spanned;
use ureq::http::{HeaderName, HeaderValue, Uri};

/// Some 300 MB of spans.
const MOST_QUEUED: usize = 1_000_000;

/// Reads what is written as on the command line, as a text or a bare number.
fn read<'de, D: Deserializer<'de>, T>(
    from: D,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<T, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a text or a number was expected")]
    enum Written {
        Text(String),
        Whole(i64),
        Broken(f64),
    }
    let text = match Written::deserialize(from)? {
        Written::Text(text) => text,
        Written::Whole(number) => number.to_string(),
        Written::Broken(number) => number.to_string(),
    };
    parse(&text).map_err(D::Error::custom)
}

pub(super) fn share<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    read(from, parse_probability)
}

pub(super) fn maybe_share<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    share(from).map(Some)
}

/// A share of the programs' time, less than all of it.
pub(super) fn overhead<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Spanned<f64>>, D::Error> {
    #[derive(Deserialize)]
    struct Share(#[serde(deserialize_with = "share")] f64);
    let read = Spanned::<Share>::deserialize(from)?;
    let (span, Share(share)) = (read.span(), read.into_inner());
    if share < 1.0 {
        return Ok(Some(Spanned::new(span, share)));
    }
    Err(D::Error::custom(
        "overhead is no bound; write a share such as \"1%\"",
    ))
}

pub(super) fn maybe_percentile<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<f64>, D::Error> {
    read(from, parse_percentile).map(Some)
}

pub(super) fn maybe_byte_rate<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    read(from, parse_byte_rate).map(Some)
}

pub(super) fn naming<'de, D: Deserializer<'de>>(from: D) -> Result<Spanned<Naming>, D::Error> {
    let text = Spanned::<String>::deserialize(from)?;
    let naming = text.as_ref().parse().map_err(D::Error::custom)?;
    Ok(Spanned::new(text.span(), naming))
}

pub(super) fn duration<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    read(from, parse_duration)
}

/// `""` is nowhere.
pub(super) fn listen<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SocketAddr>, D::Error> {
    let text = String::deserialize(from)?;
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| {
        D::Error::custom(format!(
            "'{text}' is not an address and port; write 127.0.0.1:9745, or \"\" for none"
        ))
    })
}

pub(super) fn endpoint<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let text = String::deserialize(from)?;
    let base = text.trim_end_matches('/');
    if base.ends_with("/v1/traces") {
        return Err(D::Error::custom(
            "endpoint ends in /v1/traces, which the agent adds; leave it out",
        ));
    }
    if is_endpoint(base) {
        Ok(base.to_owned())
    } else {
        Err(D::Error::custom(format!(
            "'{text}' is not an endpoint; write http://127.0.0.1:4318, or https://…"
        )))
    }
}

/// A scheme that is spoken, a host, perhaps a port, perhaps a path.
fn is_endpoint(text: &str) -> bool {
    let Ok(uri) = text.parse::<Uri>() else {
        return false;
    };
    let is_spoken = text.starts_with("http://") || text.starts_with("https://");
    let has_host = uri.authority().is_some_and(|authority| {
        let host = authority.host();
        let (_, behind) = authority.as_str().rsplit_once(host).unwrap_or_default();
        !host.is_empty() && (behind.is_empty() || authority.port_u16().is_some())
    });
    is_spoken && has_host && !text.contains(['?', '#'])
}

/// Names and texts that HTTP allows.
pub(super) fn headers<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<BTreeMap<String, String>, D::Error> {
    let headers = BTreeMap::<String, String>::deserialize(from)?;
    let of_http = |(name, text): (String, String)| {
        if HeaderName::from_bytes(name.as_bytes()).is_err() {
            return Err(D::Error::custom(format!(
                "'{name}' is not a valid header name"
            )));
        }
        if HeaderValue::from_str(&text).is_err() {
            return Err(D::Error::custom(format!(
                "the value of header '{name}' has characters that HTTP does not allow"
            )));
        }
        Ok((name, text))
    };
    headers.into_iter().map(of_http).collect()
}

/// Spans a second.
pub(super) fn rate<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    match u32::deserialize(from)? {
        0 => Err(D::Error::custom(
            "0 would send nothing; leave [otlp] out instead",
        )),
        rate => Ok(rate),
    }
}

/// Spans that may wait: their room is taken at once.
pub(super) fn queue<'de, D: Deserializer<'de>>(from: D) -> Result<usize, D::Error> {
    match usize::deserialize(from)? {
        queue @ 1..=MOST_QUEUED => Ok(queue),
        queue => Err(D::Error::custom(format!(
            "queue is {queue} spans; use 1 to {MOST_QUEUED}"
        ))),
    }
}

pub(super) fn spanned_bytes<'de, D: Deserializer<'de>>(from: D) -> Result<Spanned<u64>, D::Error> {
    #[derive(Deserialize)]
    struct Bytes(#[serde(deserialize_with = "bytes")] u64);
    fn bytes<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        read(from, parse_bytes)
    }
    let read = Spanned::<Bytes>::deserialize(from)?;
    Ok(Spanned::new(read.span(), read.into_inner().0))
}

pub(super) fn spanned_duration<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Spanned<Duration>, D::Error> {
    #[derive(Deserialize)]
    struct Time(#[serde(deserialize_with = "duration")] Duration);
    let read = Spanned::<Time>::deserialize(from)?;
    Ok(Spanned::new(read.span(), read.into_inner().0))
}
