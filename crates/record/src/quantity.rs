//! Quantities as people type them, on the command line and in files.

use std::time::Duration;

/// Reads a duration: `20s`, `500ms`, `10m`, `2h`; a bare number is seconds.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let factor = match unit {
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => {
            return Err(format!(
                "'{unit}' is not a unit of time; use ms, s, m, h or d"
            ));
        }
    };
    let seconds = number
        .parse::<f64>()
        .map_err(|_| format!("'{text}' is not a duration; write 20s or 500ms"))?;
    let duration = Duration::try_from_secs_f64(seconds * factor)
        .map_err(|_| format!("'{text}' is too long"))?;
    if duration.is_zero() {
        return Err("a duration must be longer than 0".into());
    }
    Ok(duration)
}

/// Reads a short time in ns: `2ms`, `500us`, `1s`.
pub fn parse_nanos(text: &str) -> Result<u64, String> {
    let short = ["us", "µs"].iter().find_map(|unit| text.strip_suffix(unit));
    let ns = match short {
        Some(number) => {
            number
                .parse::<f64>()
                .map_err(|_| format!("'{text}' is not a time; write 500us or 2ms"))?
                * 1e3
        }
        None => parse_duration(text)?.as_nanos() as f64,
    };
    if (1.0..1e18).contains(&ns) {
        Ok(ns as u64)
    } else {
        Err(format!(
            "'{text}' is not a time that a request can take; write 500us or 2ms"
        ))
    }
}

/// Reads a probability: `1%`, `0.01`; above 0, at most 1.
pub fn parse_probability(text: &str) -> Result<f64, String> {
    let wrong =
        || format!("'{text}' is not a share; write one above 0 and up to 100%, such as 1% or 0.01");
    let p = match text.strip_suffix('%') {
        Some(percent) => percent.parse::<f64>().map_err(|_| wrong())? / 100.0,
        None => text.parse::<f64>().map_err(|_| wrong())?,
    };
    if p > 0.0 && p <= 1.0 {
        Ok(p)
    } else {
        Err(wrong())
    }
}

/// Reads a percentile: `p99`, `99.9%`; above 0 and below 100.
pub fn parse_percentile(text: &str) -> Result<f64, String> {
    let wrong = || format!("'{text}' is not a percentile; write p99 or p99.9");
    let number = text.strip_prefix('p').unwrap_or(text);
    let percent: f64 = number
        .strip_suffix('%')
        .unwrap_or(number)
        .parse()
        .map_err(|_| wrong())?;
    if percent > 0.0 && percent < 100.0 {
        Ok(percent / 100.0)
    } else {
        Err(wrong())
    }
}

/// Reads bytes a second: `100KB/s`, `2MB/s`, `500000`; a unit is a thousand of the one before.
pub fn parse_byte_rate(text: &str) -> Result<u64, String> {
    bytes(text.strip_suffix("/s").unwrap_or(text))
        .ok_or_else(|| format!("'{text}' is not a number of bytes a second; write 100KB/s"))
}

/// Reads bytes: `256MB`, `10GB`; a unit is a thousand of the one before.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    bytes(text).ok_or_else(|| format!("'{text}' is not a number of bytes; write 256MB"))
}

fn bytes(amount: &str) -> Option<u64> {
    let end = amount
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(amount.len());
    let (number, unit) = amount.split_at(end);
    let factor = match unit.to_ascii_uppercase().as_str() {
        "" | "B" => 1.0,
        "K" | "KB" => 1e3,
        "M" | "MB" => 1e6,
        "G" | "GB" => 1e9,
        "T" | "TB" => 1e12,
        _ => return None,
    };
    let bytes = number.parse::<f64>().ok()? * factor;
    (1.0..1e18).contains(&bytes).then_some(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_in_every_unit() {
        for (text, ms) in [
            ("20s", 20_000),
            ("500ms", 500),
            ("1.5m", 90_000),
            ("3", 3_000),
        ] {
            assert_eq!(
                parse_duration(text),
                Ok(Duration::from_millis(ms)),
                "{text}"
            );
        }
        for text in ["", "s", "-1s", "1y", "0s", "1e400s"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn shares_are_read_as_percent_or_plain() {
        assert_eq!(parse_probability("1%"), Ok(0.01));
        assert_eq!(parse_probability("0.25"), Ok(0.25));
        for text in ["0", "101%", "-1%", "x", "nan"] {
            assert!(parse_probability(text).is_err(), "{text}");
        }
    }

    #[test]
    fn bytes_are_read_in_every_unit() {
        for (text, count) in [
            ("10GB", 10_000_000_000),
            ("1.5k", 1500),
            ("7", 7),
            ("2TB", 2e12 as u64),
        ] {
            assert_eq!(parse_bytes(text), Ok(count), "{text}");
        }
        assert_eq!(parse_byte_rate("100KB/s"), Ok(100_000));
        for text in ["", "GB", "-1", "0", "inf", "1e99", "5XB"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }
}
