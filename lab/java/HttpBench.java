// SPDX-License-Identifier: Apache-2.0

import java.io.BufferedInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.lang.reflect.Field;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Random;
import java.util.concurrent.ThreadLocalRandom;

/**
 * An HTTP/1.1 server, a thread for each connection: the one that receives a request computes for a
 * while and answers. GET /plant/NAME plants a fault, until GET /plant/none:
 *
 * <ul>
 *   <li>gc: every request makes garbage, and some of it, by SIZE, lives for a while; before that,
 *       from /plant/reuse on, it fills as much that is there
 *   <li>lock: a request needs a monitor that another thread now and then keeps in its sleep
 *   <li>pages, thp: one request in EVERY touches fresh memory, by small or by huge pages, and
 *       gives it back after its answer: to unmap it is no page fault
 *   <li>fsync: one request in EVERY forces a write to the disk
 * </ul>
 *
 * SIZE, 1 or a power of two, is how large the faults are that have a size of their own.
 *
 * usage: java HttpBench.java PORT FOLDER SIZE
 */
public final class HttpBench {
    private static final int EVERY = 30;
    private static final int SMALL_PAGE = 4096;
    private static final int HUGE_PAGE = 2 << 20;
    private static final byte[] ANSWER =
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n".getBytes(StandardCharsets.US_ASCII);

    private static final Object MONITOR = new Object();
    private static final byte[] WORK = new byte[150_000];
    /** What lives for a while: about 24 MB in pieces of 1 kB. */
    private static final byte[][] LIVING = new byte[24_000][];
    /** As many pieces as young objects have room for (-Xmn4m). */
    private static final int YOUNG = 4_000;
    private static final byte[] ZEROES = new byte[1000];
    /** Which of them was filled last; there is one connection. */
    private static int refilled;

    /** Where the memory begins that the request of this thread has touched; 0: none. */
    private static final ThreadLocal<Long> TOUCHED = ThreadLocal.withInitial(() -> 0L);

    private static volatile String planted = "none";
    private static volatile int sink;
    private static FileChannel file;
    private static int size;

    public static void main(String[] arguments) throws Exception {
        new Random(1).nextBytes(WORK);
        size = Integer.parseInt(arguments[2]);
        file =
                FileChannel.open(
                        Path.of(arguments[1], "forced"),
                        StandardOpenOption.CREATE,
                        StandardOpenOption.WRITE);
        start("holder", HttpBench::keepMonitor);
        int port = Integer.parseInt(arguments[0]);
        try (ServerSocket server = new ServerSocket(port, 64, InetAddress.getLoopbackAddress())) {
            while (true) {
                Socket client = server.accept();
                start("connection", () -> serve(client));
            }
        }
    }

    private static void start(String name, Runnable work) {
        Thread thread = new Thread(work, name);
        thread.setDaemon(true);
        thread.start();
    }

    private static void serve(Socket client) {
        try (client) {
            client.setTcpNoDelay(true);
            InputStream in = new BufferedInputStream(client.getInputStream());
            OutputStream out = client.getOutputStream();
            for (String path = request(in); path != null; path = request(in)) {
                if (path.startsWith("/plant/")) {
                    planted = path.substring("/plant/".length());
                } else {
                    work();
                }
                out.write(ANSWER);
                giveBack();
            }
        } catch (IOException gone) {
            // The client is no longer there: its thread ends.
        }
    }

    /** The path of the next request, without a body; null when the client is done. */
    private static String request(InputStream in) throws IOException {
        StringBuilder head = new StringBuilder();
        while (head.length() < 4 || !head.substring(head.length() - 4).equals("\r\n\r\n")) {
            int next = in.read();
            if (next < 0) {
                return null;
            }
            head.append((char) next);
        }
        return head.substring(head.indexOf(" ") + 1, head.indexOf(" HTTP/"));
    }

    private static void work() throws IOException {
        sink = sum(0, WORK.length);
        boolean struck = ThreadLocalRandom.current().nextInt(EVERY) == 0;
        switch (planted) {
            case "gc" -> litter();
            case "reuse" -> refill();
            case "lock" -> {
                synchronized (MONITOR) {
                    sink++;
                }
            }
            case "pages" -> touch(struck, 256 * size, SMALL_PAGE);
            case "thp" -> touch(struck, 2 * size, HUGE_PAGE);
            case "fsync" -> force(struck);
            default -> {}
        }
    }

    /** By halves, so that it needs its stack all the time, as most programs do. */
    private static int sum(int from, int to) {
        int sum = 0;
        if (to - from > 64) {
            int middle = (from + to) >>> 1;
            return sum(from, middle) + sum(middle, to);
        }
        for (int place = from; place < to; place++) {
            sum = 31 * sum + WORK[place];
        }
        return sum;
    }

    /** Garbage, of which one piece in eight, or more by the size, replaces one that lived. */
    private static void litter() {
        for (int piece = 0; piece < 100; piece++) {
            byte[] made = new byte[1000];
            if (piece % 8 < size) {
                LIVING[ThreadLocalRandom.current().nextInt(LIVING.length)] = made;
            }
        }
    }

    /** As much work on as much memory as young objects have, in pieces that live already. */
    private static void refill() {
        for (int piece = 0; piece < 100; piece++) {
            refilled = (refilled + 1) % YOUNG;
            if (LIVING[refilled] == null) {
                LIVING[refilled] = new byte[1000];
            }
            System.arraycopy(ZEROES, 0, LIVING[refilled], 0, ZEROES.length);
        }
    }

    /** Memory that the process did not have before. */
    private static void touch(boolean struck, int pages, int pageSize) {
        if (!struck) {
            return;
        }
        long bytes = (long) pages * pageSize;
        long begin = Memory.UNSAFE.allocateMemory(bytes);
        for (long at = begin; at < begin + bytes; at += pageSize) {
            Memory.UNSAFE.putByte(at, (byte) 1);
        }
        TOUCHED.set(begin);
    }

    private static void giveBack() {
        long begin = TOUCHED.get();
        if (begin != 0) {
            Memory.UNSAFE.freeMemory(begin);
            TOUCHED.set(0L);
        }
    }

    private static void force(boolean struck) throws IOException {
        if (struck) {
            file.write(ByteBuffer.wrap(new byte[SMALL_PAGE]), 0);
            file.force(false);
        }
    }

    /** Sleeps with the monitor in hand, so that who wants it waits for it and for nothing else. */
    private static void keepMonitor() {
        try {
            while (true) {
                Thread.sleep(20);
                if (planted.equals("lock")) {
                    synchronized (MONITOR) {
                        Thread.sleep(2L * size);
                    }
                }
            }
        } catch (InterruptedException ended) {
            Thread.currentThread().interrupt();
        }
    }

    /** Plain memory: what the heap gives has been touched before. */
    private static final class Memory {
        static final sun.misc.Unsafe UNSAFE = unsafe();

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
