// SPDX-License-Identifier: MIT
package tailscope;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.locks.ReentrantLock;

/**
 * What this process shares with a recorder, and how it comes to that: attaching, as tailscope.h
 * does. Two recorders may listen at a time; the process attaches to each for itself.
 */
final class Recorder {
    static final Recorder FIRST = new Recorder(0);
    static final Recorder SECOND = new Recorder(1);

    private static final long METERS_BYTES = (long) Abi.METERS * Abi.METER_BYTES;
    private static final long RETRY_FIRST = 1L << 28; // cycles: about 0.1 s
    private static final long RETRY_LAST = 1L << 37; // about a minute
    private static final long TELL_EVERY = 1L << 32; // about a second

    /** For both: a span in what attaching to one calls may attach to the other. */
    private static final ReentrantLock LOCK = new ReentrantLock();
    /** Of the present attachment; 0: not attached. None is used twice. */
    private volatile long epoch;
    private volatile long retryAfter;
    private volatile long checkAfter;
    private long lastEpoch;
    private long retryWait;
    private int socket = -1;
    private volatile long tellAfter;
    private final int which;
    /** Addresses for the meters and the region, once and for all recorders to come. */
    private final long meters;
    private final long region;
    private final Turns turns = new Turns(this);

    private Recorder(int which) {
        this.which = which;
        try {
            meters = Libc.reserve(METERS_BYTES + Abi.REGION_BYTES);
        } catch (Libc.Failure e) {
            throw new UnsupportedOperationException(e);
        }
        region = meters + METERS_BYTES;
    }

    int which() {
        return which;
    }

    /** Which events threads count for it. */
    Turns turns() {
        return turns;
    }

    long epoch() {
        return epoch;
    }

    /** The region for rows. Only while attached. */
    long region() {
        return region;
    }

    /** The meter with this number. Only while attached. */
    long meter(int slot) {
        return meters + (long) slot * Abi.METER_BYTES;
    }

    int slot(long meter) {
        return (int) ((meter - meters) / Abi.METER_BYTES);
    }

    long chunk(int index) {
        return region + Abi.REGION_HEAD + (long) index * Abi.CHUNK_BYTES;
    }

    private String path() {
        String path = System.getenv("TAILSCOPE_SOCKET");
        return (path == null ? Abi.SOCKET : path) + (which == 0 ? "" : Abi.SECOND);
    }

    /**
     * How long the first begin waits for the recorder's answer: what {@code record} sets for the
     * command that it starts, as nobody else waits for that; else 200 ms.
     */
    private static long patienceMs() {
        String said = System.getenv("TAILSCOPE_PATIENCE_MS");
        try {
            long ms = said == null ? 0 : Long.parseLong(said);
            return ms >= 1 && ms <= 60_000 ? ms : 200;
        } catch (NumberFormatException wrong) {
            return 200;
        }
    }

    /** Makes this process known to the recorders that are there already. */
    static void knock() {
        FIRST.knockHere();
        SECOND.knockHere();
    }

    /**
     * Makes itself known to a recorder that is there already: the one that starts a JVM can't know
     * that a jar in it will map the probe, and would find it only a second later.
     */
    private void knockHere() {
        if (Files.exists(Path.of(path()))) {
            LOCK.lock();
            try {
                attachProcess(Probe.cycles());
            } catch (Libc.Failure notNow) {
                // Not for us, it seems: when it is, the probe's semaphore will say so.
            } finally {
                LOCK.unlock();
            }
        }
    }

    /**
     * Attaches the process if it is not, and this thread. Returns whether the thread is metered.
     */
    boolean attach(Metered thread) {
        long now = Probe.cycles();
        // A span in what attaching itself calls would attach again.
        if (now < retryAfter || LOCK.isHeldByCurrentThread()) {
            return false;
        }
        LOCK.lock();
        try {
            // Who waited for the one that failed just now has not failed again.
            if (now < retryAfter) {
                return false;
            }
            attachProcess(now);
            thread.forget();
            thread.attach(claim(), epoch, now);
            retryWait = 0;
            return true;
        } catch (Libc.Failure e) {
            if (e.errno != Libc.Failure.ESRCH) {
                Probe.tell(which, -e.errno);
            }
            retryWait = Math.min(Math.max(retryWait * 2, RETRY_FIRST), RETRY_LAST);
            retryAfter = now + retryWait;
            return false;
        } finally {
            LOCK.unlock();
        }
    }

    private void attachProcess(long now) throws Libc.Failure {
        // A thread that has just begun has no span that could have noticed the recorder's end.
        if (epoch != 0 && !(isSilent(now) && hasHungUp())) {
            return;
        }
        epoch = 0;
        if (socket >= 0) {
            Libc.close(socket);
            socket = -1;
        }
        map(connect());
        checkAfter = 0;
        epoch = ++lastEpoch;
    }

