// SPDX-License-Identifier: MIT
package tailscope;

import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * Where each thread is: the method that it entered last, or the loop that it went round. The agent
 * puts calls of this into methods ({@code place=}); nobody else needs to call it.
 *
 * <p>A thread has a channel of its own: {@code edge} for the one that is called main, {@code
 * edge.TID}, by the kernel's number, for the others. A virtual thread has none: it is carried by one thread after
 * the other.
 */
public final class Place {
    /** Threads numbered below this find their channel by their number; later ones look it up. */
    private static final int NEAR = 1 << 16;

    private static final Channel[] CHANNELS = new Channel[NEAR];
    private static final ThreadLocal<Channel> FAR = ThreadLocal.withInitial(Place::open);
    private static final AtomicBoolean IS_MAIN_FOUND = new AtomicBoolean();

    /** This thread entered a method. What it returns takes the numbers of the method's loops. */
    public static Channel enter(long number) {
        long thread = Thread.currentThread().threadId();
        Channel channel = thread < NEAR ? CHANNELS[(int) thread] : null;
        if (channel == null) {
            channel = look(thread);
        }
        channel.set(number);
        return channel;
    }

    private static Channel look(long thread) {
        if (Thread.currentThread().isVirtual()) {
            return Channel.NOWHERE;
        }
        if (thread >= NEAR) {
            return FAR.get();
        }
        // Opening may come here again, if what it calls is marked.
        CHANNELS[(int) thread] = Channel.NOWHERE;
        CHANNELS[(int) thread] = open();
        return CHANNELS[(int) thread];
    }

    private static Channel open() {
        try {
            // Its number differs between versions of Java.
            boolean isMain = Thread.currentThread().getName().equals("main")
                && IS_MAIN_FOUND.compareAndSet(false, true);
            return Channel.open(isMain ? "edge" : "edge." + Libc.threadId(), Abi.PLACE);
        } catch (Libc.Failure e) {
            return Channel.NOWHERE;
        }
    }

    /** The number of a place by its name, which is the same for the same name; 0: no room. */
    public static long number(String name) {
        return Table.number(name);
    }

    /** The names, in a file in memory that an observer reads. */
    private static final class Table {
        private static final long AT = make();
        private static final Map<String, Long> KNOWN = new HashMap<>();
        private static int used = 1;

        private static long make() {
            try {
                long at = Libc.sealedFile(Abi.PLACES_FILE, Abi.PLACES_BYTES);
                Memory.setByte(at + Abi.PLACES_TEXT, '\n');
                Memory.setLong(at + Abi.PLACES_USED, 1);
                Memory.setLongRelease(at + Abi.PLACES_AT, Abi.PLACES_MAGIC);
                return at;
            } catch (Libc.Failure e) {
                return 0;
            }
        }

        static synchronized long number(String name) {
            return KNOWN.computeIfAbsent(name, Table::write);
        }

        private static long write(String name) {
            byte[] text = name.replace('\n', '?').getBytes(StandardCharsets.UTF_8);
            int length = Math.min(text.length, Abi.PLACE_LONGEST);
            int number = used;
            if (AT == 0 || Abi.PLACES_TEXT + number + length + 1 > Abi.PLACES_BYTES) {
                return 0;
            }
            long at = AT + Abi.PLACES_TEXT + number;
            Memory.copyIn(text, length, at);
            Memory.setByte(at + length, '\n');
            used += length + 1;
            Memory.setLongRelease(AT + Abi.PLACES_USED, used);
            return number;
        }
    }

    private Place() {}
}
