//! The names of spans, each stored once.

use std::collections::HashMap;
use std::sync::Arc;

use crate::SpanName;

/// A table of names: a [`LedgerWriter`](crate::LedgerWriter) has one of its own.
#[derive(Clone, Debug, Default)]
pub struct Names {
    texts: Vec<Arc<str>>,
    by_text: HashMap<Arc<str>, u32>,
}

impl Names {
    /// The handle of a name. The same text gives the same handle.
    pub fn intern(&mut self, text: &str) -> SpanName {
        if let Some(&index) = self.by_text.get(text) {
            return SpanName(index);
        }
        let index = self.len();
        let text: Arc<str> = text.into();
        self.texts.push(text.clone());
        self.by_text.insert(text, index);
        SpanName(index)
    }

    /// The handle of a name that has one.
    #[must_use]
    pub fn find(&self, text: &str) -> Option<SpanName> {
        self.by_text.get(text).copied().map(SpanName)
    }

    /// How many names it has.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "nobody asks")]
    pub fn len(&self) -> u32 {
        // Names are read from a command line or a registry of probes: never billions.
        self.texts.len() as u32
    }

    /// The name of a handle.
    ///
    /// # Panics
    /// If another table gave the handle, and this one has not as many.
    #[must_use]
    pub fn text(&self, span: SpanName) -> &Arc<str> {
        &self.texts[span.0 as usize]
    }
}
