//! Perf's side of a hardware counter: the page that says in which register it is, that register, and
//! the system calls that begin to count.

use core::arch::asm;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicI64, AtomicU16, AtomicU32, AtomicU64, Ordering, compiler_fence};

use super::sys::{self, Errno, Fd};

/// The page of an event, `struct perf_event_mmap_page` of the kernel, as far as it is read here. The
/// kernel writes it while the event's thread is switched, and on top of that thread.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Page {
    version: [u32; 2],
    /// Grows whenever the kernel writes here.
    pub lock: AtomicU32,
    /// Of the register, plus one; 0: the event is not on the CPU.
    pub index: AtomicU32,
    /// What was counted before it got into the register.
    pub offset: AtomicI64,
    pub time_enabled: AtomicU64,
    pub time_running: AtomicU64,
    pub capabilities: AtomicU64,
    pub pmc_width: AtomicU16,
    pub time_shift: AtomicU16,
    pub time_mult: AtomicU32,
    pub time_offset: AtomicU64,
    time_zero: u64,
    size: [u32; 2],
    pub time_cycles: AtomicU64,
    pub time_mask: AtomicU64,
}

/// Bits of `capabilities`.
pub(super) const USER_READS: u64 = 1 << 2;
pub(super) const USER_TIME: u64 = 1 << 3;
pub(super) const USER_TIME_SHORT: u64 = 1 << 5;

impl Page {
    pub(super) fn can(&self, capability: u64) -> bool {
        self.capabilities.load(Relaxed) & capability != 0
    }

    /// How many bits of 64 its register does not have.
    pub(super) fn unused(&self) -> u32 {
        match self.pmc_width.load(Relaxed) {
            width @ 1..64 => 64 - u32::from(width),
            _ => 0,
        }
    }

    /// The counter now, and whether it is on the CPU; `None`: the kernel moved it, or its register overflowed.
    #[inline(always)]
    pub(super) fn read(&self, unused: u32) -> Option<(u64, bool)> {
        let lock = self.lock.load(Relaxed);
        compiler_fence(Ordering::SeqCst);
        let index = self.index.load(Relaxed);
        let counted = match index {
            0 => 0,
            _ => extended(register(index), unused),
        };
        let now = counted.wrapping_add(self.offset.load(Relaxed) as u64);
        compiler_fence(Ordering::SeqCst);
        let is_whole = self.lock.load(Relaxed) == lock;
        is_whole.then_some((now, index != 0))
    }

    /// Cycles of the clock as ns, in the page's fixed point.
    pub(super) fn ns(&self, mut cycles: u64) -> u64 {
        let shift = self.time_shift.load(Relaxed) & 63;
        let mult = u64::from(self.time_mult.load(Relaxed));
        if self.can(USER_TIME_SHORT) {
            let base = self.time_cycles.load(Relaxed);
            let since = cycles.wrapping_sub(base) & self.time_mask.load(Relaxed);
            cycles = base.wrapping_add(since);
        }
        let rest = cycles & ((1 << shift) - 1);
        (cycles >> shift)
            .wrapping_mul(mult)
            .wrapping_add(rest.wrapping_mul(mult) >> shift)
    }
}

/// A register as what it adds to the page's offset: it is a signed number.
#[inline(always)]
pub(super) fn extended(value: u64, unused: u32) -> u64 {
    ((value << (unused & 63)) as i64 >> (unused & 63)) as u64
}

/// The register of the PMU that a page's index, which is not 0, says. Where user space may not read it, the
/// instruction faults: see `guard.rs`.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn register(index: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: it changes no more than the two registers; the guard passes over it where it faults.
    unsafe {
        asm!("rdpmc", in("ecx") index - 1, out("eax") low, out("edx") high, options(nostack))
    };
    u64::from(high) << 32 | u64::from(low)
}

/// The register of the PMU that a page's index, which is not 0, says. Where user space may not read it, the
/// instruction faults: see `guard.rs`. An instruction names its register itself, so there is one for each. The
/// index of the cycle counter is 32, which leads to the first; the kernel lets user space read none beyond.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn register(index: u32) -> u64 {
    let value: u64;
    // SAFETY: it goes to one of 32 pairs of instructions, which change no more than its own register.
    unsafe {
        asm!(
            "adr {value}, 3f",
            "add {value}, {value}, {number}, lsl #3",
            "br {value}",
            "3:",
            "mrs {value}, pmccntr_el0",
            "b 4f",
            ".irp r, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, \
             24, 25, 26, 27, 28, 29, 30",
            "mrs {value}, pmevcntr\\r\\()_el0",
            "b 4f",
            ".endr",
            "4:",
            value = out(reg) value,
            number = in(reg) u64::from(index & 31),
            options(nostack),
        );
    }
    value
}

/// An event as the recorder names it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Event {
    pub kind: u32,
    pub config: [u64; 3],
}

/// `struct perf_event_attr` of an event of user space, in the length that has all three configs.
fn attributes(event: &Event, is_leader: bool) -> [u64; 9] {
    const EXCLUDE_KERNEL_AND_HYPERVISOR: u64 = 1 << 5 | 1 << 6;
    let [config, config1, config2] = event.config;
    let flags = EXCLUDE_KERNEL_AND_HYPERVISOR | u64::from(is_leader);
    let bytes = size_of::<[u64; 9]>() as u64;
    let head = u64::from(event.kind) | bytes << 32;
    [head, config, 0, 0, 0, flags, 0, config1, config2]
}

/// Counts these events of this thread, as one group, with a page each from `at` on, which stays when the
/// descriptors go.
///
/// # Safety
/// There are so many pages at `at`, of ours, that nobody else reads.
pub(super) unsafe fn open_group(
    events: &[Event],
    at: *mut u8,
    page_bytes: usize,
) -> Result<(), Errno> {
    const ENABLE_GROUP: (u32, libc::c_ulong) = (0x2400, 1);
    let mut leader: Option<Fd> = None;
    let mut others = [const { None }; super::abi::COUNTERS];
    for (number, (event, place)) in events.iter().zip(&mut others).enumerate() {
        let fd = sys::open_event(&attributes(event, number == 0), leader.as_ref())?;
        // SAFETY: one of the pages, by the contract.
        unsafe { sys::map_to_read(at.add(number * page_bytes), page_bytes, &fd) }?;
        if number == 0 {
            leader = Some(fd);
        } else {
            *place = Some(fd);
        }
    }
    if let Some(leader) = &leader {
        sys::ask(leader, ENABLE_GROUP.0, ENABLE_GROUP.1)?;
    }
    let mut width = None;
    for number in 0..events.len() {
        // SAFETY: a page of perf's, which was mapped above.
        let page: &Page = unsafe { &*at.add(number * page_bytes).cast() };
        // The machine may keep user space from reading. All registers are of one width so far.
        let width = *width.get_or_insert(page.unused());
        if !page.can(USER_READS) || page.unused() != width {
            return Err(sys::EOPNOTSUPP);
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "perf_tests.rs"]
pub(super) mod tests;
