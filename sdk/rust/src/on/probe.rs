//! How a recorder and this program find each other: the probe `tailscope:thread`, a nop with a
//! note about it, and its semaphore, which the kernel raises while a recorder listens. A second
//! recorder listens to the probe `tailscope:thread_second`, with a semaphore of its own.

use core::arch::asm;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

/// The kernel finds the counter by its place in the file, in the first mapping of that page that can
/// be written. lld, Rust's own linker, maps the page where read-only-after-start data ends and other
/// data begins twice, and the first of both is the wrong one: so it gets a page of its own.
#[repr(align(4096))]
struct OwnPage(AtomicU64);

/// Of each recorder 32 bits. The lower half of these is the kernel's: whether the recorder listens. The upper
/// half is ours: threads count events, and must stop when the recorder has gone. So one load tells whether there
/// is anything to do.
#[unsafe(link_section = ".probes")]
#[used]
static SEMAPHORE: OwnPage = OwnPage(AtomicU64::new(0));

const LISTENS: u64 = 0xffff;
const COUNTING: u64 = 0x1_0000;

/// What the semaphore says of one recorder.
#[inline(always)]
fn of(which: usize) -> u64 {
    SEMAPHORE.0.load(Relaxed) >> (32 * which) & 0xffff_ffff
}

/// Whether there is anything to do: a recorder listens, to this process or to another of the same
/// file, or one did, and threads still count for it.
#[inline(always)]
pub(crate) fn is_heard() -> bool {
    SEMAPHORE.0.load(Relaxed) != 0
}

/// The same for one recorder.
#[inline(always)]
pub(crate) fn is_heard_by(which: usize) -> bool {
    of(which) != 0
}

/// Whether that recorder listens.
#[inline(always)]
pub(super) fn listens(which: usize) -> bool {
    of(which) & LISTENS != 0
}

/// Whether threads count events for one recorder.
pub(super) fn set_counting(which: usize, is_counting: bool) {
    let bit = COUNTING << (32 * which);
    if is_counting {
        SEMAPHORE.0.fetch_or(bit, Relaxed);
    } else {
        SEMAPHORE.0.fetch_and(!bit, Relaxed);
    }
}

/// Whether threads count events for any.
pub(super) fn is_counting() -> bool {
    SEMAPHORE.0.load(Relaxed) & (COUNTING | COUNTING << 32) != 0
}

/// Tells the kernel which slot this thread claimed, or, as a negative number, why attaching failed.
#[inline(never)]
pub(crate) fn tell(which: usize, slot: i64) {
    macro_rules! probe {
        ($name:literal, $semaphore:literal, $register:tt, $argument:literal) => {
            asm!(
                "990: nop",
                ".pushsection .note.stapsdt,\"?\",\"note\"",
                ".balign 4",
                ".4byte 992f-991f, 994f-993f, 3",
                "991: .asciz \"stapsdt\"",
                "992: .balign 4",
                "993: .8byte 990b",
                ".8byte 0",
                concat!(".8byte {semaphore}+", $semaphore),
                ".asciz \"tailscope\"",
                concat!(".asciz \"", $name, "\""),
                concat!(".asciz \"-8@", $argument, "\""),
                "994: .balign 4",
                ".popsection",
                semaphore = sym SEMAPHORE,
                in($register) slot,
                options(nostack, preserves_flags),
            )
        };
    }
    // SAFETY: a nop, and bytes in a section that is not loaded. The kernel's program may write the
    // meter that this thread claimed, which everybody here reads as atomics.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        match which {
            0 => probe!("thread", "0", "rdi", "%rdi"),
            _ => probe!("thread_second", "4", "rdi", "%rdi"),
        }
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        match which {
            0 => probe!("thread", "0", "x0", "x0"),
            _ => probe!("thread_second", "4", "x0", "x0"),
        }
    }
}
