// SPDX-License-Identifier: Apache-2.0

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;

/**
 * A server of one HTTP page, one client at a time, of whose requests every twentieth finds classes
 * that no loader has loaded yet, as after a restart: {@code java Loading PORT}.
 */
final class Loading {
    private static final byte[] PAGE =
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n".getBytes();
    private static final int CLASSES = 400;

    private Loading() {}

    /** What is loaded again and again, each time by a loader that does not know it. */
    static final class Small {
        private Small() {}
    }

    /** A loader of one class. */
    private static final class Fresh extends ClassLoader {
        Fresh() {
            super(null);
        }

        Class<?> define(byte[] bytes) {
            return defineClass("Loading$Small", bytes, 0, bytes.length);
        }
    }

    private static byte[] bytes() throws IOException {
        try (InputStream in = Loading.class.getResourceAsStream("Loading$Small.class")) {
            return in.readAllBytes();
        }
    }

    private static boolean receive(InputStream in) throws IOException {
        for (int matched = 0; matched < 4; ) {
            int next = in.read();
            if (next < 0) {
                return false;
            }
            matched = next == "\r\n\r\n".charAt(matched) ? matched + 1 : next == '\r' ? 1 : 0;
        }
        return true;
    }

    private static void serve(Socket client, byte[] small) throws IOException {
        client.setTcpNoDelay(true);
        InputStream in = new java.io.BufferedInputStream(client.getInputStream());
        OutputStream out = client.getOutputStream();
        for (int served = 1; receive(in); served++) {
            for (int i = 0; served % 20 == 0 && i < CLASSES; i++) {
                new Fresh().define(small);
            }
            out.write(PAGE);
        }
    }

    public static void main(String[] arguments) throws IOException {
        int port = Integer.parseInt(arguments[0]);
        byte[] small = bytes();
        try (ServerSocket server = new ServerSocket(port, 64, InetAddress.getLoopbackAddress())) {
            for (;;) {
                try (Socket client = server.accept()) {
                    serve(client, small);
                } catch (IOException e) {
                    // The client has gone: the next one.
                }
            }
        }
    }
}
