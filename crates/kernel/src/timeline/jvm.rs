//! HotSpot's own probes. OpenJDK has them where it was built with `--enable-dtrace`, as Debian's
//! and Temurin's are; each costs a nop as long as nobody listens.

use std::path::Path;

use libbpf_rs::{ErrorKind, Link, UsdtOpts};
use tailscope_signals::event::abi;

use super::Events;
use crate::object::program;
use crate::shared;

/// Any process that maps the library: which are watched the program decides.
const EVERYBODY: i32 = -1;
const PROVIDER: &str = "hotspot";

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

/// What listening to a JVM came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listening {
    /// To so many of its probes.
    To(usize),
    /// It was built without any.
    NoProbes,
    /// The kernel refused.
    Refused(String),
}

impl Events {
    /// Listens to the probes of a `libjvm.so`, in every process that has it mapped, now or later.
    pub fn listen(&mut self, library: &Path) -> Listening {
        let mut links: Vec<Link> = Vec::new();
        for &(name, what, ends, named) in PROBES {
            let end = if ends { shared::TL_COOKIE_END } else { 0 };
            let argument = named.map_or(0, |number| u64::from(number) + 1);
            let options = UsdtOpts {
                cookie: u64::from(what | end) | argument << shared::TL_COOKIE_NAME,
                ..Default::default()
            };
            let attached = program(&mut self.object, "on_jvm")
                .attach_usdt_with_opts(EVERYBODY, library, PROVIDER, name, options);
            match attached {
                Ok(link) => links.push(link),
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                Err(e) => return Listening::Refused(format!("{e:#}")),
            }
        }
        let count = links.len();
        self.links.extend(links);
        match count {
            0 => Listening::NoProbes,
            count => Listening::To(count),
        }
    }
}
