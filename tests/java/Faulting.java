// SPDX-License-Identifier: Apache-2.0
package tailscope;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/**
 * Readings of counters where user space may not read any, so that each faults for real, among the
 * faults that a JVM lives by: null pointers in compiled code, stacks that overflow, and, on another
 * thread, all of it at the same time. Prints how many of each there were.
 */
public final class Faulting {
    private static final int ROUNDS = 50_000;
    private static final int OVERFLOWS = 20;

    private int field = 1;

    private static int nullPointers(int rounds) {
        Faulting[] some = {new Faulting(), null};
        int caught = 0;
        int sum = 0;
        for (int i = 0; i < rounds; i++) {
            try {
                sum += some[i % 100 == 99 ? 1 : 0].field;
            } catch (NullPointerException expected) {
                caught++;
            }
        }
        return sum + caught == rounds ? caught : -1;
    }

    private static int deep(int depth) {
        return deep(depth + 1) + 1;
    }

    private static int overflows() {
        int caught = 0;
        for (int i = 0; i < OVERFLOWS; i++) {
            try {
                deep(0);
            } catch (StackOverflowError expected) {
                caught++;
            }
        }
        return caught;
    }

    private static void faultAll() {
        int refused = 0;
        try (Arena arena = Arena.ofConfined()) {
            // A page as perf's of an event that is in the first register.
            MemorySegment page = arena.allocate(4096, 4096);
            page.set(ValueLayout.JAVA_INT, 12, 1);
            Counted now = new Counted();
            for (int i = 0; i < ROUNDS; i++) {
                if (Registers.read(page.address(), 4096, 1, now.at) == Registers.REFUSED) {
                    refused++;
                }
            }
            page.set(ValueLayout.JAVA_INT, 12, 0); // in none: nothing is read, nothing faults
            page.set(ValueLayout.JAVA_LONG, 16, 77);
            int whole = Registers.read(page.address(), 4096, 1, now.at);
            if (whole != Registers.WHOLE || now.isKnown(0)) {
                refused = -1;
            }
        }
        System.out.println("{\"refused\": " + refused + ", \"of\": " + ROUNDS + ", \"nulls\": "
            + nullPointers(10 * ROUNDS) + ", \"overflows\": " + overflows() + "}");
    }

    public static void main(String[] arguments) throws Exception {
        Registers.check();
        Thread other = new Thread(Faulting::faultAll);
        other.start();
        faultAll();
        other.join();
        Registers.check(); // throws, if its handler is not in its place any more
        System.out.println("{\"guarded\": true}");
    }
}
