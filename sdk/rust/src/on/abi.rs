//! The memory that this process shares with the recorder and the kernel: `tailscope_abi.h`, where the
//! words on each field are. A test holds sizes and places against that header.
//!
//! Everything is an atomic, because others write it at the same time; relaxed loads are plain ones.

use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

pub(super) const ABI: u32 = 4;
pub(super) const MAGIC: u64 = 0x31_656c_6174;
pub(super) const CAUSES: usize = 14;
pub(super) const EPISODES: usize = 4;
pub(super) const RECENTS: usize = 16;
pub(super) const METERS: u32 = 2048;
pub(super) const CHUNKS: u32 = 2048;
pub(super) const CHUNK_BYTES: usize = 4096;
pub(super) const NAMES: u8 = 255;
pub(super) const NAME_BYTES: usize = 64;
pub(super) const NAME_BUSY: u32 = u32::MAX;
pub(super) const REGION_HEAD: usize = 32768;
pub(super) const REGION_BYTES: usize = REGION_HEAD + CHUNKS as usize * CHUNK_BYTES;
pub(super) const METERS_BYTES: usize = METERS as usize * size_of::<Meter>();
pub(super) const SOCKET: &str = "/run/tailscope/sdk.sock";
pub(super) const RECORDERS: usize = 2;
pub(super) const SECOND: &str = ".second";

pub(super) const CHANNELS_MAGIC: u64 = 0x316e_6e61_6863;
pub(super) const CHANNEL_SLOTS: usize = 255;
pub(super) const CHANNEL_NAME: usize = 48;
pub(super) const CHANNEL_FILE: &[u8] = b"tailscope-channels\0";

#[repr(C)]
#[derive(Debug)]
pub(super) struct Channel {
    pub value: AtomicU64,
    pub kind: AtomicU32,
    pub reserved: AtomicU32,
    pub name: [AtomicU8; CHANNEL_NAME],
}

#[repr(C)]
#[derive(Debug)]
pub(super) struct Channels {
    pub magic: AtomicU64,
    pub taken: AtomicU32,
    pub reserved: [AtomicU32; 13],
    pub slot: [Channel; CHANNEL_SLOTS],
}

impl Channels {
    /// All of it, to be copied.
    pub(super) fn words(&self) -> &[AtomicU64; size_of::<Self>() / 8] {
        // SAFETY: the same memory, aligned to 8 and a multiple of it long, and atomic either way.
        unsafe { &*std::ptr::from_ref(self).cast() }
    }
}

pub(super) const CHUNK_FREE: u32 = 0;
pub(super) const CHUNK_OWNED: u32 = 1;
pub(super) const CHUNK_FULL: u32 = 2;

pub(super) const ACCEPTED: u32 = 0;
pub(super) const NOT_WATCHED: u32 = 1;
pub(super) const ROW_HAS_ID: u8 = 1;
pub(super) const ROW_HAS_COUNTS: u8 = 2;

/// Events of a group of hardware counters.
pub(super) const COUNTERS: usize = 6;

#[repr(C)]
#[derive(Debug)]
pub(super) struct Totals {
    pub ns: [AtomicU64; CAUSES],
    pub n: [AtomicU32; CAUSES],
}

#[repr(C, align(64))]
#[derive(Debug)]
pub(super) struct Meter {
    pub seq: AtomicU32,
    pub tid: AtomicU32,
    pub since_ns: AtomicU64,
    pub pending: AtomicU32,
    pub open: AtomicU32,
    pub totals: Totals,
    pub kernel_tid: AtomicU32,
    pub begun: AtomicU32,
    pub spans: AtomicU64,
    pub reserved: [AtomicU64; 6],
    pub recent: [Recent; RECENTS],
}

#[repr(C)]
#[derive(Debug)]
pub(super) struct Episode {
    pub ns: AtomicU32,
    pub n: AtomicU16,
    pub who: AtomicU16,
}

#[repr(C)]
#[derive(Debug)]
pub(super) struct Recent {
    pub episode: [Episode; EPISODES],
}

/// Where the latest large episodes of a cause are; `None` for causes that blame nobody.
pub(super) const fn recent(cause: usize) -> Option<usize> {
    match cause {
        0 | 1 | 3 | 5..=10 | 12 => Some(cause),
        _ => None,
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Row {
    pub begin: u64,
    pub wall: u64,
    pub id: u64,
    pub pid: u32,
    pub tid: u32,
    pub causes: u16,
    pub cpu: u16,
    pub name: u8,
    pub flags: u8,
    pub text: u16,
    pub queue_ns: u64,
    pub kept: u16,
    pub reserved: [u16; 3],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Share {
    pub ns: u64,
    pub n: u32,
    pub who: u16,
    pub reserved: u16,
}

/// What a span counted: this, then a word for each bit of `known`, lowest first.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct Counts {
    pub group: u16,
    pub known: u16,
    pub reserved: [u16; 2],
}

/// The longest row of an SDK.
pub(super) const ROW_MAX: usize = size_of::<Row>()
    + CAUSES * size_of::<Share>()
    + size_of::<Counts>()
    + COUNTERS * size_of::<u64>();

#[repr(C)]
pub(super) struct Chunk {
    pub used: AtomicU32,
    pub tid: AtomicU32,
    pub rows: [AtomicU8; CHUNK_BYTES - 8],
}

#[repr(C)]
pub(super) struct Name {
    pub length: AtomicU32,
    pub text: [AtomicU8; NAME_BYTES - 4],
}

#[repr(C)]
pub(super) struct Retention {
    pub always_from: AtomicU64,
    pub others: AtomicU64,
}

/// The probability, of 2^32, that a code stands for.
pub(super) fn keep_probability(code: u16) -> u64 {
    u64::from(code & 2047) << (code >> 11)
}

/// A hardware event, as perf has it.
#[repr(C)]
pub(super) struct Event {
    pub kind: AtomicU32,
    pub reserved: AtomicU32,
    pub config: AtomicU64,
    pub config1: AtomicU64,
    pub config2: AtomicU64,
}

/// The group of events whose turn it is.
#[repr(C)]
pub(super) struct Counting {
    pub group: AtomicU32,
    pub count: AtomicU32,
    pub event: [Event; COUNTERS],
    pub refused: AtomicU32,
    pub reserved: AtomicU32,
}

#[repr(C)]
pub(super) struct Region {
    pub magic: AtomicU64,
    pub abi: AtomicU32,
    pub turn: AtomicU32,
    pub sample: AtomicU64,
    pub heartbeat: AtomicU64,
    pub heartbeat_overdue: AtomicU64,
    pub lost: AtomicU64,
    pub unnamed: AtomicU64,
    pub chunk_state: [AtomicU32; CHUNKS as usize],
    pub names: [Name; NAMES as usize],
    pub retention: [Retention; NAMES as usize + 1],
    pub counting: Counting,
    pub tail: [AtomicU8; 64],
}

#[repr(C)]
#[derive(Default)]
pub(super) struct Answer {
    pub magic: u64,
    pub abi: u32,
    pub status: u32,
}