    /**
     * Connects to the socket at which only this user is served, else to everybody's: at that others
     * can keep us waiting.
     */
    private int reach() throws Libc.Failure {
        String everybodys = path();
        String own = everybodys + "." + Integer.toUnsignedString(Libc.user());
        try {
            return Libc.connect(own.getBytes(StandardCharsets.UTF_8), patienceMs());
        } catch (Libc.Failure e) {
            if (e.errno == Libc.Failure.EAGAIN) {
                throw e;
            }
            return Libc.connect(everybodys.getBytes(StandardCharsets.UTF_8), patienceMs());
        }
    }

    /** Connects, and takes the descriptors of the meters and of the region. */
    private int[] connect() throws Libc.Failure {
        int connection = reach();
        boolean isGood = false;
        try {
            Libc.Packet packet = Libc.receive(connection, Abi.ANSWER_BYTES);
            ByteBuffer answer = ByteBuffer.wrap(packet.bytes()).order(ByteOrder.LITTLE_ENDIAN);
            int status = answer.getInt(Abi.ANSWER_STATUS);
            if (status == Abi.NOT_WATCHED) {
                throw new Libc.Failure("answer", Libc.Failure.ESRCH);
            }
            isGood = status == Abi.ACCEPTED && packet.files() != null
                && answer.getLong(Abi.ANSWER_MAGIC) == Abi.MAGIC
                && answer.getInt(Abi.ANSWER_ABI) == Abi.ABI;
            if (!isGood) {
                packet.discard();
                throw new Libc.Failure("answer", Libc.Failure.EPROTO);
            }
            socket = connection; // its end tells of the recorder's: kept until then
            return packet.files();
        } finally {
            if (!isGood) {
                Libc.close(connection);
            }
        }
    }

    private void map(int[] files) throws Libc.Failure {
        try {
            Libc.mapOver(meters, METERS_BYTES, files[0]);
            Libc.mapOver(region, Abi.REGION_BYTES, files[1]);
        } finally {
            Libc.close(files[0]);
            Libc.close(files[1]);
        }
        if (Memory.getLong(region + Abi.REGION_MAGIC) != Abi.MAGIC
            || Memory.getInt(region + Abi.REGION_ABI) != Abi.ABI) {
            throw new Libc.Failure("region", Libc.Failure.EPROTO);
        }
    }

    /** Claims a meter for this thread and tells the kernel which. */
    private long claim() throws Libc.Failure {
        int self = Libc.threadId();
        int mine = -1;
        // A part of this process in another language may have claimed one for this thread already.
        for (int slot = 0; slot < Abi.METERS && mine < 0; slot++) {
            if (Memory.getIntOpaque(meter(slot) + Abi.METER_TID) == self) {
                if (Memory.getIntOpaque(meter(slot) + Abi.METER_KERNEL_TID) != 0) {
                    return meter(slot);
                }
                mine = slot;
            }
        }
        for (int slot = 0; slot < Abi.METERS && mine < 0; slot++) {
            if (Memory.compareAndSetInt(meter(slot) + Abi.METER_TID, 0, self)) {
                mine = slot;
            }
        }
        if (mine < 0) {
            throw new Libc.Failure("claim a meter", Libc.Failure.ENOSPC);
        }
        Probe.tell(which, mine);
        if (Memory.getIntAcquire(meter(mine) + Abi.METER_KERNEL_TID) == 0) {
            Memory.setIntRelease(meter(mine) + Abi.METER_TID, 0);
            throw new Libc.Failure("claim a meter", Libc.Failure.ESRCH); // nobody listened
        }
        return meter(mine);
    }

    /** Whether at {@code now} the recorder was not heard of for longer than it said it might be. */
    boolean isSilent(long now) {
        long since = now - Memory.getLongOpaque(region + Abi.REGION_HEARTBEAT);
        // A heartbeat may be from a moment after `now`.
        return since > 0 && since >= Memory.getLongOpaque(region + Abi.REGION_OVERDUE);
    }

    private boolean hasHungUp() {
        return socket < 0 || !Libc.isQuiet(socket);
    }

    /** It is silent: whether it still lives. If it does not, the next begin looks for another. */
    boolean lives(long now) {
        if (now < checkAfter || !LOCK.tryLock()) {
            return true;
        }
        try {
            boolean lives = epoch != 0 && !hasHungUp();
            if (lives) {
                checkAfter = now + Memory.getLongOpaque(region + Abi.REGION_OVERDUE);
            } else {
                epoch = 0;
            }
            return lives;
        } finally {
            LOCK.unlock();
        }
    }

    /**
     * Has the recorder say that this process begins spans on virtual threads. Not at each: it is a
     * trap.
     */
    void tellOfVirtual() {
        long now = Probe.isHeard(which) ? Probe.cycles() : 0;
        if (now != 0 && now >= tellAfter) {
            tellAfter = now + TELL_EVERY;
            Probe.tell(which, -Libc.Failure.EOPNOTSUPP);
        }
    }
}
