// SPDX-License-Identifier: MIT
package tailscope;

import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;

/**
 * How the recorder and this process find each other: the probe {@code tailscope:thread}, in a file
 * in memory that the recorder finds among what the process has mapped, and its semaphore, which the
 * kernel raises while a recorder listens. A second recorder has the probe {@code
 * tailscope:thread_second} with a semaphore of its own. Beside them the cycle counter.
 */
final class Probe {
    /** The recorder knows the file by this (crates/record/src/process.rs). */
    static final String NAME = "tailscope-sdk";

    private static final Machine MACHINE = Machine.here();
    private static final long SEMAPHORE;
    private static final MethodHandle CYCLES;
    private static final MethodHandle CYCLES_AFTER_WORK;
    private static final MethodHandle TELL;
    private static final MethodHandle TELL_SECOND;

    static {
        if (MACHINE == null) {
            String machine = System.getProperty("os.arch");
            throw new UnsupportedOperationException("no Tailscope for " + machine);
        }
        long code;
        try {
            // Kept open: through it the recorder reads the file, which no path leads to.
            int file = Libc.memoryFile(NAME, ProbeFile.of(MACHINE), ProbeFile.BYTES);
            code = Libc.mapPrivate(file, 0, ProbeFile.PAGE, Libc.READ_EXECUTE);
            SEMAPHORE = Libc.mapPrivate(file, ProbeFile.SEMAPHORE, ProbeFile.PAGE, Libc.READ_WRITE);
        } catch (Libc.Failure e) {
            throw new UnsupportedOperationException(e);
        }
        // Both are over in nanoseconds, so the JVM need not be told that a thread is outside of it.
        Linker.Option isShort = Linker.Option.critical(false);
        CYCLES = function(
            code, Machine.CYCLES, FunctionDescriptor.of(ValueLayout.JAVA_LONG), isShort);
        CYCLES_AFTER_WORK = function(code, Machine.CYCLES_AFTER_WORK,
            FunctionDescriptor.of(ValueLayout.JAVA_LONG, ValueLayout.JAVA_LONG), isShort);
        FunctionDescriptor telling = FunctionDescriptor.ofVoid(ValueLayout.JAVA_LONG);
        TELL = function(code, Machine.TELL, telling);
        TELL_SECOND = function(code, Machine.TELL + Machine.BYTES, telling);
    }

    private static MethodHandle function(
        long code, int which, FunctionDescriptor type, Linker.Option... options) {
        MemorySegment at = MemorySegment.ofAddress(code + ProbeFile.place(which));
        return Linker.nativeLinker().downcallHandle(at, type, options);
    }

    /** Whether a recorder listens, or has gone while threads counted. */
    static boolean isOfUse() {
        return Memory.getLongOpaque(SEMAPHORE) != 0;
    }

    /** The same of one recorder. */
    static boolean isOfUse(int which) {
        return Memory.getIntOpaque(SEMAPHORE + which * Integer.BYTES) != 0;
    }

    /** Whether a thread counts: the other half of the semaphore's word, which is this process's. */
    static void setCounting(int which, boolean isOne) {
        long half = SEMAPHORE + which * Integer.BYTES + Short.BYTES;
        Memory.setShortOpaque(half, isOne ? 1 : 0);
    }

    /** Whether that recorder listens. */
    static boolean isHeard(int which) {
        return Memory.getShortOpaque(SEMAPHORE + which * Integer.BYTES) != 0;
    }

    /** The cycle counter. */
    static long cycles() {
        try {
            return (long) CYCLES.invokeExact();
        } catch (Throwable e) {
            throw new IllegalStateException(e);
        }
    }

    /** The same at a span's end, after its work; the CPU goes where {@code cpu} says. */
    static long cyclesAfterWork(long cpu) {
        try {
            return (long) CYCLES_AFTER_WORK.invokeExact(cpu);
        } catch (Throwable e) {
            throw new IllegalStateException(e);
        }
    }

    /** What {@code cyclesAfterWork} left there, as a row has it. */
    static int cpu(int left) {
        return MACHINE.cpuUnless == -1 ? left & 0xfff : MACHINE.cpuUnless;
    }

    /**
     * Tells the kernel which slot this thread claimed, or, negative, the errno of what went wrong.
     */
    static void tell(int which, long slot) {
        try {
            if (which == 0) {
                TELL.invokeExact(slot);
            } else {
                TELL_SECOND.invokeExact(slot);
            }
        } catch (Throwable e) {
            throw new IllegalStateException(e);
        }
    }

    private Probe() {}
}
