//! The units of this machine's cores that count events, as sysfs shows them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Where the kernel lists its PMUs.
const DEVICES: &str = "/sys/bus/event_source/devices";

/// Types below `PERF_TYPE_RAW` but for `cpu` itself are no units of a core: software, tracepoints,
/// breakpoints.
const RAW: u32 = 4;

/// One unit: what it calls its events, and where the terms of an event go.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pmu {
    /// As in `cpu/event=0x3c/`.
    pub name: String,
    /// For the kernel.
    pub kind: u32,
    /// `event` → the bits of a word that it fills.
    pub(super) formats: BTreeMap<String, Field>,
    /// `cache-misses` → `event=0x2e,umask=0x41`.
    pub(super) aliases: BTreeMap<String, String>,
}

/// Which word of the event a term goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word {
    Config,
    Config1,
    Config2,
}

/// Where a term's value goes: bit ranges, lowest bits of the value first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) word: Word,
    ranges: Vec<(u32, u32)>,
}

/// All units of this machine's cores. None: it has no hardware counters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pmus(pub Vec<Pmu>);

impl Pmus {
    /// Those of this machine.
    #[must_use]
    pub fn here() -> Self {
        Self::read(Path::new(DEVICES))
    }

    /// Those in a copy of sysfs's folder. What can't be read or understood is left out.
    #[must_use]
    pub fn read(devices: &Path) -> Self {
        let mut found: Vec<Pmu> = fs::read_dir(devices)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| Pmu::read(&entry.path()))
            .collect();
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Self(found)
    }

    pub(super) fn find(&self, name: &str) -> Option<&Pmu> {
        self.0.iter().find(|pmu| pmu.name == name)
    }
}

impl Pmu {
    fn read(folder: &Path) -> Option<Self> {
        let name = folder.file_name()?.to_str()?.to_owned();
        let kind = text(&folder.join("type"))?.parse().ok()?;
        // A core's is `cpu`, or says of which cores; units that are shared have a `cpumask`.
        let of_cores = kind == RAW || folder.join("cpus").exists();
        if !of_cores {
            return None;
        }
        let formats = entries(&folder.join("format"))
            .filter_map(|(name, text)| Some((name, Field::parse(&text)?)))
            .collect();
        let aliases = entries(&folder.join("events"))
            .filter(|(name, _)| !name.contains('.')) // .scale and .unit
            .collect();
        Some(Self {
            name,
            kind,
            formats,
            aliases,
        })
    }
}

fn entries(folder: &Path) -> impl Iterator<Item = (String, String)> {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    files.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        Some((name, text(&entry.path())?))
    })
}

fn text(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

impl Field {
    /// `config:0-7,32-35`
    fn parse(text: &str) -> Option<Self> {
        let (word, ranges) = text.split_once(':')?;
        let word = match word {
            "config" => Word::Config,
            "config1" => Word::Config1,
            "config2" => Word::Config2,
            _ => return None,
        };
        let ranges = ranges
            .split(',')
            .map(|range| {
                let (low, high) = range.split_once('-').unwrap_or((range, range));
                let (low, high) = (low.parse().ok()?, high.parse().ok()?);
                (low <= high && high < u64::BITS).then_some((low, high))
            })
            .collect::<Option<Vec<(u32, u32)>>>()?;
        Some(Self { word, ranges })
    }

    /// All of it.
    pub(super) fn whole(word: Word) -> Self {
        Self {
            word,
            ranges: vec![(0, u64::BITS - 1)],
        }
    }

    /// The value in its place; `None` if it has more bits than that.
    pub(super) fn place(&self, mut value: u64) -> Option<u64> {
        let mut placed = 0;
        for (low, high) in &self.ranges {
            let bits = high - low + 1;
            let mask = u64::MAX >> (u64::BITS - bits);
            placed |= (value & mask) << low;
            value = value.checked_shr(bits).unwrap_or(0);
        }
        (value == 0).then_some(placed)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn formats_are_ranges_of_bits() {
        let field = Field::parse("config:0-7,32-35").expect("a format");
        assert_eq!(field.place(0xabc), Some(0xa_0000_00bc));
        assert_eq!(field.place(0x1000), None);
        assert_eq!(
            Field::parse("config1:3").expect("a format").place(1),
            Some(8)
        );
        for wrong in [
            "config:7-0",
            "config:0-64",
            "config9:1",
            "config",
            "config:",
        ] {
            assert_eq!(Field::parse(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn a_word_that_is_all_of_it_holds_any_value(value: u64) {
            prop_assert_eq!(Field::whole(Word::Config1).place(value), Some(value));
        }

        #[test]
        fn foreign_formats_never_panic(text: String, value: u64) {
            if let Some(field) = Field::parse(&text) {
                let _ = field.place(value);
            }
        }
    }
}
