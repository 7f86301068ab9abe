// SPDX-License-Identifier: Apache-2.0

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;

/**
 * A server of one HTTP page, a thread for each client, whose requests leave so much garbage among so
 * much that lives that the collector often stops them for milliseconds: {@code java Collecting PORT}.
 */
final class Collecting {
    private static final byte[] PAGE =
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n".getBytes();
    /** Lists of small objects: what lives costs a young collection its copying. */
    private static final Object[][] LIVING = new Object[64][];
    private static int turn;
    /** What nobody needs a moment later; read, so that it is not optimised away. */
    private static volatile byte[] garbage = new byte[0];

    private Collecting() {}

    private static synchronized void work() {
        Object[] list = new Object[4000];
        for (int i = 0; i < list.length; i++) {
            list[i] = new int[6];
        }
        LIVING[turn++ % LIVING.length] = list;
        for (int i = 0; i < 4; i++) {
            garbage = new byte[garbage.length % 2 + (256 << 10)];
        }
    }

    /** Whether a request came; false: the client is gone. */
    private static boolean receive(InputStream in) throws IOException {
        int matched = 0;
        while (matched < 4) {
            int next = in.read();
            if (next < 0) {
                return false;
            }
            matched = next == "\r\n\r\n".charAt(matched) ? matched + 1 : next == '\r' ? 1 : 0;
        }
        return true;
    }

    private static void serve(Socket client) {
        try (client) {
            client.setTcpNoDelay(true);
            InputStream in = new java.io.BufferedInputStream(client.getInputStream());
            OutputStream out = client.getOutputStream();
            while (receive(in)) {
                work();
                out.write(PAGE);
            }
        } catch (IOException e) {
            // The client has gone: nobody to tell.
        }
    }

    public static void main(String[] arguments) throws IOException {
        int port = Integer.parseInt(arguments[0]);
        try (ServerSocket server = new ServerSocket(port, 64, InetAddress.getLoopbackAddress())) {
            for (;;) {
                Socket client = server.accept();
                new Thread(() -> serve(client), "client").start();
            }
        }
    }
}
