// SPDX-License-Identifier: Apache-2.0
package tailscope;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/**
 * Spans whose number of instructions is known, as lab/c/countbench.c has them in C, on arm64: a loop
 * of two instructions a round, in machine code. Counting WARM SPANS NAP_US OTHERS LENGTH…: first
 * WARM spans named {@code warm}, for the JVM to compile what begins and ends spans; then SPANS of each
 * length (a multiple of 4; it is their id) and kind: {@code plain} ones, and {@code yields} and {@code
 * sleeps}, which are put off the CPU in their middle, while OTHERS other threads compute.
 */
public final class Counting {
    private static final int YIELD = 124;
    private static final int SLEEP = 101;
    private static final long WARM_LENGTH = 1000;

    /** {@code execute(rounds, call, first, second)}; without a call, half of it is all. */
    private static final int[] CODE = {
        0xaa0003e9, // mov x9, x0
        0xf1000529, // one: subs x9, x9, #1
        0x54ffffe1, // b.ne one
        0xb4000101, // cbz x1, done
        0xaa0003ea, // mov x10, x0
        0xaa0103e8, // mov x8, x1
        0xaa0203e0, // mov x0, x2
        0xaa0303e1, // mov x1, x3
        0xd4000001, // svc #0
        0xf100054a, // two: subs x10, x10, #1
        0x54ffffe1, // b.ne two
        0xd65f03c0, // done: ret
    };
    private static final MethodHandle EXECUTE;
    private static volatile boolean isOver;

    static {
        try {
            ByteBuffer code = ByteBuffer.allocate(4 * CODE.length).order(ByteOrder.LITTLE_ENDIAN);
            code.asIntBuffer().put(CODE);
            int file = Libc.memoryFile("execute", code.array(), 4096);
            long at = Libc.mapPrivate(file, 0, 4096, Libc.READ_EXECUTE);
            Libc.close(file);
            EXECUTE = Linker.nativeLinker().downcallHandle(
                MemorySegment.ofAddress(at),
                FunctionDescriptor.ofVoid(
                    ValueLayout.JAVA_LONG,
                    ValueLayout.JAVA_LONG,
                    ValueLayout.JAVA_LONG,
                    ValueLayout.JAVA_LONG),
                Linker.Option.critical(false));
        } catch (Libc.Failure e) {
            throw new ExceptionInInitializerError(e);
        }
    }

    private static void execute(long rounds, long call, long first) {
        try {
            EXECUTE.invokeExact(rounds, call, first, 0L);
        } catch (Throwable e) {
            throw new IllegalStateException(e);
        }
    }

    private static void plain(String name, long length) {
        Span span = Tailscope.begin(name);
        execute(length / 2, 0, 0);
        span.end(length);
    }

    private static void inTwo(String name, long length, long call, long argument) {
        Span span = Tailscope.begin(name);
        execute(length / 4, call, argument);
        span.end(length);
    }

    private static void run(
        String one, String two, String three, int spans, long length, long nap) {
        for (int span = 0; span < spans; span++) {
            plain(one, length);
            inTwo(two, length, YIELD, 0);
            inTwo(three, length, SLEEP, nap);
        }
    }

    private static void compute() {
        while (!isOver) {
            execute(10_000, 0, 0);
            Thread.yield();
        }
    }

    public static void main(String[] arguments) throws InterruptedException {
        int warm = Integer.parseInt(arguments[0]);
        int spans = Integer.parseInt(arguments[1]);
        long napUs = Long.parseLong(arguments[2]);
        int others = Integer.parseInt(arguments[3]);
        MemorySegment nap = Arena.global().allocate(16, 8); // struct timespec
        nap.set(ValueLayout.JAVA_LONG, 0, napUs / 1_000_000);
        nap.set(ValueLayout.JAVA_LONG, 8, napUs % 1_000_000 * 1000);
        for (int i = 0; i < warm; i += 1000) {
            run("warm", "warm", "warm", 1000, WARM_LENGTH, nap.address());
            Thread.sleep(50); // for the recorder and the compiler to keep up
        }
        for (int i = 0; i < others; i++) {
            Thread other = new Thread(Counting::compute);
            other.setDaemon(true);
            other.start();
        }
        for (int i = 4; i < arguments.length; i++) {
            run("plain", "yields", "sleeps", spans, Long.parseLong(arguments[i]), nap.address());
        }
        isOver = true;
        System.out.println("{\"spans\": " + spans + "}");
    }
}
