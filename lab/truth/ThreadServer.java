// SPDX-License-Identifier: Apache-2.0
import java.io.IOException;
import java.io.InputStream;
import java.io.RandomAccessFile;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.regex.MatchResult;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;

/**
 * An HTTP server with a thread for each connection, which asks a backend for some requests: {@code
 * ThreadServer.java PORT BACKEND_PORT [WORKERS]}. With WORKERS, one thread receives, and a pool of
 * that size answers.
 *
 * <p>At its end (SIGTERM) it prints the truth of each request as a line of JSON: how long threads
 * worked for it, when another server had it, and when its answer was sent. What it takes a thread to
 * come back from a wait is work; the way to sleep, which is no longer, is a doubt. The virtual machine
 * may hold a thread up at work: how long that was is a doubt, too.
 */
public final class ThreadServer {
    private static final Pattern NUMBER = Pattern.compile("(\\w+)=(\\d+)");

    private static final byte[] ANSWER = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone".getBytes();

    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();
    /** Requests that have been answered. */
    private static final Queue<Job> ANSWERED = new ConcurrentLinkedQueue<>();

    /** What this thread has waited for a CPU, by the second number of its schedstat. */
    private static final class Clock {
        private final RandomAccessFile schedstat;

        /** When the work after the last wait for data began. */
        private long began;

        /** CPU time of both ways, to sleep and back. */
        private long inWaits;

        /** The CPU time that the thread had had before it waited for what it works on. */
        private long hadBefore;

        /** When the latest reading was. */
        private long at;

        /** What the thread had waited for a CPU by then. */
        private long lost = -1;

        private final byte[] text = new byte[96];

        Clock() throws IOException {
            schedstat = new RandomAccessFile("/proc/thread-self/schedstat", "r");
        }

        private long waited() throws IOException {
            schedstat.seek(0);
            int length = schedstat.read(text);
            long number = 0;
            boolean second = false;
            for (int i = 0; i < length; i++) {
                if (text[i] == ' ' && second) {
                    return number;
                }
                second |= text[i] == ' ';
                if (second && text[i] != ' ') {
                    number = 10 * number + text[i] - '0';
                }
            }
            throw new IOException("no schedstat");
        }

        /** The time, less what this thread has waited for a CPU: none between the readings of that. */
        long working() throws IOException {
            while (true) {
                at = System.nanoTime();
                long before = lost;
                lost = waited();
                if (lost == before) {
                    return at - lost;
                }
            }
        }
    }

    /** What is received up to an empty line, and what came with it; empty at the end. */
    private static String head(InputStream in, Clock clock) throws IOException {
        byte[] text = new byte[1024];
        int length = 0;
        while (true) {
            long cpu = THREADS.getCurrentThreadCpuTime();
            int got = in.read(text, length, text.length - length);
            cpu = THREADS.getCurrentThreadCpuTime() - cpu;
            clock.inWaits += cpu;
            clock.began = clock.working() - cpu;
            if (got < 0) {
                return "";
            }
            length += got;
            String so = new String(text, 0, length, StandardCharsets.ISO_8859_1);
            if (so.contains("\r\n\r\n")) {
                return so;
            }
        }
    }

    private static void spin(long micros) {
        long until = System.nanoTime() + 1000 * micros;
        while (System.nanoTime() < until) {
            Thread.onSpinWait();
        }
    }

    /** A request, and what has happened to it so far. */
    private static final class Job {
        final String id;
        final Map<String, Long> wanted;

        /** In ns without waits for a CPU: until it was handed over, after that, and of the worker. */
        long receiving;

        long handingOver;
        long working;

        /** CPU time of both ways, to sleep and back. */
        long inWaits;

        /** CPU time of the worker, with those, up to its send; and of the send. */
        long used;

        long usedBySend;

        /** When it could be taken, when handing it over was over, and when its worker began. */
        long pushed;

        long handedOver;
        long begun;
        String downstream = "";
        long sending;
        long sent;

        Job(String head) {
            id = head.substring(head.indexOf("/w/") + 3, head.indexOf('?'));
            wanted = numbers(head);
        }

        /** Does what is wanted, and answers. */
        void finish(Clock clock, Socket behind, Sending answer) throws IOException {
            spin(wanted.get("work"));
            if (wanted.get("ask") > 0) {
                String question = "GET /ask?ask=" + wanted.get("ask") + " HTTP/1.1\r\n\r\n";
                behind.getOutputStream().write(question.getBytes());
                long asked = System.nanoTime();
                working += clock.working() - clock.began;
                String said = head(behind.getInputStream(), clock);
                String at = said.substring(said.indexOf("\r\n\r\n") + 4);
                downstream = "[" + asked + ", " + at.strip() + "]";
            }
            spin(wanted.get("after"));
            working += clock.working() - clock.began;
            long cpu = THREADS.getCurrentThreadCpuTime();
            used = cpu - clock.hadBefore;
            sending = System.nanoTime();
            working += sending - clock.at;
            answer.send();
            sent = System.nanoTime();
            usedBySend = THREADS.getCurrentThreadCpuTime() - cpu;
            inWaits += clock.inWaits;
            ANSWERED.add(this);
        }

        String truth() {
            return String.format(
                    "{\"id\": \"%s\", \"sending\": %d, \"sent\": %d, \"working\": %d,"
                            + " \"doubt\": %d, \"send\": %d, \"downstream\": [%s]}",
                    id, sending, sent, worked(), doubt(), usedBySend, downstream);
        }

        private long doubt() {
            return inWaits / 2 + Math.max(0, working - used);
        }

