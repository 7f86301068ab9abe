// SPDX-License-Identifier: MIT
package tailscope;

import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/**
 * Reads the CPU's counters of a thread in user space: a machine's {@link Reader}, mapped, with its
 * handler in place.
 *
 * <p>Whoever owns the machine may switch user space's access off while threads count, and nothing
 * tells of it before. The next reading then faults, with a signal that is the JVM's own (SIGSEGV on
 * x86-64, SIGILL on arm64). So a handler of a few instructions is put before the JVM's: if the one
 * instruction faulted that it is for, whose address it knows, the reading returns {@code REFUSED}.
 * Every other fault it hands on, by a jump, as if it had not been there: it writes no memory and
 * takes no lock. It stays until the process ends.
 */
final class Registers {
    static final int WHOLE = 0;
    static final int DISTURBED = 1; // the kernel moved a counter meanwhile: again
    static final int REFUSED = 2;

    private static final String FILE = "tailscope-counters";
    /** The C library's {@code struct sigaction}, in glibc and musl on both machines. */
    private static final int ACTION_BYTES = 152;
    private static final int HANDLER = 0;
    private static final int FLAGS = 136;
    private static final int WITH_INFO = 4;
    private static final int ONCE = 0x80000000;

    private static final Reader READER = Reader.here();
    private static final long CODE;
    /** Constant, so that HotSpot compiles the call of it into what calls {@code read}. */
    private static final MethodHandle READ;
    /** Why no counter can be read in this process; null: they can. */
    private static final Libc.Failure PROBLEM;

    static {
        long code = 0;
        Libc.Failure problem = null;
        try {
            code = install();
        } catch (Libc.Failure e) {
            problem = e;
        }
        CODE = code;
        PROBLEM = problem;
        READ = problem != null ? null : Linker.nativeLinker().downcallHandle(
            MemorySegment.ofAddress(code),
            FunctionDescriptor.of(
                ValueLayout.JAVA_INT,
                ValueLayout.JAVA_LONG,
                ValueLayout.JAVA_LONG,
                ValueLayout.JAVA_LONG,
                ValueLayout.JAVA_LONG),
            Linker.Option.critical(false));
    }

    /** Maps the code and puts its handler before the one that is there; returns where it is. */
    private static long install() throws Libc.Failure {
        ByteBuffer action = Libc.signalAction(READER.signal, null, ACTION_BYTES);
        long before = action.getLong(HANDLER);
        int flags = action.getInt(FLAGS);
        // Without the JVM's handler there is nobody to hand other faults to.
        if ((before & ~1L) == 0 || (flags & WITH_INFO) == 0) {
            throw new Libc.Failure("sigaction", Libc.Failure.EOPNOTSUPP);
        }
        byte[] code = READER.code.clone();
        ByteBuffer.wrap(code).order(ByteOrder.LITTLE_ENDIAN).putLong(READER.before, before);
        int file = Libc.memoryFile(FILE, code, ProbeFile.PAGE);
        try {
            long at = Libc.mapPrivate(file, 0, ProbeFile.PAGE, Libc.READ_EXECUTE);
            // Other faults come to the handler of before with its own mask and flags.
            action.putLong(HANDLER, at + READER.handler);
            action.putInt(FLAGS, flags & ~ONCE);
            Libc.signalAction(READER.signal, action, ACTION_BYTES);
            return at;
        } finally {
            Libc.close(file);
        }
    }

    /**
     * Before a thread's counters may be read: fails where the code could not be installed, and
     * where somebody has put another handler before ours, for who knows whether a fault of ours
     * would get through to us.
     */
    static void check() throws Libc.Failure {
        if (PROBLEM != null) {
            throw PROBLEM;
        }
        long handler = Libc.signalAction(READER.signal, null, ACTION_BYTES).getLong(HANDLER);
        if (handler != CODE + READER.handler) {
            throw new Libc.Failure("sigaction", Libc.Failure.EOPNOTSUPP);
        }
    }

    /**
     * Reads the counters of a group, whose pages of perf's follow one another from {@code pages} on,
     * to {@code to}, which is laid out as {@link Counted} says.
     */
    static int read(long pages, long pageBytes, long count, long to) {
        try {
            return (int) READ.invokeExact(pages, pageBytes, count, to);
        } catch (Throwable e) {
            throw new IllegalStateException(e);
        }
    }

    private Registers() {}
}
