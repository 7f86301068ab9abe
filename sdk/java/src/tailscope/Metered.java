// SPDX-License-Identifier: MIT
package tailscope;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/**
 * A thread of the kernel's that begins spans: its meter, the chunk that it writes rows into, its
 * readings.
 */
final class Metered {
    private static final ThreadLocal<Metered> OF_THREAD =
        ThreadLocal.withInitial(() -> new Metered(Recorder.FIRST));
    private static final long ALWAYS = 1L << 32; // probabilities are of 2^32: from here on always
    private static final long NEVER = -1;
    private static final int NAMES_KNOWN = 16;
    private static final int PATIENCE = 10_000; // looks at a name that another thread writes
    private static final int ROWS_LOST_UNSEEN = 255; // looking for a chunk costs more than a row

    private final Thread thread = Thread.currentThread();
    /** For which recorder all this is, and its region. */
    private final Recorder recorder;
    private final long region;
    /** The same thread for the second recorder; null until that listens. */
    private Metered second;
    /** Of the attachment that the rest belongs to; 0: of none. */
    private long epoch;
    private long meter;
    /** The latest reading of that meter. */
    private Totals totals;
    private long random;
    private long chunk;
    private int chunkIndex;
    private int used;
    private int skip;
    private final String[] names = new String[NAMES_KNOWN];
    private final int[] numbers = new int[NAMES_KNOWN];
    private Reading[] free = new Reading[8];
    private int freeCount;
    private final Counters counters;
    /**
     * Memory of this thread's own: where the CPU's number is left, and a row while no chunk has
     * room.
     */
    private final MemorySegment own = Arena.ofAuto().allocate(8 + Abi.ROW_MAX, 8);
    private final long cpu = own.address();
    private final long spareRow = own.address() + 8;

    private Metered(Recorder recorder) {
        this.recorder = recorder;
        region = recorder.region();
        counters = new Counters(recorder);
    }

    /** The one of this thread for the first recorder. The thread is not a virtual one. */
    static Metered current() {
        return OF_THREAD.get();
    }

    /** The one of this thread for the second. */
    Metered second() {
        if (second == null) {
            second = new Metered(Recorder.SECOND);
        }
        return second;
    }

    /** Whether this thread counts events. */
    boolean counts() {
        return counters.areRead();
    }

    boolean isCurrent() {
        return Thread.currentThread() == thread;
    }

    void forget() {
        epoch = 0;
        recorder.turns().stop(counters);
        totals = null;
        chunk = 0;
        skip = 0;
        Arrays.fill(names, null);
    }

    void attach(long meter, long epoch, long seed) {
        this.meter = meter;
        this.epoch = epoch;
        random = seed ^ thread.threadId() << 32 | 1;
    }

    /** Half of xorshift64 (Marsaglia 2003). */
    private long random() {
        random ^= random << 13;
        random ^= random >>> 7;
        random ^= random << 17;
        return random >>> 32;
    }

    /** Begins a span, if the recorder listens; null: it is not metered. */
    Reading beginIfHeard(String name) {
        if (!Probe.isOfUse(recorder.which())) {
            return null;
        }
        if (!Probe.isHeard(recorder.which())) {
            recorderLeft();
            return null;
        }
        return begin(name);
    }

    /** Begins a span; null: it is not metered. */
    Reading begin(String name) {
        if ((epoch == 0 || epoch != recorder.epoch()) && !recorder.attach(this)) {
            return null;
        }
        long sample = Memory.getLongOpaque(region + Abi.REGION_SAMPLE);
        if (Long.compareUnsigned(sample, ALWAYS) < 0 && !counters.areCalibrating()) {
            if (random() >= sample) {
                passOver();
                return null;
            }
            Memory.setInt(meter + Abi.METER_OPEN, Memory.getInt(meter + Abi.METER_OPEN) + 1);
        }
        boolean isNewTurn = Memory.getIntOpaque(region + Abi.REGION_TURN) != counters.turn();
        if (isNewTurn || counters.areRead()) {
            prepareCounters(isNewTurn);
        }
        Reading reading = freeCount > 0 ? free[--freeCount] : new Reading(this);
        reading.name = name;
        reading.epoch = epoch;
        totals = reading.take(meter, totals);
        if (recorder.isSilent(reading.begin) && !recorder.lives(reading.begin)) {
            giveBack(reading);
            return null;
        }
        reading.turn++;
        // Last, and first in the end: what lies between is the span's own.
        reading.counting = counters.areRead() ? counters.begin(reading.counted()) : 0;
        return reading;
    }

