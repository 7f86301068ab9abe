//! How values are written in the configuration: mostly as on the command line.

use std::net::SocketAddr;
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use tailscope_record::quantity::{
    parse_byte_rate, parse_bytes, parse_duration, parse_percentile, parse_probability,
};
use toml::Spanned;

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

pub(super) fn maybe_percentile<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<f64>, D::Error> {
    read(from, parse_percentile).map(Some)
}

pub(super) fn maybe_byte_rate<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    read(from, parse_byte_rate).map(Some)
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
            "'{text}' is no address and port: try 127.0.0.1:9745, or \"\" for none"
        ))
    })
}

pub(super) fn endpoint<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let text = String::deserialize(from)?;
    let rest = text
        .strip_prefix("http://")
        .or(text.strip_prefix("https://"));
    match rest {
        Some(rest) if !rest.is_empty() && !rest.contains(char::is_whitespace) => {
            Ok(text.trim_end_matches('/').to_owned())
        }
        _ => Err(D::Error::custom(format!(
            "'{text}' is no endpoint: try http://127.0.0.1:4318, or https://"
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
