//! Listening to HotSpot's own probes. OpenJDK has them where it was built with `--enable-dtrace`, as
//! Debian's and Temurin's are; each costs a nop as long as nobody listens.

use std::path::Path;

use libbpf_rs::{ErrorKind, Link, Object, UsdtOpts};

use crate::object::program;

/// Any process that maps the library: which are watched the programs decide.
const EVERYBODY: i32 = -1;
const PROVIDER: &str = "hotspot";

/// What listening to a JVM came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listening {
    /// To this number of its probes.
    To(usize),
    /// It was built without any.
    NoProbes,
    /// The kernel refused.
    Refused(String),
}

/// A probe of a JVM, and the program that runs at it.
pub(crate) struct JvmProbe {
    pub name: &'static str,
    pub program: &'static str,
    /// The program reads it as its cookie.
    pub cookie: u64,
}

/// Attaches programs to the probes of a `libjvm.so`, in every process that has it mapped, now or
/// later. The links are added to those that the caller holds, unless the kernel refuses one.
pub(crate) fn listen(
    object: &mut Object,
    links: &mut Vec<Link>,
    library: &Path,
    probes: impl Iterator<Item = JvmProbe>,
) -> Listening {
    let mut new: Vec<Link> = Vec::new();
    for probe in probes {
        let options = UsdtOpts {
            cookie: probe.cookie,
            ..Default::default()
        };
        let attached = program(object, probe.program)
            .attach_usdt_with_opts(EVERYBODY, library, PROVIDER, probe.name, options);
        match attached {
            Ok(link) => new.push(link),
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) => return Listening::Refused(format!("{e:#}")),
        }
    }
    let count = new.len();
    links.extend(new);
    match count {
        0 => Listening::NoProbes,
        count => Listening::To(count),
    }
}
