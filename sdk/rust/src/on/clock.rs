//! The cycle counter.

/// Now.
#[inline(always)]
pub(crate) fn cycles() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has it, and Linux lets programs read it.
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(target_arch = "aarch64")]
    {
        let now: u64;
        // SAFETY: reads a register that Linux lets programs read; the barrier keeps it in order.
        unsafe { core::arch::asm!("isb", "mrs {}, cntvct_el0", out(reg) now) };
        now
    }
}

/// At a span's end, after its work, with the CPU (`u16::MAX` where that is not known).
#[inline(always)]
pub(crate) fn cycles_after_work() -> (u64, u16) {
    #[cfg(target_arch = "x86_64")]
    {
        let mut who = 0;
        // SAFETY: every x86-64 that runs Linux 5 or newer has it; it waits for what came before.
        let now = unsafe { core::arch::x86_64::__rdtscp(&raw mut who) };
        (now, (who & 0xfff) as u16) // Linux keeps node << 12 | cpu there
    }
    #[cfg(target_arch = "aarch64")]
    (cycles(), u16::MAX)
}
