// SPDX-License-Identifier: MIT
package tailscope;

import java.nio.charset.StandardCharsets;

/**
 * A number of this program that {@code tailscope observe} reads while it runs, at cycles apart:
 *
 * <pre>{@code
 * private static final Channel SERVED = Channel.counter("served");
 * private static final Channel PHASE = Channel.tag("phase");
 *
 * PHASE.set(2);
 * answer(request);
 * SERVED.add(1);
 * }</pre>
 *
 * <pre>tailscope observe --signal channel:PID:served --tag channel:PID:phase</pre>
 *
 * A write is a branch, a load and a store to memory of this process, whether somebody observes or
 * not. A channel belongs to one thread at a time: no write is an atomic operation, and of two
 * threads that add to one some is lost. Where there is no room (255 channels), and where spans
 * don't work ({@link Tailscope#problem}), writes do nothing.
 */
public final class Channel {
    static final Channel NOWHERE = new Channel(0);

    /** Where its value is; 0: nowhere. */
    private final long at;

    private Channel(long at) {
        this.at = at;
    }

    /** A number that only grows: an observer tells its rate. Those of one name are one channel. */
    public static Channel counter(String name) {
        return open(name, Abi.COUNTER);
    }

    /** A number that says what is being done: an observer tells rates by it. */
    public static Channel tag(String name) {
        return open(name, Abi.TAG);
    }

    static Channel open(String name, int kind) {
        try {
            long slot = Page.find(cut(name), kind);
            return slot == 0 ? NOWHERE : new Channel(slot + Abi.CHANNEL_VALUE);
        } catch (Throwable e) {
            // An older JDK, native access denied, another system: no reason not to run.
            return NOWHERE;
        }
    }

    /** Within the room for a name, and of whole characters. */
    private static byte[] cut(String name) {
        String kept = name.replace('\0', '?');
        while (kept.getBytes(StandardCharsets.UTF_8).length > Abi.CHANNEL_NAME_LONGEST) {
            kept = kept.substring(0, kept.offsetByCodePoints(kept.length(), -1));
        }
        return kept.getBytes(StandardCharsets.UTF_8);
    }

    /** Grows by so much. */
    public void add(long much) {
        if (at != 0) {
            Memory.setLongOpaque(at, Memory.getLongOpaque(at) + much);
        }
    }

    /** From now on it is this. */
    public void set(long value) {
        if (at != 0) {
            Memory.setLongOpaque(at, value);
        }
    }

    /** The process's channels, in a file in memory that is made when the first one is opened. */
    private static final class Page {
        private static final long AT = make();

        private static long make() {
            try {
                long at = Libc.sealedFile(Abi.CHANNEL_FILE, Abi.CHANNELS_BYTES);
                Memory.setLongRelease(at + Abi.CHANNELS_MAGIC, Abi.CHANNEL_MAGIC);
                return at;
            } catch (Libc.Failure e) {
                return 0;
            }
        }

        /** The slot of that name, taken if there is none; 0: there is no room. */
        static synchronized long find(byte[] name, int kind) {
            for (int i = 0; AT != 0 && i < Abi.CHANNEL_SLOTS; i++) {
                long slot = AT + Abi.CHANNELS_SLOT + (long) i * Abi.CHANNEL_BYTES;
                if (Memory.getInt(slot + Abi.CHANNEL_KIND) == 0) {
                    Memory.copyIn(name, name.length, slot + Abi.CHANNEL_NAME);
                    Memory.setInt(AT + Abi.CHANNELS_TAKEN, i + 1);
                    Memory.setIntRelease(slot + Abi.CHANNEL_KIND, kind);
                    return slot;
                }
                if (isCalled(slot + Abi.CHANNEL_NAME, name)) {
                    return slot;
                }
            }
            return 0;
        }

        private static boolean isCalled(long at, byte[] name) {
            for (int i = 0; i < name.length; i++) {
                if (Memory.getByte(at + i) != name[i]) {
                    return false;
                }
            }
            return Memory.getByte(at + name.length) == 0;
        }
    }
}
