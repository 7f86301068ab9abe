//! How the recorder and this program find each other: the probe `tailscope:thread`, a nop with a
//! note about it, and its semaphore, which the kernel raises while a recorder listens.

use core::arch::asm;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

/// The kernel finds the counter by its place in the file, in the first mapping of that page that can
/// be written. lld, Rust's own linker, maps the page where read-only-after-start data ends and other
/// data begins twice, and the first of both is the wrong one: so it gets a page of its own.
#[repr(align(4096))]
struct OwnPage(AtomicU32);

/// The lower half is the kernel's: how many recorders listen. The upper half is ours: threads count events,
/// and must stop when the recorder has gone. So one load tells whether there is anything to do.
#[unsafe(link_section = ".probes")]
#[used]
static SEMAPHORE: OwnPage = OwnPage(AtomicU32::new(0));

const RECORDERS: u32 = 0xffff;
const COUNTING: u32 = 0x1_0000;

/// Whether there is anything to do: a recorder listens, to this process or to another of the same
/// file, or one did, and threads still count for it.
#[inline(always)]
pub(crate) fn is_heard() -> bool {
    SEMAPHORE.0.load(Relaxed) != 0
}

/// Whether a recorder listens.
#[inline(always)]
pub(super) fn has_recorder() -> bool {
    SEMAPHORE.0.load(Relaxed) & RECORDERS != 0
}

/// Whether threads count events.
pub(super) fn set_counting(is_counting: bool) {
    if is_counting {
        SEMAPHORE.0.fetch_or(COUNTING, Relaxed);
    } else {
        SEMAPHORE.0.fetch_and(!COUNTING, Relaxed);
    }
}

/// Tells the kernel which slot this thread claimed, or, as a negative number, why attaching failed.
#[inline(never)]
pub(crate) fn tell(slot: i64) {
    macro_rules! probe {
        ($register:tt, $argument:literal) => {
            asm!(
                "990: nop",
                ".pushsection .note.stapsdt,\"?\",\"note\"",
                ".balign 4",
                ".4byte 992f-991f, 994f-993f, 3",
                "991: .asciz \"stapsdt\"",
                "992: .balign 4",
                "993: .8byte 990b",
                ".8byte 0",
                ".8byte {semaphore}",
                ".asciz \"tailscope\"",
                ".asciz \"thread\"",
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
        probe!("rdi", "%rdi");
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        probe!("x0", "x0");
    }
}
