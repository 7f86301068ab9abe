use super::super::thread::with_thread;
use super::*;

/// A page whose register has so many bits, with this and no more in it.
pub(in super::super) fn page(pmc_width: u16, index: u32, offset: i64) -> Page {
    Page {
        version: [0; 2],
        lock: AtomicU32::new(0),
        index: AtomicU32::new(index),
        offset: AtomicI64::new(offset),
        time_enabled: AtomicU64::new(0),
        time_running: AtomicU64::new(0),
        capabilities: AtomicU64::new(USER_READS),
        pmc_width: AtomicU16::new(pmc_width),
        time_shift: AtomicU16::new(0),
        time_mult: AtomicU32::new(0),
        time_offset: AtomicU64::new(0),
        time_zero: 0,
        size: [0; 2],
        time_cycles: AtomicU64::new(0),
        time_mask: AtomicU64::new(0),
    }
}

#[test]
fn the_page_is_laid_out_as_the_kernel_does() {
    use core::mem::offset_of;
    use perf_event_open_sys::bindings::perf_event_mmap_page as Kernels;
    assert_eq!(offset_of!(Page, lock), offset_of!(Kernels, lock));
    assert_eq!(offset_of!(Page, index), offset_of!(Kernels, index));
    assert_eq!(offset_of!(Page, offset), offset_of!(Kernels, offset));
    assert_eq!(
        offset_of!(Page, time_enabled),
        offset_of!(Kernels, time_enabled)
    );
    assert_eq!(
        offset_of!(Page, time_running),
        offset_of!(Kernels, time_running)
    );
    assert_eq!(offset_of!(Page, pmc_width), offset_of!(Kernels, pmc_width));
    assert_eq!(offset_of!(Page, time_mult), offset_of!(Kernels, time_mult));
    assert_eq!(
        offset_of!(Page, time_offset),
        offset_of!(Kernels, time_offset)
    );
    assert_eq!(
        offset_of!(Page, time_cycles),
        offset_of!(Kernels, time_cycles)
    );
    assert_eq!(offset_of!(Page, time_mask), offset_of!(Kernels, time_mask));
}

#[test]
fn an_event_is_asked_for_as_the_kernel_reads_it() {
    use perf_event_open_sys::bindings::perf_event_attr;
    let event = Event {
        kind: 4,
        config: [0x11, 0x22, 0x33],
    };
    for is_leader in [true, false] {
        let mut theirs = perf_event_attr {
            type_: 4,
            size: size_of::<[u64; 9]>() as u32,
            config: 0x11,
            ..Default::default()
        };
        theirs.__bindgen_anon_3.config1 = 0x22;
        theirs.__bindgen_anon_4.config2 = 0x33;
        theirs.set_exclude_kernel(1);
        theirs.set_exclude_hv(1);
        theirs.set_disabled(is_leader.into());
        // SAFETY: plain words, of which it has more.
        let words: [u64; 9] = unsafe { (&raw const theirs).cast::<[u64; 9]>().read() };
        assert_eq!(attributes(&event, is_leader), words);
    }
}

#[test]
fn a_register_that_wraps_loses_nothing_until_half_of_its_range_is_over() {
    assert_eq!(extended(0xffff_ffff_fff6, 16), -10i64 as u64);
    assert_eq!(extended(0x7fff_ffff_ffff, 16), 0x7fff_ffff_ffff);
    assert_eq!(extended(u64::MAX, 0), u64::MAX);
    assert_eq!(
        [48, 64, 0].map(|bits| page(bits, 0, 0).unused()),
        [16, 0, 0]
    );
    with_thread(0, |thread| {
        thread.forget(88172645463325252);
        let any = || thread.random() << 32 | thread.random();
        for _ in 0..100_000 {
            let unused = (any() % 63) as u32;
            let mask = u64::MAX >> unused;
            let (loaded, counted) = (any() & mask, any());
            let offset = counted.wrapping_sub(extended(loaded, unused));
            let room = (mask >> 1).wrapping_sub(extended(loaded, unused));
            let events = any() % room.max(1);
            let now = extended(loaded.wrapping_add(events) & mask, unused);
            assert_eq!(offset.wrapping_add(now), counted.wrapping_add(events));
        }
    });
}

#[test]
fn cycles_are_ns_in_the_pages_fixed_point() {
    let page = page(48, 0, 0);
    page.time_shift.store(10, Relaxed);
    page.time_mult.store(512, Relaxed); // two cycles a ns
    assert_eq!(page.ns(200_000), 100_000);
    assert_eq!(page.ns(1 << 60), 1 << 59);
    page.capabilities.store(USER_TIME_SHORT, Relaxed);
    page.time_cycles.store(0x1_ffff_fff0, Relaxed);
    page.time_mask.store(0xffff_ffff, Relaxed);
    assert_eq!(page.ns(0x10), 0x2_0000_0010 >> 1);
}
