// SPDX-License-Identifier: MIT
package tailscope;

import java.lang.invoke.VarHandle;

/**
 * What a span's begin saw of its thread's meter. Used again, by the same thread, for later spans.
 */
final class Reading {
    final Metered thread;
    /**
     * Odd while a span holds it. Changes at each begin and end, so an ended span does not know it
     * again.
     */
    long turn;
    String name;
    long epoch;
    long begin;
    /** When {@code write} read the clock. */
    long end;
    /** Causes and CPU as {@code write} found them: of the row's word, which is not stored yet. */
    long word;
    /** Whose turn it was when its begin read the counters; 0: it did not. */
    int counting;
    private Counted counted;
    private Totals totals;

    Reading(Metered thread) {
        this.thread = thread;
    }

    /** What the counters were at the begin. */
    Counted counted() {
        if (counted == null) {
            counted = new Counted();
        }
        return counted;
    }

    /**
     * Reads the clock and the meter: again, if an interrupt or a switch came in between. {@code
     * last} is what the thread read of the same meter before, if anything: while the kernel writes
     * nothing, it still holds.
     */
    Totals take(long meter, Totals last) {
        int now;
        totals = last;
        do {
            now = Memory.getIntAcquire(meter + Abi.METER_SEQ);
            begin = Probe.cycles();
            if (totals == null || totals.seq() != now) {
                totals = Totals.read(meter, now);
            }
            VarHandle.loadLoadFence();
        } while (Memory.getIntOpaque(meter + Abi.METER_SEQ) != now);
        return totals;
    }

    /**
     * Reads the meter and the clock once more and writes the differences as a row, all but what
     * does not come from them. Returns how many bytes the row is long.
     */
    int write(long meter, long row, long cpu) {
        int now;
        int causes;
        long share;
        do {
            now = Memory.getIntAcquire(meter + Abi.METER_SEQ);
            end = Probe.cyclesAfterWork(cpu);
            causes = 0;
            share = row + Abi.ROW_BYTES;
            for (int cause = 0; now != totals.seq() && cause < Abi.CAUSES; cause++) {
                long spent = Totals.ns(meter, cause) - totals.ns()[cause];
                int count = Totals.n(meter, cause);
                int times = count - totals.n()[cause];
                if (spent != 0 || times != 0) {
                    causes |= 1 << cause;
                    Memory.setLong(share + Abi.SHARE_NS, spent);
                    Memory.setInt(share + Abi.SHARE_N, times);
                    Memory.setInt(share + Abi.SHARE_WHO, blamed(meter, cause, count, times));
                    share += Abi.SHARE_BYTES;
                }
            }
            VarHandle.loadLoadFence();
        } while (Memory.getIntOpaque(meter + Abi.METER_SEQ) != now);
        Memory.setLong(row + Abi.ROW_BEGIN, begin);
        Memory.setLong(row + Abi.ROW_WALL, end - begin);
        word = causes | (long) Probe.cpu(Memory.getInt(cpu)) << Abi.WORD_CPU;
        return (int) (share - row);
    }

    /** Whose the largest of a cause's {@code times} latest episodes was; 0: nobody is known. */
    private static int blamed(long meter, int cause, int count, int times) {
        if (times == 0 || (Abi.BLAMED_CAUSES & 1 << cause) == 0) {
            return 0;
        }
        long episode = meter + Abi.recent(cause);
        for (int i = 0; i < Abi.EPISODES; i++, episode += Abi.EPISODE_BYTES) {
            int age = count - Memory.getShort(episode + Abi.EPISODE_N) & 0xffff;
            boolean isWithin = Integer.compareUnsigned(age, times) < 0;
            if (isWithin && Memory.getInt(episode + Abi.EPISODE_NS) != 0) {
                return Memory.getShort(episode + Abi.EPISODE_WHO);
            }
        }
        return 0;
    }
}
