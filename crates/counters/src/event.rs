//! From the name of an event to what the kernel is told of it.

use tailscope_signals::abi;

use crate::generic;
use crate::pmu::{Field, Pmu, Pmus, Word};

/// `PERF_TYPE_RAW`.
const RAW: u32 = 4;
/// Columns of a ledger are no longer than this.
const MOST_LETTERS: usize = 63;
/// On arm64 bits of `config1`: count in 64 bits, and let user space read.
const ARM_LONG_AND_READABLE: u64 = 0b11;

/// An event that a core counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// As it was asked for.
    pub name: String,
    /// The ledger's column: in lower case, `_` for every character but letters and digits.
    pub column: String,
    /// `type` of `struct perf_event_attr`.
    pub kind: u32,
    /// `config`, `config1`, `config2`.
    pub config: [u64; 3],
}

/// What was asked for is no event of this machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EventError {
    /// No such name.
    #[error(
        "this machine has no event '{name}'{}; `perf list` shows the names, and raw events look like r01c2 or cpu/event=0xc2,umask=0x1/",
        nearest(.near)
    )]
    Unknown {
        /// The name.
        name: String,
        /// Names like it.
        near: Vec<String>,
    },
    /// A unit that this machine has not.
    #[error("'{event}': this machine has no PMU '{pmu}' ({})", there(.have))]
    NoPmu {
        /// The event.
        event: String,
        /// The unit.
        pmu: String,
        /// Those it has.
        have: Vec<String>,
    },
    /// A term that the unit has not, or whose value does not fit.
    #[error("'{event}': {why}")]
    Term {
        /// The event.
        event: String,
        /// What is wrong.
        why: String,
    },
}

fn nearest(names: &[String]) -> String {
    match names {
        [] => String::new(),
        names => format!(" (did you mean {}?)", names.join(", ")),
    }
}

fn there(names: &[String]) -> String {
    match names {
        [] => "it has none: no hardware counters".to_owned(),
        names => format!("it has {}", names.join(", ")),
    }
}

impl Event {
    /// Reads one name: a generic one (`instructions`, `L1-dcache-load-misses`), one that a PMU of
    /// this machine has in sysfs (`topdown-retiring`, `cpu/topdown-retiring/`), or a raw one
    /// (`r01c2`, `cpu/event=0xc2,umask=0x1,name=uops/`).
    pub fn parse(name: &str, pmus: &Pmus) -> Result<Self, EventError> {
        if let Some((pmu, terms)) = name.strip_suffix('/').and_then(|all| all.split_once('/')) {
            return Self::of_pmu(name, pmu, terms, pmus);
        }
        if let Some((known, kind, config)) = generic::find(name) {
            return Ok(Self::new(&known, &known, kind, [config, 0, 0]));
        }
        if let Some(config) = raw(name) {
            return Ok(Self::new(name, name, RAW, [config, 0, 0]));
        }
        let having = pmus.0.iter().find(|pmu| pmu.aliases.contains_key(name));
        match having {
            Some(pmu) => Self::of_pmu(name, &pmu.name, name, pmus)
                .map(|event| Self::new(name, name, event.kind, event.config)),
            None => Err(EventError::Unknown {
                name: name.to_owned(),
                near: near(name, pmus),
            }),
        }
    }

    /// Several, with a comma between two; commas between slashes belong to an event.
    pub fn parse_list(list: &str, pmus: &Pmus) -> Result<Vec<Self>, EventError> {
        let mut in_slashes = false;
        list.split(|letter| {
            in_slashes ^= letter == '/';
            letter == ',' && !in_slashes
        })
        .map(|name| Self::parse(name.trim(), pmus))
        .collect()
    }

    fn of_pmu(name: &str, pmu: &str, terms: &str, pmus: &Pmus) -> Result<Self, EventError> {
        let unit = pmus.find(pmu).ok_or_else(|| EventError::NoPmu {
            event: name.to_owned(),
            pmu: pmu.to_owned(),
            have: pmus.0.iter().map(|pmu| pmu.name.clone()).collect(),
        })?;
        let mut event = Self::new(name, name, unit.kind, [0; 3]);
        event
            .add(unit, terms, true)
            .map_err(|why| EventError::Term {
                event: name.to_owned(),
                why,
            })?;
        Ok(event)
    }

