// SPDX-License-Identifier: Apache-2.0
package tailscope;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.locks.LockSupport;

/**
 * An HTTP/1.1 server with a thread for each connection, and with so many small objects that live
 * that a full collection takes a while: {@code Answering PORT NAME THINK_US [HOST]}. It answers with its
 * name, after it has slept for so long. GET /collect collects all garbage before it answers, and GET
 * /garbage makes 64 KiB of it.
 */
public final class Answering {
    private static final int OBJECTS = 1_000_000;

    private static volatile byte[] garbage = {};

    /** A list, which a collector follows from its first element to its last. */
    private static Object[] living = new Object[0];

    private static void serve(Socket client, byte[] answer, long thinkNanos) {
        try (client) {
            client.setTcpNoDelay(true);
            BufferedReader in =
                    new BufferedReader(
                            new InputStreamReader(
                                    client.getInputStream(), StandardCharsets.ISO_8859_1));
            OutputStream out = client.getOutputStream();
            boolean collects = false;
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                collects |= line.startsWith("GET /collect ");
                if (line.startsWith("GET /garbage ")) {
                    garbage = new byte[1 << 16];
                    collects |= garbage.length == 0; // it has to be made
                }
                if (line.isEmpty()) {
                    if (collects) {
                        System.gc();
                    }
                    LockSupport.parkNanos(thinkNanos);
                    out.write(answer);
                    collects = false;
                }
            }
        } catch (IOException gone) {
            // The client is gone.
        }
    }

    public static void main(String[] arguments) throws IOException {
        for (int i = 0; i < OBJECTS; i++) {
            living = new Object[] {living, null};
        }
        String name = arguments[1];
        byte[] answer =
                ("HTTP/1.1 200 OK\r\nContent-Length: " + name.length() + "\r\n\r\n" + name)
                        .getBytes(StandardCharsets.ISO_8859_1);
        long thinkNanos = 1000 * Long.parseLong(arguments[2]);
        int port = Integer.parseInt(arguments[0]);
        InetAddress host =
                arguments.length > 3
                        ? InetAddress.getByName(arguments[3])
                        : InetAddress.getLoopbackAddress();
        try (ServerSocket server = new ServerSocket(port, 1024, host)) {
            while (true) {
                Socket client = server.accept();
                Thread thread = new Thread(() -> serve(client, answer, thinkNanos));
                thread.setDaemon(true);
                thread.start();
            }
        }
    }
}
