// SPDX-License-Identifier: MIT
package tailscope;

import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.util.Arrays;

/**
 * The hardware counters of a thread: which the recorder says whose turn it is ({@link Turns}), read
 * last in begin and first in end, so that what lies between is the span's own. What the kernel and
 * interrupts execute is not counted, nor what runs while the thread is switched out.
 *
 * <p>What begin and end count of themselves is measured on empty spans and taken off. In a JVM that
 * is no constant: it falls from thousands of instructions to some dozens as their code is compiled.
 * So an empty span goes before a span now and then, and the least of the latest ones is taken off;
 * before every other one at first, for what makes empty spans has to be compiled, too. What a span
 * counted that counts less than an empty one is not known.
 */
final class Counters {
    private static final long WHOLE = 1L << 32;
    private static final long UNKNOWN = Long.MAX_VALUE;
    /** Of so many empty spans, the latest, the least is taken. */
    private static final int EMPTY_SPANS = 8;
    /** Spans from an empty one to the next. */
    private static final int EVERY = 32;
    /** So many of a process go before every other span. */
    private static final int UNTIL_COMPILED = 10_000;
    /** So much less than an empty span a span may count: by chance, not for newly compiled code. */
    private static final int CHANCE = 64;

    /**
     * Makes an empty span. Not final, so that HotSpot does not compile it into its caller: that is a begin, and one with
     * another begin and an end in it is so large that of its loads and stores many remain calls.
     */
    private static MethodHandle beginAndEnd = beginAndEndHandle();
    /** Empty spans of this process, about: threads count them as they like. */
    private static int emptySpans;

    private final Recorder recorder;
    private long pages;
    private int count;
    private int group;
    /** Of the recorder that the rest belongs to; 0: of none. */
    private int turn;
    private boolean isCalibrating;
    /** Spans until an empty one goes before. */
    private int until;
    /** What the latest empty spans counted, counter by counter, and where the next one goes. */
    private final long[] latest = new long[EMPTY_SPANS * Abi.COUNTERS];
    private int next;
    /** What a begin and an end count of themselves, of each counter. */
    private final long[] own = new long[Abi.COUNTERS];
    private final Counted end = new Counted();

    Counters(Recorder recorder) {
        this.recorder = recorder;
    }

    private static MethodHandle beginAndEndHandle() {
        try {
            return MethodHandles.lookup().findStatic(
                Counters.class, "beginAndEnd", MethodType.methodType(void.class, Metered.class));
        } catch (ReflectiveOperationException e) {
            throw new ExceptionInInitializerError(e);
        }
    }

    int turn() {
        return turn;
    }

    boolean areRead() {
        return count != 0;
    }

    boolean areCalibrating() {
        return isCalibrating;
    }

    /** Where its pages are; 0: it has none. */
    long pages() {
        return pages;
    }

    /** Counts nothing any more; spans that are open are not read again. */
    void forget() {
        pages = 0;
        count = 0;
        turn = 0;
    }

    /** Counts nothing in this turn. */
    void pass(int turnNow) {
        forget();
        turn = turnNow;
    }

    /** Counts this group from now on, in pages of perf's that stay until {@code forget}. */
    void take(long pagesNow, int groupNow, int countNow, int turnNow) {
        pages = pagesNow;
        group = groupNow;
        count = countNow;
        turn = turnNow;
    }

    /** Before a span begins: measures on empty ones what begin and end count, if it is time. */
    void calibrate(Metered thread, boolean isNewTurn) {
        if (isNewTurn) {
            Arrays.fill(latest, UNKNOWN);
            for (int i = 0; i < EMPTY_SPANS; i++) {
                makeEmpty(thread);
            }
        } else if (--until <= 0) {
            makeEmpty(thread);
        }
    }

    /** Called by its handle only. */
    static void beginAndEnd(Metered thread) {
        Span.of(thread.begin("")).end();
    }

    private void makeEmpty(Metered thread) {
        isCalibrating = true;
        try {
            beginAndEnd.invokeExact(thread);
        } catch (RuntimeException | Error e) {
            throw e;
        } catch (Throwable e) {
            throw new IllegalStateException(e);
        } finally {
            isCalibrating = false;
        }
        // Without a branch: one that was never taken would cost all of begin its compiled code.
        emptySpans = Math.min(emptySpans + 1, UNTIL_COMPILED);
        until = 2 + emptySpans / UNTIL_COMPILED * (EVERY - 2);
    }

    /** Reads them for a begin; returns the turn that they are of. */
    int begin(Counted now) {
        read(now);
        return turn;
    }

    /** Reads them for the end of a span. */
    void end() {
        read(end);
    }

    private void read(Counted now) {
        if (count == 0) { // a reading since the begin was refused
            now.forget();
            return;
        }
        int result;
        do {
            result = Registers.read(pages, Perf.PAGE, count, now.at);
        } while (result == Registers.DISTURBED);
        if (result == Registers.REFUSED) {
            // What is open ends without values, what begins has none.
            now.forget();
            count = 0;
            recorder.turns().refused(Libc.Failure.EOPNOTSUPP);
        }
    }

    /** An empty span ended. */
    void takeLeast(Counted begin) {
        for (int i = 0; i < count; i++) {
            boolean isKnown = begin.isKnown(i) && end.isKnown(i);
            latest[next + i] = isKnown ? end.value(i) - begin.value(i) : UNKNOWN;
        }
        next = (next + Abi.COUNTERS) % latest.length;
        for (int i = 0; i < count; i++) {
            long least = UNKNOWN;
            for (int at = i; at < latest.length; at += Abi.COUNTERS) {
                least = Math.min(least, latest[at]);
            }
            own[i] = least == UNKNOWN ? 0 : least;
        }
    }

    /** Writes what a span counted behind its row; returns how many bytes that takes. */
    int write(Counted begin, long beginCycles, long endCycles, long place) {
        long share = WHOLE;
        if (count != 0 && !end.wasOnSince(begin)) {
            share = Perf.hasTime(pages)
                ? Counted.share(
                    begin, Perf.ns(pages, beginCycles), end, Perf.ns(pages, endCycles))
                : 0;
        }
        int known = 0;
        long at = place + Abi.COUNTS_BYTES;
        for (int i = 0; i < count && share != 0; i++) {
            long counted = end.value(i) - begin.value(i) - own[i];
            if (!begin.isKnown(i) || !end.isKnown(i)) {
                continue;
            }
            if (counted < -CHANCE) { // begin and end have been compiled since
                until = Math.min(until, EMPTY_SPANS);
                continue;
            }
            counted = Math.max(0, counted);
            Memory.setLong(at, share == WHOLE ? counted : scaled(counted, share));
            at += Long.BYTES;
            known |= 1 << i;
        }
        Memory.setLong(place, group | (long) known << Abi.COUNTS_KNOWN);
        return (int) (at - place);
    }

    /** The same as if the group had been on all the time; in two steps, so that none overflows. */
    private static long scaled(long counted, long share) {
        return (counted / share << 32) + Long.divideUnsigned(counted % share << 32, share);
    }
}