    private void prepareCounters(boolean isNewTurn) {
        if (counters.areCalibrating()) {
            return;
        }
        if (isNewTurn) {
            recorder.turns().take(counters, meter);
        }
        if (counters.areRead()) {
            counters.calibrate(this, isNewTurn);
        }
    }

    /** The recorder has gone while threads counted. */
    void recorderLeft() {
        recorder.turns().recorderLeft(counters);
    }

    private void passOver() {
        long spans = Memory.getLong(meter + Abi.METER_SPANS) + 1;
        Memory.setLong(meter + Abi.METER_SPANS, spans);
        // A recorder's end may not go unnoticed for ever by spans that are not selected.
        if ((spans & 0xfff) == 0) {
            long now = Probe.cycles();
            if (recorder.isSilent(now)) {
                recorder.lives(now);
            }
        }
    }

    /** Ends a span of this thread. */
    void end(Reading reading, long id, int flags) {
        boolean isCounted = reading.counting != 0 && reading.counting == counters.turn();
        if (isCounted) {
            counters.end();
        }
        reading.turn++;
        if (isCounted && counters.areCalibrating()) {
            counters.takeLeast(reading.counted());
        } else if (epoch == reading.epoch && epoch == recorder.epoch()) {
            finish(reading, id, isCounted ? flags | Abi.ROW_HAS_COUNTS : flags);
        } // else it was begun under another recorder
        giveBack(reading);
    }

    private void giveBack(Reading reading) {
        if (freeCount == free.length) {
            free = Arrays.copyOf(free, 2 * free.length);
        }
        free[freeCount++] = reading;
    }

    private void finish(Reading reading, long id, int flags) {
        int number = number(reading.name);
        int kept = kept(reading, number);
        if (kept < 0) {
            count();
            return;
        }
        boolean hasRoom = chunk != 0 && used + Abi.ROW_MAX <= Abi.CHUNK_BYTES - Abi.CHUNK_ROWS;
        long row = hasRoom ? chunk + Abi.CHUNK_ROWS + used : spareRow;
        int length = reading.write(meter, row, cpu);
        if ((flags & Abi.ROW_HAS_COUNTS) != 0) {
            length += counters.write(reading.counted(), reading.begin, reading.end, row + length);
        }
        count();
        Memory.setLong(row + Abi.ROW_ID, id);
        Memory.setLong(row + Abi.ROW_WORD,
            reading.word | (long) number << Abi.WORD_NAME | (long) flags << Abi.WORD_FLAGS);
        Memory.setLong(row + Abi.ROW_QUEUE_NS, 0);
        Memory.setLong(row + Abi.ROW_KEPT, kept);
        if (!hasRoom) { // looked for only now, so that it is not part of the span
            if (!nextChunk()) {
                return;
            }
            Memory.copy(row, chunk + Abi.CHUNK_ROWS, length);
        }
        used += length;
        Memory.setIntRelease(chunk + Abi.CHUNK_USED, used);
    }

    /** The code that the row carries; negative: none is written. */
    private int kept(Reading reading, int number) {
        long retention = region + Abi.REGION_RETENTION + (long) number * Abi.RETENTION_BYTES;
        int code = (int) Memory.getLongOpaque(retention + Abi.RETENTION_OTHERS) & 0xffff;
        if (code == 0) {
            return 0;
        }
        long alwaysFrom = Memory.getLongOpaque(retention + Abi.RETENTION_ALWAYS_FROM);
        if (alwaysFrom != NEVER) {
            long wall = Probe.cyclesAfterWork(cpu) - reading.begin;
            if (Long.compareUnsigned(wall, alwaysFrom) >= 0) {
                return 0;
            }
        }
        return random() < Abi.keepProbability(code) ? code : -1;
    }

