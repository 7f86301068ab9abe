//! Telling the programs which rows to write.

use libbpf_rs::{MapCore, MapFlags, Object};
use tailscope_signals::abi;
use tailscope_signals::retention::Retention;

use crate::load_error::{LoadError, kernel};
use crate::object::map_of;
use crate::shared;

/// Where the spans of a row come from, as the programs number it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Sockets of unmodified servers.
    Sockets,
    /// The probes of this place in the list of sources.
    Probes(u8),
}

/// What the programs are told, source by source.
#[derive(Debug)]
pub(crate) struct Retentions(Vec<u8>);

const WORDS: usize = size_of::<abi::ts_retention>();

impl Retentions {
    pub(crate) fn all() -> Self {
        let mut retentions = Self(vec![0; shared::SOURCES as usize * WORDS]);
        (0..=u8::MAX).for_each(|number| retentions.set(number, Retention::ALL));
        retentions
    }

    fn set(&mut self, number: u8, retention: Retention) {
        let words = abi::ts_retention::from(retention);
        let at = usize::from(number) * WORDS;
        self.0[at..at + 8].copy_from_slice(&words.always_from.to_ne_bytes());
        self.0[at + 8..at + 16].copy_from_slice(&words.others.to_ne_bytes());
    }

    /// Sets which spans of this source are kept from now on.
    pub(crate) fn keep(
        &mut self,
        object: &Object,
        source: Source,
        retention: Retention,
    ) -> Result<(), LoadError> {
        self.set(
            match source {
                Source::Sockets => shared::SOCKET_SOURCE as u8,
                Source::Probes(place) => place,
            },
            retention,
        );
        map_of(object, ".bss.retentions")
            .update(&0u32.to_ne_bytes(), &self.0, MapFlags::ANY)
            .map_err(kernel("configure which rows to write"))
    }
}
