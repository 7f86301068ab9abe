// SPDX-License-Identifier: MIT
package tailscope;

import java.lang.invoke.VarHandle;
import java.util.concurrent.locks.ReentrantLock;

/**
 * Which events a thread counts, and until when. Everything here is rare: at a thread's first span,
 * once a turn, and at the end.
 */
final class Turns {
    private static final long GROUP_BYTES = Abi.COUNTERS * Perf.PAGE;
    /** Begins that go by, once the recorder has gone, until ended threads are looked for. */
    private static final int LOOK_EVERY = 1024;

    private static final ReentrantLock LOCK = new ReentrantLock();
    /** Where pages are, by meter; 0: no thread has counted yet. */
    private static long first;
    /** Who counts there. */
    private static final Thread[] COUNTING = new Thread[Abi.METERS];
    private static int left;

    /** The recorder has chosen other events, or none. */
    static void take(Counters counters, long meter) {
        long region = Recorder.region();
        int turn = Memory.getIntAcquire(region + Abi.REGION_TURN);
        int count = Math.min(
            Memory.getInt(region + Abi.REGION_COUNTING + Abi.COUNTING_COUNT), Abi.COUNTERS);
        int group = Memory.getInt(region + Abi.REGION_COUNTING + Abi.COUNTING_GROUP);
        Perf.Event[] events = new Perf.Event[Math.max(count, 0)];
        for (int i = 0; i < events.length; i++) {
            events[i] = event(
                region + Abi.REGION_COUNTING + Abi.COUNTING_EVENT + (long) i * Abi.EVENT_BYTES);
        }
        VarHandle.loadLoadFence();
        boolean isWhole = (turn & 1) == 0
            && Memory.getIntOpaque(region + Abi.REGION_TURN) == turn;
        if (!isWhole || !LOCK.tryLock()) {
            return; // not now: the next span sees it
        }
        try {
            stopCounting(counters);
            counters.pass(turn);
            if (turn != 0 && events.length > 0) {
                count(counters, events, group, turn, Recorder.slot(meter));
            }
        } catch (Libc.Failure e) {
            refused(e.errno);
        } finally {
            LOCK.unlock();
        }
    }

    private static Perf.Event event(long at) {
        return new Perf.Event(
            Memory.getInt(at + Abi.EVENT_TYPE),
            Memory.getLong(at + Abi.EVENT_CONFIG),
            Memory.getLong(at + Abi.EVENT_CONFIG1),
            Memory.getLong(at + Abi.EVENT_CONFIG2));
    }

    /** Counts this group on this thread from now on; under the lock. */
    private static void count(
        Counters counters, Perf.Event[] events, int group, int turn, int slot)
        throws Libc.Failure {
        Registers.check();
        if (first == 0) {
            first = Libc.reserve(Abi.METERS * GROUP_BYTES);
        }
        long at = first + slot * GROUP_BYTES;
        Libc.empty(at, GROUP_BYTES); // of a thread that was here before
        Probe.setCounting(true);
        left = 0;
        try {
            Perf.open(events, at);
        } catch (Libc.Failure e) {
            Libc.empty(at, GROUP_BYTES);
            throw e;
        }
        COUNTING[slot] = Thread.currentThread();
        counters.take(at, group, events.length, turn);
    }

    /** This thread counts nothing any more; under the lock. */
    private static void stopCounting(Counters counters) throws Libc.Failure {
        long pages = counters.pages();
        counters.forget();
        if (pages != 0) {
            COUNTING[(int) ((pages - first) / GROUP_BYTES)] = null;
            Libc.empty(pages, GROUP_BYTES);
        }
    }

    /** Begins anew: this thread counts nothing. */
    static void stop(Counters counters) {
        LOCK.lock();
        try {
            stopCounting(counters);
        } catch (Libc.Failure e) {
            // The events go on counting, and nobody reads them.
        } finally {
            LOCK.unlock();
        }
    }

    /**
     * The recorder has gone while threads counted. Each stops at its next begin; those that have
     * ended are looked for now and then. When none is left, a begin is a load and a branch again.
     */
    static void recorderLeft(Counters counters) {
        if (!LOCK.tryLock()) {
            return;
        }
        try {
            stopCounting(counters);
            if (left++ % LOOK_EVERY != 0) {
                return;
            }
            boolean isOneLeft = false;
            for (int slot = 0; slot < COUNTING.length; slot++) {
                if (COUNTING[slot] != null && !COUNTING[slot].isAlive()) {
                    Libc.empty(first + slot * GROUP_BYTES, GROUP_BYTES);
                    COUNTING[slot] = null;
                }
                isOneLeft |= COUNTING[slot] != null;
            }
            if (!isOneLeft) {
                Probe.setCounting(false);
            }
        } catch (Libc.Failure e) {
            // As above.
        } finally {
            LOCK.unlock();
        }
    }

    /** Has the recorder say why a thread does not count. */
    static void refused(int errno) {
        if (Recorder.epoch() != 0) {
            long counting = Recorder.region() + Abi.REGION_COUNTING;
            Memory.setIntRelease(counting + Abi.COUNTING_REFUSED, errno);
        }
    }

    private Turns() {}
}
