// SPDX-License-Identifier: Apache-2.0

import java.io.IOException;
import java.io.PrintWriter;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.lang.reflect.Field;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Random;

/**
 * What can happen to a worker, of its own making. Each that strikes is written down as two moments of
 * the clock {@code System.nanoTime}, which is the kernel's CLOCK_MONOTONIC on Linux, and the CPU time
 * that its thread took in between, in ns: what is true.
 *
 * <ul>
 *   <li>none
 *   <li>nagle: an answer goes out in two writes, and the second waits for an acknowledgement
 *   <li>pages: a request touches memory for the first time, in huge pages, which the kernel clears
 *   <li>restart: nothing, but each request is written down: somebody else starts it again and again
 *   <li>garbage: each request leaves garbage among what lives; the JVM's own log says when it collects
 * </ul>
 */
final class Hazard {
    private static final int HUGE_PAGE = 2 << 20;
    private static final int PAGES = 48;
    /** Of each request: objects that live for some requests more, and bytes that don't. */
    private static final int OBJECTS = 4000;

    private static final int LISTS = 64;
    private static final int GARBAGE = 1 << 20;
    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();

    private final String kind;
    private final int every;
    private final PrintWriter log;
    private final Random random = new Random(1);
    private final Object[][] living = new Object[LISTS][];
    private int turn;
    private volatile byte[] garbage = new byte[0];

    /** One of {@code every} requests is struck; where and when is written to {@code log}. */
    Hazard(String kind, int every, Path log) throws IOException {
        this.kind = kind;
        this.every = every;
        StandardOpenOption[] further = {StandardOpenOption.CREATE, StandardOpenOption.APPEND};
        this.log = new PrintWriter(Files.newBufferedWriter(log, further), true);
    }

    /** Whether every request is written down. */
    boolean writesAll() {
        return kind.equals("restart");
    }

    /** Whether the next answer is to go out in two writes. */
    boolean splits() {
        return kind.equals("nagle") && strikes();
    }

    /** What happens within a request. */
    void happen() {
        if (kind.equals("pages") && strikes()) {
            Begin begin = begin();
            Memory.touch((long) PAGES * HUGE_PAGE, HUGE_PAGE);
            strikes(begin);
        } else if (kind.equals("garbage")) {
            litter();
        }
    }

    /** A moment at which it may begin to strike. */
    record Begin(long at, long cpu) {}

    /** This moment, of this thread. */
    static Begin begin() {
        return new Begin(System.nanoTime(), THREADS.getCurrentThreadCpuTime());
    }

    /** Writes down that it struck this thread from then until now. */
    synchronized void strikes(Begin begin) {
        long cpu = THREADS.getCurrentThreadCpuTime() - begin.cpu;
        log.println(begin.at + " " + System.nanoTime() + " " + cpu);
    }

    private synchronized boolean strikes() {
        return random.nextInt(every) == 0;
    }

    private synchronized void litter() {
        Object[] list = new Object[OBJECTS];
        for (int i = 0; i < list.length; i++) {
            list[i] = new int[6];
        }
        living[turn++ % LISTS] = list;
        garbage = new byte[GARBAGE + garbage.length % 2];
    }

    /** Plain memory: what the heap gives may have been touched before. */
    private static final class Memory {
        private static final sun.misc.Unsafe UNSAFE = unsafe();

        static void touch(long bytes, int step) {
            long begin = UNSAFE.allocateMemory(bytes);
            for (long at = begin; at < begin + bytes; at += step) {
                UNSAFE.putByte(at, (byte) 1);
            }
            UNSAFE.freeMemory(begin);
        }

        private static sun.misc.Unsafe unsafe() {
            try {
                Field field = sun.misc.Unsafe.class.getDeclaredField("theUnsafe");
                field.setAccessible(true);
                return (sun.misc.Unsafe) field.get(null);
            } catch (ReflectiveOperationException missing) {
                throw new IllegalStateException("this JVM has no sun.misc.Unsafe", missing);
            }
        }
    }
}
