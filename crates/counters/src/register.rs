//! One instruction for each architecture: a performance counter's register, from user space.

/// The register of that number, as the page of a mapped event names it (its `index` − 1).
///
/// # Safety
/// The kernel must let user space read it now: it does while the page of an event that is mapped
/// shows that index. Else the instruction faults.
#[cfg(target_arch = "x86_64")]
pub(super) unsafe fn read(number: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: by the contract; it changes nothing but its outputs. Not `nomem`: what is read of the
    // page around it must stay around it.
    unsafe {
        core::arch::asm!("rdpmc", in("ecx") number, out("eax") low, out("edx") high,
            options(nostack, preserves_flags));
    }
    u64::from(high) << 32 | u64::from(low)
}

/// As above.
///
/// # Safety
/// As above.
#[cfg(target_arch = "aarch64")]
pub(super) unsafe fn read(number: u32) -> u64 {
    macro_rules! registers {
        ($($number:literal $name:literal),+) => {{
            let value: u64;
            match number {
                // SAFETY: by the contract; it changes nothing but its output.
                $($number => unsafe {
                    core::arch::asm!(concat!("mrs {}, ", $name, "_el0"), out(reg) value,
                        options(nostack, preserves_flags));
                },)+
                // SAFETY: as above.
                _ => unsafe {
                    core::arch::asm!("mrs {}, pmccntr_el0", out(reg) value,
                        options(nostack, preserves_flags));
                },
            }
            value
        }};
    }
    registers!(
        0 "pmevcntr0", 1 "pmevcntr1", 2 "pmevcntr2", 3 "pmevcntr3", 4 "pmevcntr4",
        5 "pmevcntr5", 6 "pmevcntr6", 7 "pmevcntr7", 8 "pmevcntr8", 9 "pmevcntr9",
        10 "pmevcntr10", 11 "pmevcntr11", 12 "pmevcntr12", 13 "pmevcntr13", 14 "pmevcntr14",
        15 "pmevcntr15", 16 "pmevcntr16", 17 "pmevcntr17", 18 "pmevcntr18", 19 "pmevcntr19",
        20 "pmevcntr20", 21 "pmevcntr21", 22 "pmevcntr22", 23 "pmevcntr23", 24 "pmevcntr24",
        25 "pmevcntr25", 26 "pmevcntr26", 27 "pmevcntr27", 28 "pmevcntr28", 29 "pmevcntr29",
        30 "pmevcntr30"
    )
}
