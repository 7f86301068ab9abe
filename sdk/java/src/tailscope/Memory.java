// SPDX-License-Identifier: MIT
package tailscope;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.VarHandle;

/**
 * Loads and stores at addresses outside the heap. All of them lie in mappings that are made once
 * and never unmapped, so one segment that stands for all memory gives the compiler nothing to
 * check.
 */
final class Memory {
    private static final MemorySegment ALL = MemorySegment.NULL.reinterpret(Long.MAX_VALUE);
    private static final VarHandle SHORTS = ValueLayout.JAVA_SHORT.varHandle();
    private static final VarHandle INTS = ValueLayout.JAVA_INT.varHandle();
    private static final VarHandle LONGS = ValueLayout.JAVA_LONG.varHandle();

    static int getShort(long at) {
        return Short.toUnsignedInt(ALL.get(ValueLayout.JAVA_SHORT, at));
    }

    static int getInt(long at) {
        return ALL.get(ValueLayout.JAVA_INT, at);
    }

    static long getLong(long at) {
        return ALL.get(ValueLayout.JAVA_LONG, at);
    }

    static byte getByte(long at) {
        return ALL.get(ValueLayout.JAVA_BYTE, at);
    }

    static void setByte(long at, int value) {
        ALL.set(ValueLayout.JAVA_BYTE, at, (byte) value);
    }

    static void setInt(long at, int value) {
        ALL.set(ValueLayout.JAVA_INT, at, value);
    }

    static void setLong(long at, long value) {
        ALL.set(ValueLayout.JAVA_LONG, at, value);
    }

    /** A load that is made each time, and ordered with nothing. */
    static short getShortOpaque(long at) {
        return (short) SHORTS.getOpaque(ALL, at);
    }

    /** A store that is made each time, and ordered with nothing. */
    static void setShortOpaque(long at, int value) {
        SHORTS.setOpaque(ALL, at, (short) value);
    }

    /** A load that is made each time, and ordered with nothing. */
    static int getIntOpaque(long at) {
        return (int) INTS.getOpaque(ALL, at);
    }

    /** A load that is made each time, and ordered with nothing. */
    static long getLongOpaque(long at) {
        return (long) LONGS.getOpaque(ALL, at);
    }

    /** A store that is made each time, and ordered with nothing. */
    static void setLongOpaque(long at, long value) {
        LONGS.setOpaque(ALL, at, value);
    }

    /** A load that stays before what comes after it. */
    static int getIntAcquire(long at) {
        return (int) INTS.getAcquire(ALL, at);
    }

    /** A store that stays behind what came before it. */
    static void setIntRelease(long at, int value) {
        INTS.setRelease(ALL, at, value);
    }

    /** A store that stays behind what came before it. */
    static void setLongRelease(long at, long value) {
        LONGS.setRelease(ALL, at, value);
    }

    static boolean compareAndSetInt(long at, int expected, int value) {
        return INTS.compareAndSet(ALL, at, expected, value);
    }

    static void addLong(long at, long value) {
        LONGS.getAndAdd(ALL, at, value);
    }

    static void copyIn(byte[] from, int length, long to) {
        MemorySegment.copy(MemorySegment.ofArray(from), 0, ALL, to, length);
    }

    static void copy(long from, long to, long length) {
        MemorySegment.copy(ALL, from, ALL, to, length);
    }

    private Memory() {}
}
