//! What the timeline hears from a JVM's probes.

use std::path::Path;

use tailscope_signals::event::abi;

use super::Events;
use crate::jvm_probes::{self, JvmProbe, Listening};
use crate::shared;

/// Probe, what it tells, whether that ends, and which argument is its name.
const PROBES: &[(&str, u32, bool, Option<u8>)] = &[
    ("gc__begin", abi::TL_JVM_COLLECTION, false, None),
    ("gc__end", abi::TL_JVM_COLLECTION, true, None),
    ("vmops__begin", abi::TL_JVM_OPERATION, false, Some(0)),
    ("vmops__end", abi::TL_JVM_OPERATION, true, Some(0)),
    (
        "mem__pool__gc__begin",
        abi::TL_JVM_COLLECTOR,
        false,
        Some(0),
    ),
    ("class__loaded", abi::TL_JVM_CLASS, true, Some(0)),
    (
        "method__compile__begin",
        abi::TL_JVM_COMPILE,
        false,
        Some(4),
    ),
    ("method__compile__end", abi::TL_JVM_COMPILE, true, Some(4)),
    (
        "monitor__contended__enter",
        abi::TL_JVM_MONITOR,
        false,
        Some(2),
    ),
    (
        "monitor__contended__entered",
        abi::TL_JVM_MONITOR,
        true,
        Some(2),
    ),
    (
        "class__initialization__required",
        abi::TL_JVM_INITIALIZATION,
        false,
        Some(0),
    ),
    (
        "class__initialization__end",
        abi::TL_JVM_INITIALIZATION,
        true,
        None,
    ),
    (
        "class__initialization__recursive",
        abi::TL_JVM_INITIALIZATION,
        true,
        None,
    ),
    (
        "class__initialization__concurrent",
        abi::TL_JVM_INITIALIZATION,
        true,
        None,
    ),
    (
        "class__initialization__erroneous",
        abi::TL_JVM_INITIALIZATION,
        true,
        None,
    ),
    (
        "class__initialization__super__failed",
        abi::TL_JVM_INITIALIZATION,
        true,
        None,
    ),
    (
        "class__initialization__error",
        abi::TL_JVM_INITIALIZATION,
        true,
        None,
    ),
    ("vm__init__begin", abi::TL_JVM_START, false, None),
    ("vm__init__end", abi::TL_JVM_START, true, None),
];

impl Events {
    /// Listens to the probes of a `libjvm.so`, in every process that has it mapped, now or later.
    pub fn listen(&mut self, library: &Path) -> Listening {
        let probes = PROBES.iter().map(|&(name, what, ends, named)| {
            let end = if ends { shared::TL_COOKIE_END } else { 0 };
            let argument = named.map_or(0, |number| u64::from(number) + 1);
            JvmProbe {
                name,
                program: "on_jvm",
                cookie: u64::from(what | end) | argument << shared::TL_COOKIE_NAME,
            }
        });
        jvm_probes::listen(&mut self.object, &mut self.links, library, probes)
    }
}