    /** A span ended, kept or not. */
    private void count() {
        Memory.setLong(meter + Abi.METER_SPANS, Memory.getLong(meter + Abi.METER_SPANS) + 1);
        long sample = Memory.getLongOpaque(region + Abi.REGION_SAMPLE);
        int open = Memory.getInt(meter + Abi.METER_OPEN);
        if (Long.compareUnsigned(sample, ALWAYS) < 0 && open > 0) {
            Memory.setInt(meter + Abi.METER_OPEN, open - 1);
        }
    }

    /** Hands over the full chunk and takes a free one. Returns false if there is none. */
    private boolean nextChunk() {
        long states = region + Abi.REGION_CHUNK_STATE;
        if (chunk != 0) {
            Memory.setIntRelease(states + 4L * chunkIndex, Abi.CHUNK_FULL);
        }
        chunk = 0;
        if (skip == 0) {
            int owned = Abi.CHUNK_OWNED | recorder.slot(meter) << 8;
            for (int i = 0; i < Abi.CHUNKS; i++) {
                long state = states + 4L * i;
                if (Memory.getIntOpaque(state) == Abi.CHUNK_FREE
                    && Memory.compareAndSetInt(state, Abi.CHUNK_FREE, owned)) {
                    chunk = recorder.chunk(i);
                    int tid = Memory.getInt(meter + Abi.METER_KERNEL_TID);
                    Memory.setInt(chunk + Abi.CHUNK_TID, tid);
                    chunkIndex = i;
                    used = 0;
                    return true;
                }
            }
            skip = ROWS_LOST_UNSEEN;
        } else {
            skip--;
        }
        Memory.addLong(region + Abi.REGION_LOST, 1);
        return false;
    }

    /** The number of a name in the region; {@code Abi.NAMES} if there is no room. */
    private int number(String name) {
        if (name == null) {
            return Abi.NAMES;
        }
        int place = name.hashCode() & NAMES_KNOWN - 1;
        if (!name.equals(names[place])) {
            int number = lookUp(name);
            if (number == Abi.NAMES) {
                return number;
            }
            names[place] = name;
            numbers[place] = number;
        }
        return numbers[place];
    }

    private int lookUp(String name) {
        byte[] text = name.getBytes(StandardCharsets.UTF_8);
        int length = Math.min(text.length, Abi.NAME_LONGEST);
        while (length > 0 && length < text.length && (text[length] & 0xc0) == 0x80) {
            length--; // not in the middle of a letter
        }
        for (int number = 0; length > 0 && number < Abi.NAMES; number++) {
            long entry = region + Abi.REGION_NAMES + (long) number * Abi.NAME_BYTES;
            int have = Memory.getIntAcquire(entry + Abi.NAME_LENGTH);
            if (have == 0 && Memory.compareAndSetInt(entry + Abi.NAME_LENGTH, 0, Abi.NAME_BUSY)) {
                Memory.copyIn(text, length, entry + Abi.NAME_TEXT);
                Memory.setIntRelease(entry + Abi.NAME_LENGTH, length);
                return number;
            }
            for (int i = 0; (have == 0 || have == Abi.NAME_BUSY) && i < PATIENCE; i++) {
                have = Memory.getIntAcquire(entry + Abi.NAME_LENGTH);
            }
            if (have == length && isText(entry + Abi.NAME_TEXT, text, length)) {
                return number;
            }
        }
        return Abi.NAMES;
    }

    private static boolean isText(long at, byte[] text, int length) {
        for (int i = 0; i < length; i++) {
            if (Memory.getByte(at + i) != text[i]) {
                return false;
            }
        }
        return true;
    }
}
