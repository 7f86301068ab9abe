// SPDX-License-Identifier: Apache-2.0

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;

/**
 * An HTTP server of which one request in 50 also calls a planted method, for 10 ms of CPU time.
 *
 * usage: java Planted PORT
 */
public final class Planted {
    private static final byte[] ANSWER =
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n".getBytes(StandardCharsets.US_ASCII);

    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();

    private static volatile long sink;

    private Planted() {}

    static void usualWork() {
        long sum = sink;
        for (int i = 0; i < 60_000; i++) {
            sum = sum * 1103515245L + i;
        }
        sink = sum;
    }

    static void plantedCpu() {
        long until = THREADS.getCurrentThreadCpuTime() + 10_000_000;
        long sum = sink;
        while (THREADS.getCurrentThreadCpuTime() < until) {
            for (int i = 0; i < 30_000; i++) {
                sum = sum * 6364136223846793005L + i;
            }
        }
        sink = sum;
    }

    /** Serves connections one after the other. */
    public static void main(String[] arguments) throws Exception {
        InetAddress here = InetAddress.getLoopbackAddress();
        long requests = 0;
        try (ServerSocket server = new ServerSocket(Integer.parseInt(arguments[0]), 16, here)) {
            while (true) {
                try (Socket socket = server.accept()) {
                    socket.setTcpNoDelay(true);
                    BufferedReader lines =
                            new BufferedReader(
                                    new InputStreamReader(
                                            socket.getInputStream(), StandardCharsets.US_ASCII));
                    OutputStream output = socket.getOutputStream();
                    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                        if (!line.isEmpty()) {
                            continue;
                        }
                        usualWork();
                        if (++requests % 50 == 0) {
                            plantedCpu();
                        }
                        output.write(ANSWER);
                    }
                }
            }
        }
    }
}
