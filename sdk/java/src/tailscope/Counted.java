// SPDX-License-Identifier: MIT
package tailscope;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;

/** What the counters of a thread were at some moment, as the reading's machine code left it. */
final class Counted {
    /** ns: for how long the group was wanted, until it was last put on the CPU. */
    private static final int ENABLED = 0;
    /** ns: for how long it was on it, likewise. */
    private static final int RUNNING = 8;
    /** What takes cycles to the ns since then. */
    private static final int OFFSET = 16;
    /** Of each counter: its value, and its register's number plus one; 0: it has none now. */
    private static final int VALUE = 24;
    private static final int REGISTER = 32;
    private static final int STEP = 16;

    private final MemorySegment memory =
        Arena.ofAuto().allocate(VALUE + (long) STEP * Abi.COUNTERS, 8);
    final long at = memory.address();

    long value(int counter) {
        return Memory.getLong(at + VALUE + (long) STEP * counter);
    }

    boolean isKnown(int counter) {
        return Memory.getLong(at + REGISTER + (long) STEP * counter) != 0;
    }

    /** No counter is known. */
    void forget() {
        for (int counter = 0; counter < Abi.COUNTERS; counter++) {
            Memory.setLong(at + REGISTER + (long) STEP * counter, 0);
        }
    }

    /** For how long the group was not on the CPU: that does not change while it is. */
    private long off() {
        return Memory.getLong(at + ENABLED) - Memory.getLong(at + RUNNING);
    }

    boolean wasOnSince(Counted begin) {
        return off() == begin.off();
    }

    /**
     * How much of a span the group was on the CPU: 1 &lt;&lt; 32 for all of it. 0 where that is not
     * known, or less than half: what was counted then is no estimate. A group is not on the CPU for
     * as long as the time that it was wanted grows and the time that it was running does not.
     */
    static long share(Counted begin, long beginNs, Counted end, long endNs) {
        long passed = Memory.getLong(end.at + OFFSET) + endNs
            - Memory.getLong(begin.at + OFFSET) - beginNs;
        long wanted =
            Memory.getLong(end.at + ENABLED) - Memory.getLong(begin.at + ENABLED) + passed;
        long on = Memory.getLong(end.at + RUNNING) - Memory.getLong(begin.at + RUNNING) + passed;
        if (on <= 0 || on > wanted || on < wanted - on || wanted >>> 32 != 0) {
            return 0;
        }
        return Long.divideUnsigned(on << 32, wanted);
    }
}
