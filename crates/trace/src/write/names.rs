//! The names of spans, each stored once.

use std::collections::HashMap;
use std::sync::Arc;

use crate::SpanName;

/// The name table of a writer.
#[derive(Default)]
pub(crate) struct Names {
    texts: Vec<Arc<str>>,
    by_text: HashMap<Arc<str>, u32>,
}

impl Names {
    pub(crate) fn intern(&mut self, text: &str) -> SpanName {
        if let Some(&index) = self.by_text.get(text) {
            return SpanName(index);
        }
        let index = self.len();
        let text: Arc<str> = text.into();
        self.texts.push(text.clone());
        self.by_text.insert(text, index);
        SpanName(index)
    }

    pub(crate) fn len(&self) -> u32 {
        // Names are read from a command line or a registry of probes: never billions.
        self.texts.len() as u32
    }

    pub(crate) fn text(&self, index: u32) -> &Arc<str> {
        &self.texts[index as usize]
    }
}
