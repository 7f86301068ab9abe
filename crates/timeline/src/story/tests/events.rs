//! Events as the kernel's programs write them, and traces of them.

use std::io::Cursor;

use tailscope_signals::event::EVENT_BYTES;

use super::*;

/// One of them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Raw {
    pub(crate) cpu: u32,
    pub(crate) us: u64,
    pub(crate) tid: u32,
    pub(crate) kind: u32,
    pub(crate) flags: u8,
    pub(crate) small: u32,
    pub(crate) x: u32,
    pub(crate) y: u32,
    pub(crate) z: u32,
}

impl Raw {
    pub(crate) fn bytes(&self) -> [u8; EVENT_BYTES] {
        let mut bytes = [0; EVENT_BYTES];
        bytes[..8].copy_from_slice(&(self.us * US).to_ne_bytes());
        bytes[12..16].copy_from_slice(&self.tid.to_ne_bytes());
        bytes[16] = self.kind as u8;
        bytes[17] = self.flags;
        bytes[18..20].copy_from_slice(&(self.small as u16).to_ne_bytes());
        for (at, word) in [(20, self.x), (24, self.y), (28, self.z)] {
            bytes[at..at + 4].copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }
}

pub(crate) fn raw(cpu: u32, us: u64, tid: u32, kind: u32) -> Raw {
    Raw {
        cpu,
        us,
        tid,
        kind,
        ..Raw::default()
    }
}

pub(crate) fn switch(cpu: u32, us: u64, from: u32, state: u32, to: u32) -> Raw {
    let process = |tid| if tid == 8 { SERVER } else { tid };
    Raw {
        small: state,
        x: to,
        y: process(to),
        z: process(from),
        ..raw(cpu, us, from, abi::TL_SWITCH)
    }
}

pub(crate) fn waking(cpu: u32, us: u64, by: u32, thread: u32) -> Raw {
    Raw {
        x: thread,
        z: SERVER,
        ..raw(cpu, us, by, abi::TL_WAKING)
    }
}

/// The client's packet of ten bytes up to `end` comes in on CPU 0, and wakes the server.
pub(crate) fn comes(us: u64, end: u32, wakes: bool) -> Vec<Raw> {
    let on_net = |us, kind| Raw {
        small: 3,
        ..raw(0, us, CLIENT, kind)
    };
    let of = |us, kind, socket| Raw {
        x: socket,
        y: end,
        small: 10,
        ..raw(0, us, CLIENT, kind)
    };
    let mut events = vec![
        of(us, abi::TL_TRANSMIT, THEIRS),
        on_net(us + 1, abi::TL_SOFTIRQ_IN),
        raw(0, us + 2, CLIENT, abi::TL_PACKET_IN),
        of(us + 3, abi::TL_TCP_IN, OURS),
        of(us + 4, abi::TL_READY, OURS),
    ];
    if wakes {
        events.push(waking(0, us + 5, CLIENT, SERVER));
    }
    events.push(on_net(us + 6, abi::TL_SOFTIRQ_OUT));
    events
}

pub(crate) fn socket(us: u64, tid: u32, kind: u32, socket: u32, end: u32, held: u32) -> Raw {
    Raw {
        flags: 1,
        small: held,
        x: socket,
        y: end,
        z: 10,
        ..raw(1, us, tid, kind)
    }
}

pub(crate) fn call(us: u64, tid: u32, kind: u32, number: i64) -> Raw {
    Raw {
        small: number as u32,
        ..raw(1, us, tid, kind)
    }
}

/// A trace of these events, with what its description says changed.
pub(crate) fn trace(events: &[Raw], change: impl FnOnce(&mut serde_json::Value)) -> Trace {
    let mut file = b"TSTRACE1".to_vec();
    let mut parts = Vec::new();
    for cpu in 0..2 {
        let of: Vec<_> = events.iter().filter(|event| event.cpu == cpu).collect();
        parts.push(serde_json::json!({
            "cpu": cpu, "offset": file.len(), "events": of.len(), "from_ns": 0,
            "overwritten": 0, "unwritten": 0
        }));
        of.iter().for_each(|event| file.extend(event.bytes()));
    }
    let mut about = serde_json::json!({
        "abi": abi::TL_ABI, "tailscope": "", "kernel": "", "arch": "", "reason": "end",
        "from_ns": 0, "to_ns": 1_000_000 * US, "unix_offset_ns": 0, "slow_ns": 1,
        "parts": parts, "watched": [SERVER], "interrupts": {}, "gaps": [],
        "threads": {
            "7": {"name": "worker", "process": 7}, "8": {"name": "helper", "process": 7},
            "99": {"name": "hog\u{1b}[2J", "process": 99}
        },
        "processes": {"7": "server", "99": "hog\u{1b}[2J"},
        "processes_lost": 0, "ladder": {}
    });
    change(&mut about);
    let text = about.to_string();
    file.extend(text.as_bytes());
    file.extend((text.len() as u64).to_le_bytes());
    file.extend(b"TSTRACE1");
    Trace::read(&mut Cursor::new(file)).expect("a trace")
}
