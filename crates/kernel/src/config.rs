//! What is to be metered, and how the programs are told.

use libbpf_rs::OpenObject;
use tailscope_signals::ring::Rings;

use crate::load_error::{LoadError, kernel};
use crate::shared::{self, Plain};
use crate::syscalls;

/// Where the spans of unmodified servers begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketSpans {
    /// At the return of the receive.
    FromReceive,
    /// When the data was ready at the socket.
    FromReady,
    /// The same, and the recorder puts each request together from what all threads do for it.
    Slices,
}

/// What is to be metered.
#[derive(Debug, Clone)]
pub struct Config {
    /// Probability, of 2^32, that a span is metered at all.
    pub sample: u64,
    /// Whether processes that watched ones make are watched too.
    pub follow_children: bool,
    /// Whether there is a process event for every program that starts, so that it can be watched.
    pub tell_programs: bool,
    /// Spans from sockets.
    pub sockets: Option<SocketSpans>,
    /// Whether spans come from probes in programs too.
    pub probes: bool,
    /// Whether the first bytes of requests are looked at for their names ([`SocketSpans::Slices`]).
    pub names: bool,
    /// Whether names come from what a library for TLS decrypts, too (likewise).
    pub tls: bool,
    /// Whether their `traceparent` headers are looked for (likewise).
    pub traces: bool,
    /// Whether the headers of requests over HTTP/2 are read, for names or traces (likewise).
    pub headers: bool,
    /// The time, in ns, that each sample of a stack on the CPU stands for; `None`: no stacks.
    pub stacks: Option<u64>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            sample: 1 << 32,
            follow_children: true,
            tell_programs: false,
            sockets: None,
            probes: false,
            names: false,
            tls: false,
            traces: false,
            headers: false,
            stacks: None,
        }
    }
}

/// Bytes of a CPU's ring of rows: what all CPUs together may take, but enough for a look's rows.
pub(crate) fn ring_bytes(cpus: usize) -> u32 {
    const TOGETHER: usize = 16 << 20;
    let share = (TOGETHER / cpus.max(1)).clamp(128 << 10, 1 << 20);
    1 << share.ilog2()
}

impl Config {
    /// Under a small sample, the number of requests to pass over is drawn evenly below this, so
    /// that nothing but a counter is touched for them. 0: each request is drawn for.
    fn skip_range(&self) -> u32 {
        let p = self.sample as f64 / 4_294_967_296.0;
        if p > 0.0 && p <= 0.1 {
            (2.0 / p - 1.0).round() as u32
        } else {
            0
        }
    }

    /// The probability with which requests from sockets are really metered: the sample's, to
    /// the next one that whole numbers of requests to pass over can give.
    #[must_use]
    pub fn socket_sample(&self) -> f64 {
        match self.skip_range() {
            0 => self.sample as f64 / 4_294_967_296.0,
            range => 1.0 / (1.0 + (f64::from(range) - 1.0) / 2.0),
        }
    }
}

/// The kernel's rings have whole pages.
const LEAST_RING: u32 = 64 << 10;

/// Writes it where the programs read it, and sizes their rings, before they are loaded.
pub(crate) fn configure(
    open: &mut OpenObject,
    config: &Config,
    cpus: usize,
) -> Result<(), LoadError> {
    let ring = ring_bytes(cpus);
    let values = shared::config {
        sample: config.sample,
        ring_mask: u64::from(ring) - 1,
        skip_range: config.skip_range(),
        follow_children: config.follow_children.into(),
        from_ready: (config.sockets == Some(SocketSpans::FromReady)).into(),
        tell_programs: config.tell_programs.into(),
        probes: config.probes.into(),
        names: config.names.into(),
        traces: config.traces.into(),
        stacks: config.stacks.is_some().into(),
        // A worker's thread shows what it works for only when the request ends.
        stacks_everywhere: (config.sockets == Some(SocketSpans::Slices)).into(),
        tls: config.tls.into(),
        headers: config.headers.into(),
        slices: (config.sockets == Some(SocketSpans::Slices)).into(),
        reserved: [0; 1],
        stack_period_ns: config.stacks.unwrap_or(1),
        syscall_kind: syscalls::kinds(),
    };
    let find = |map: &libbpf_rs::OpenMapMut<'_>, name: &str| map.name() == name;
    let configured = open
        .maps_mut()
        .find(|map| find(map, ".rodata.config"))
        .map(|mut map| map.set_initial_value(values.as_bytes()));
    let mut outcomes = vec![configured];
    for rings in ["rows", "probe_rings"] {
        outcomes.push(open.maps_mut().find(|map| find(map, rings)).map(|mut map| {
            map.set_max_entries(cpus as u32)?;
            map.set_value_size(Rings::value_size(ring))
        }));
    }
    if config.sockets == Some(SocketSpans::Slices) {
        let rings = open.maps_mut().find(|map| find(map, "slice_rings"));
        outcomes.push(rings.map(|mut map| {
            map.set_max_entries(cpus as u32)?;
            map.set_value_size(Rings::value_size(ring))
        }));
    } else {
        for unused in ["slice_threads", "slice_rings"] {
            let map = open.maps_mut().find(|map| find(map, unused));
            outcomes.push(map.map(|mut map| map.set_max_entries(1)));
        }
    }
    if !config.tls {
        let map = open.maps_mut().find(|map| find(map, "tls_connections"));
        outcomes.push(map.map(|mut map| map.set_max_entries(1)));
    }
    if !config.probes {
        // 3 MiB that nobody would use.
        let spans = open.maps_mut().find(|map| find(map, "open_spans_by_slot"));
        outcomes.push(spans.map(|mut map| map.set_max_entries(1)));
    }
    if config.stacks.is_none() {
        for (unused, least) in [("blocked_stacks", 1), ("stack_ring", LEAST_RING)] {
            let map = open.maps_mut().find(|map| find(map, unused));
            outcomes.push(map.map(|mut map| map.set_max_entries(least)));
        }
    }
    for outcome in outcomes {
        outcome
            .unwrap_or_else(|| unreachable!("see the headers in src/bpf"))
            .map_err(kernel("configure the programs"))?;
    }
    Ok(())
}
