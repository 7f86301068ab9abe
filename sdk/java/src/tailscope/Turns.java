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

    private final Recorder recorder;
    /** Where pages are, by meter; 0: no thread has counted yet. */
    private long first;
    /** Who counts there. */
    private final Thread[] counting = new Thread[Abi.METERS];
    private int left;

    Turns(Recorder recorder) {
        this.recorder = recorder;
    }

    /** The recorder has chosen other events, or none. */
    void take(Counters counters, long meter) {
        long region = recorder.region();
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
                count(counters, events, group, turn, recorder.slot(meter));
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
    private void count(
        Counters counters, Perf.Event[] events, int group, int turn, int slot)
        throws Libc.Failure {
        Registers.check();
        if (first == 0) {
            first = Libc.reserve(Abi.METERS * GROUP_BYTES);
        }
        long at = first + slot * GROUP_BYTES;
        Libc.empty(at, GROUP_BYTES); // of a thread that was here before
        Probe.setCounting(recorder.which(), true);
        left = 0;
        try {
            Perf.open(events, at);
        } catch (Libc.Failure e) {
            Libc.empty(at, GROUP_BYTES);
            throw e;
        }
        counting[slot] = Thread.currentThread();
        counters.take(at, group, events.length, turn);
    }

    /** This thread counts nothing any more; under the lock. */
    private void stopCounting(Counters counters) throws Libc.Failure {
        long pages = counters.pages();
        counters.forget();
        if (pages != 0) {
            counting[(int) ((pages - first) / GROUP_BYTES)] = null;
            Libc.empty(pages, GROUP_BYTES);
        }
    }

    /** Begins anew: this thread counts nothing. */
    void stop(Counters counters) {
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
    void recorderLeft(Counters counters) {
        if (!LOCK.tryLock()) {
            return;
        }
        try {
            stopCounting(counters);
            if (left++ % LOOK_EVERY != 0) {
                return;
            }
            boolean isOneLeft = false;
            for (int slot = 0; slot < counting.length; slot++) {
                if (counting[slot] != null && !counting[slot].isAlive()) {
                    Libc.empty(first + slot * GROUP_BYTES, GROUP_BYTES);
                    counting[slot] = null;
                }
                isOneLeft |= counting[slot] != null;
            }
            if (!isOneLeft) {
                Probe.setCounting(recorder.which(), false);
            }
        } catch (Libc.Failure e) {
            // As above.
        } finally {
            LOCK.unlock();
        }
    }

    /** Has the recorder say why a thread does not count. */
    void refused(int errno) {
        if (recorder.epoch() != 0) {
            long asked = recorder.region() + Abi.REGION_COUNTING;
            Memory.setIntRelease(asked + Abi.COUNTING_REFUSED, errno);
        }
    }
}