        /** Time in which both threads worked counts once. */
        private long worked() {
            long until = Math.min(handedOver, sent);
            long from = Math.max(begun, pushed) + handedOver - pushed - handingOver;
            long both = Math.max(0, until - from);
            return receiving + working + Math.max(0, handingOver - both);
        }
    }

    /** Sends an answer. */
    private interface Sending {
        void send() throws IOException;
    }

    private static Socket connect(int backend) throws IOException {
        Socket behind = new Socket(InetAddress.getLoopbackAddress(), backend);
        behind.setTcpNoDelay(true);
        return behind;
    }

    private static void serve(Socket client, int backend) {
        try (client;
                Socket behind = connect(backend)) {
            client.setTcpNoDelay(true);
            Clock clock = new Clock();
            while (true) {
                clock.inWaits = 0;
                clock.hadBefore = THREADS.getCurrentThreadCpuTime();
                String head = head(client.getInputStream(), clock);
                if (head.isEmpty()) {
                    return;
                }
                Sending answer = () -> client.getOutputStream().write(ANSWER);
                new Job(head).finish(clock, behind, answer);
            }
        } catch (IOException gone) {
            System.err.println(gone);
        }
    }

    /** A worker of the pool, which takes requests from a queue. */
    private static void work(BlockingQueue<Map.Entry<Job, SocketChannel>> queue, int backend) {
        try (Socket behind = connect(backend)) {
            Clock clock = new Clock();
            while (true) {
                long cpu = THREADS.getCurrentThreadCpuTime();
                Map.Entry<Job, SocketChannel> taken = queue.take();
                cpu = THREADS.getCurrentThreadCpuTime() - cpu;
                Job job = taken.getKey();
                clock.inWaits = cpu;
                clock.hadBefore = THREADS.getCurrentThreadCpuTime() - cpu;
                job.begun = System.nanoTime() - cpu;
                clock.began = clock.working() - cpu;
                Sending answer = () -> taken.getValue().write(ByteBuffer.wrap(ANSWER));
                job.finish(clock, behind, answer);
            }
        } catch (IOException | InterruptedException gone) {
            System.err.println(gone);
        }
    }

    /** One thread receives what {@code workers} threads answer. */
    private static void pool(int port, int backend, int workers) throws IOException {
        BlockingQueue<Map.Entry<Job, SocketChannel>> queue = new LinkedBlockingQueue<>();
        for (int i = 0; i < workers; i++) {
            start(() -> work(queue, backend));
        }
        Clock clock = new Clock();
        ByteBuffer text = ByteBuffer.allocate(1024);
        try (Selector selector = Selector.open();
                ServerSocketChannel listening = ServerSocketChannel.open()) {
            listening.bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), port), 512);
            listening.configureBlocking(false).register(selector, SelectionKey.OP_ACCEPT);
            while (true) {
                long cpu = THREADS.getCurrentThreadCpuTime();
                selector.select();
                cpu = THREADS.getCurrentThreadCpuTime() - cpu;
                clock.began = clock.working() - cpu;
                for (SelectionKey key : selector.selectedKeys()) {
                    if (key.isAcceptable()) {
                        SocketChannel client = listening.accept();
                        client.setOption(StandardSocketOptions.TCP_NODELAY, true);
                        client.configureBlocking(false).register(selector, SelectionKey.OP_READ);
                        continue;
                    }
                    SocketChannel client = (SocketChannel) key.channel();
                    text.clear();
                    if (client.read(text) < 0) {
                        client.close();
                        continue;
                    }
                    Job job = new Job(new String(text.array(), 0, text.position()));
                    job.inWaits = cpu;
                    cpu = 0;
                    handOver(job, client, queue, clock);
                }
                selector.selectedKeys().clear();
            }
        }
    }

    private static void handOver(
            Job job,
            SocketChannel client,
            BlockingQueue<Map.Entry<Job, SocketChannel>> queue,
            Clock clock)
            throws IOException {
        job.receiving = clock.working() - clock.began;
        long cpu = THREADS.getCurrentThreadCpuTime();
        job.pushed = System.nanoTime();
        queue.add(Map.entry(job, client));
        job.handingOver = THREADS.getCurrentThreadCpuTime() - cpu;
        job.handedOver = System.nanoTime();
        clock.began = clock.working();
    }

    private static void start(Runnable body) {
        Thread thread = new Thread(body);
        thread.setDaemon(true);
        thread.start();
    }

    private static Map<String, Long> numbers(String head) {
        Matcher matcher = NUMBER.matcher(head.substring(0, head.indexOf(" HTTP")));
        return matcher.results()
                .collect(Collectors.toMap((MatchResult m) -> m.group(1), m -> Long.valueOf(m.group(2))));
    }

    private static void end() {
        ANSWERED.forEach(job -> System.out.println(job.truth()));
        System.out.flush();
        Runtime.getRuntime().halt(0); // not with the signal's exit code
    }

    public static void main(String[] arguments) throws IOException {
        int port = Integer.parseInt(arguments[0]);
        int backend = Integer.parseInt(arguments[1]);
        Runtime.getRuntime().addShutdownHook(new Thread(ThreadServer::end));
        if (arguments.length > 2) {
            pool(port, backend, Integer.parseInt(arguments[2]));
        }
        try (ServerSocket listening =
                new ServerSocket(port, 512, InetAddress.getLoopbackAddress())) {
            while (true) {
                Socket client = listening.accept();
                start(() -> serve(client, backend));
            }
        }
    }
}
