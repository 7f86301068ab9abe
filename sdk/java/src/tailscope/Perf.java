// SPDX-License-Identifier: MIT
package tailscope;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/** Perf's side of a hardware counter: the call that begins to count, and its page. */
final class Perf {
    /** Bytes of a page of this kernel's, which each event's own page is. */
    static final long PAGE = Libc.pageBytes();

    private static final int CAPABILITIES = 40; // of struct perf_event_mmap_page
    private static final int TIME_SHIFT = 50;
    private static final int TIME_MULT = 52;
    private static final int TIME_CYCLES = 80;
    private static final int TIME_MASK = 88;
    private static final int USER_READS = 4;
    private static final int USER_TIME = 8;
    private static final int USER_TIME_SHORT = 32;

    private static final int ATTRIBUTES_BYTES = 72; // struct perf_event_attr, with all configs
    private static final long NOT_KERNEL_NOR_HYPERVISOR = 1 << 5 | 1 << 6;
    private static final long DISABLED = 1;
    private static final long ENABLE = 0x2400;
    private static final long GROUP = 1;

    /** An event as the recorder names it. */
    record Event(int type, long config, long config1, long config2) {}

    /**
     * Counts these events of this thread, as one group, with a page each from {@code at} on, which
     * stays when the descriptors go.
     */
    static void open(Event[] events, long at) throws Libc.Failure {
        int[] files = new int[events.length];
        int opened = 0;
        try {
            for (Event event : events) {
                int leader = opened == 0 ? -1 : files[0];
                files[opened] = Libc.openEvent(attributes(event, opened == 0), leader);
                opened++;
                Libc.mapRead(at + (opened - 1) * PAGE, PAGE, files[opened - 1]);
            }
            Libc.control(files[0], ENABLE, GROUP);
        } finally {
            for (int i = 0; i < opened; i++) {
                Libc.close(files[i]);
            }
        }
        for (int i = 0; i < events.length; i++) {
            if (!can(at + i * PAGE, USER_READS)) { // the machine keeps user space from reading
                throw new Libc.Failure("perf_event_open", Libc.Failure.EOPNOTSUPP);
            }
        }
    }

    private static byte[] attributes(Event event, boolean isLeader) {
        ByteBuffer attributes = ByteBuffer.allocate(ATTRIBUTES_BYTES);
        attributes.order(ByteOrder.LITTLE_ENDIAN);
        attributes.putInt(event.type).putInt(ATTRIBUTES_BYTES).putLong(event.config);
        attributes.putLong(0).putLong(0).putLong(0);
        attributes.putLong(NOT_KERNEL_NOR_HYPERVISOR | (isLeader ? DISABLED : 0));
        attributes.putLong(0).putLong(event.config1).putLong(event.config2);
        return attributes.array();
    }

    private static boolean can(long page, int capability) {
        return (Memory.getLongOpaque(page + CAPABILITIES) & capability) != 0;
    }

    /** Whether it says how cycles of the clock become ns. */
    static boolean hasTime(long page) {
        return can(page, USER_TIME);
    }

    /** Cycles of the clock as ns, in the page's fixed point. */
    static long ns(long page, long cycles) {
        int shift = Memory.getShort(page + TIME_SHIFT) & 63;
        long mult = Integer.toUnsignedLong(Memory.getInt(page + TIME_MULT));
        long now = cycles;
        if (can(page, USER_TIME_SHORT)) {
            long base = Memory.getLong(page + TIME_CYCLES);
            now = base + (cycles - base & Memory.getLong(page + TIME_MASK));
        }
        long rest = now & (1L << shift) - 1;
        return (now >>> shift) * mult + (rest * mult >>> shift);
    }

    private Perf() {}
}
