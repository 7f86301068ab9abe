//! Telling the programs which rows to write.

use libbpf_rs::{MapCore, MapFlags, Object};
use tailscope_signals::abi;
use tailscope_signals::keeping::Keeping;

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
pub(crate) struct Keepings(Vec<u8>);

const WORDS: usize = size_of::<abi::ts_keeping>();

impl Keepings {
    pub(crate) fn all() -> Self {
        let mut keepings = Self(vec![0; shared::SOURCES as usize * WORDS]);
        (0..=u8::MAX).for_each(|number| keepings.set(number, Keeping::ALL));
        keepings
    }

    fn set(&mut self, number: u8, keeping: Keeping) {
        let words = abi::ts_keeping::from(keeping);
        let at = usize::from(number) * WORDS;
        self.0[at..at + 8].copy_from_slice(&words.always_from.to_ne_bytes());
        self.0[at + 8..at + 16].copy_from_slice(&words.others.to_ne_bytes());
    }

    /// From now on keeps of the spans of this source what is told.
    pub(crate) fn keep(
        &mut self,
        object: &Object,
        source: Source,
        keeping: Keeping,
    ) -> Result<(), LoadError> {
        self.set(
            match source {
                Source::Sockets => shared::SOCKET_SOURCE as u8,
                Source::Probes(place) => place,
            },
            keeping,
        );
        map_of(object, ".bss.keepings")
            .update(&0u32.to_ne_bytes(), &self.0, MapFlags::ANY)
            .map_err(kernel("configure which rows to write"))
    }
}