    fn add(&mut self, unit: &Pmu, terms: &str, aliases_too: bool) -> Result<(), String> {
        for term in terms.split(',').filter(|term| !term.is_empty()) {
            let (key, value) = term.split_once('=').unwrap_or((term, "1"));
            if key == "name" {
                self.column = column(value);
                continue;
            }
            if let Some(alias) = unit.aliases.get(key).filter(|_| aliases_too && key == term) {
                self.add(unit, alias, false)?;
                continue;
            }
            let own = match key {
                "config" => Some(Field::whole(Word::Config)),
                "config1" => Some(Field::whole(Word::Config1)),
                "config2" => Some(Field::whole(Word::Config2)),
                _ => None,
            };
            let Some(field) = own.as_ref().or_else(|| unit.formats.get(key)) else {
                let known: Vec<_> = unit.formats.keys().map(String::as_str).collect();
                return Err(format!(
                    "{} has no term or event '{key}' (terms: {})",
                    unit.name,
                    known.join(", ")
                ));
            };
            let number = number(value).ok_or_else(|| format!("'{value}' is not a number"))?;
            let placed = field
                .place(number)
                .ok_or_else(|| format!("{value} does not fit into '{key}'"))?;
            self.config[field.word as usize] |= placed;
        }
        Ok(())
    }

    fn new(name: &str, column_of: &str, kind: u32, config: [u64; 3]) -> Self {
        Self {
            name: name.to_owned(),
            column: column(column_of),
            kind,
            config,
        }
    }

    /// As threads that count it are told. User space must be let read it, which arm64 asks for.
    #[must_use]
    pub fn for_threads(&self) -> abi::ts_event {
        let readable = if cfg!(target_arch = "aarch64") {
            ARM_LONG_AND_READABLE
        } else {
            0
        };
        abi::ts_event {
            type_: self.kind,
            reserved: 0,
            config: self.config[0],
            config1: self.config[1] | readable,
            config2: self.config[2],
        }
    }
}

/// `r` and hexadecimal digits. `ref-cycles` and the like are names, and were looked for before.
fn raw(name: &str) -> Option<u64> {
    let digits = name.strip_prefix('r')?;
    let is_plain = digits.chars().all(|letter| letter.is_ascii_hexdigit());
    is_plain
        .then(|| u64::from_str_radix(digits, 16).ok())
        .flatten()
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) if digits.chars().all(|letter| letter.is_ascii_hexdigit()) => {
            u64::from_str_radix(digits, 16).ok()
        }
        Some(_) => None,
        None if text.chars().all(|letter| letter.is_ascii_digit()) => text.parse().ok(),
        None => None,
    }
}

fn column(name: &str) -> String {
    let mut column = String::new();
    for letter in name.trim_matches('/').chars() {
        let letter = letter.to_ascii_lowercase();
        column.push(if letter.is_ascii_alphanumeric() {
            letter
        } else {
            '_'
        });
    }
    column.truncate(MOST_LETTERS);
    column
}

/// The names that are like it: that begin alike, or hold it.
fn near(name: &str, pmus: &Pmus) -> Vec<String> {
    let wanted = name.to_ascii_lowercase();
    let aliases = pmus.0.iter().flat_map(|pmu| pmu.aliases.keys().cloned());
    let begin: String = wanted.chars().take(4).collect();
    let mut found: Vec<String> = generic::names()
        .chain(aliases)
        .filter(|known| {
            let known = known.to_ascii_lowercase();
            begin.len() > 2 && known.starts_with(&begin)
                || wanted.len() > 2 && known.contains(&wanted)
        })
        .collect();
    found.dedup();
    found.truncate(5);
    found
}

#[cfg(test)]
mod tests;
