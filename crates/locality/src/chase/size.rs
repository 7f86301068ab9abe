//! Working-set sizes as people type them: `24KiB`, `1.5L2`.

use std::str::FromStr;

use crate::chase::caches::Caches;

/// A number of bytes, or a multiple of a cache.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Size {
    /// Bytes.
    Bytes(u64),
    /// A multiple of the level-1 data cache.
    L1d(f64),
    /// A multiple of the level-2 cache.
    L2(f64),
    /// A multiple of the level-3 cache.
    L3(f64),
}

impl Size {
    /// The bytes on this machine; `None` if the cache's size is unknown.
    #[must_use]
    pub fn bytes(self, caches: &Caches) -> Option<u64> {
        let (factor, cache) = match self {
            Self::Bytes(bytes) => return Some(bytes),
            Self::L1d(factor) => (factor, caches.l1d),
            Self::L2(factor) => (factor, caches.l2),
            Self::L3(factor) => (factor, caches.l3),
        };
        cache.map(|bytes| (bytes as f64 * factor) as u64)
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is no size; write 24KiB, 2MiB, 0.5L1d or 1.5L2");
        let end = text
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len());
        let number: f64 = text[..end].parse().map_err(|_| wrong())?;
        let size = match text[end..].to_ascii_lowercase().as_str() {
            "" | "b" => Self::Bytes(number as u64),
            "k" | "kib" => Self::Bytes((number * 1024.0) as u64),
            "m" | "mib" => Self::Bytes((number * 1024.0 * 1024.0) as u64),
            "g" | "gib" => Self::Bytes((number * 1024.0 * 1024.0 * 1024.0) as u64),
            "l1d" | "l1" => Self::L1d(number),
            "l2" => Self::L2(number),
            "l3" => Self::L3(number),
            _ => return Err(wrong()),
        };
        if number > 0.0 && number < 1e12 {
            Ok(size)
        } else {
            Err(wrong())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_bytes_or_multiples_of_a_cache() {
        let caches = Caches {
            l1d: Some(48 << 10),
            l2: Some(2 << 20),
            l3: None,
        };
        for (text, bytes) in [
            ("24KiB", Some(24 << 10)),
            ("4096", Some(4096)),
            ("0.5L1d", Some(24 << 10)),
            ("1.5l2", Some(3 << 20)),
            ("2L3", None),
        ] {
            let size: Size = text.parse().expect(text);
            assert_eq!(size.bytes(&caches), bytes, "{text}");
        }
        for text in [
            "",
            "KiB",
            "0",
            "-1",
            "1e3",
            "5XB",
            "L2",
            "1..2k",
            "99999999999999g",
        ] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }
}
