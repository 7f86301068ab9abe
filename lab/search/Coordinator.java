// SPDX-License-Identifier: Apache-2.0

import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.Random;

/**
 * Asks all workers and puts together the best of what they found: HTTP/1.1 to its clients, who need not
 * say what they look for: it draws the words. A thread for each client, with connections of its own to
 * the workers. A worker that is away is left out.
 */
final class Coordinator {
    private final Part[] parts;
    private final Random random;

    private Coordinator(int[] ports, int seed) {
        parts = new Part[ports.length];
        for (int i = 0; i < ports.length; i++) {
            parts[i] = new Part(ports[i]);
        }
        random = new Random(seed);
    }

    static void serve(int port, int[] workers) throws IOException {
        try (ServerSocket server = new ServerSocket(port, 64, InetAddress.getLoopbackAddress())) {
            for (int seed = 0; ; seed++) {
                Socket client = server.accept();
                Coordinator coordinator = new Coordinator(workers, seed);
                Thread thread = new Thread(() -> coordinator.serve(client), "coordinator");
                thread.setDaemon(true);
                thread.start();
            }
        }
    }

    private void serve(Socket client) {
        try (client) {
            client.setTcpNoDelay(true);
            InputStream in = new BufferedInputStream(client.getInputStream());
            OutputStream out = client.getOutputStream();
            while (request(in)) {
                out.write(page(Corpus.query(random)));
            }
        } catch (IOException gone) {
            // The client is no longer there: its thread ends.
        }
        for (Part part : parts) {
            part.close();
        }
    }

    /** Whether a request came, to its empty line; false: the client is done. */
    private static boolean request(InputStream in) throws IOException {
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

    private byte[] page(String query) {
        for (Part part : parts) {
            part.ask(query);
        }
        int best = -1;
        float score = 0;
        int answered = 0;
        int hits = 0;
        for (Part part : parts) {
            if (part.answer()) {
                answered++;
                hits += part.hits;
                if (part.hits > 0 && part.score > score) {
                    best = part.best;
                    score = part.score;
                }
            }
        }
        String text = query + ": " + hits + " hits of " + answered + " workers, best " + best + "\n";
        String head = "HTTP/1.1 200 OK\r\nContent-Length: " + text.length() + "\r\n\r\n";
        return (head + text).getBytes(StandardCharsets.US_ASCII);
    }

    /** A worker, as one client's thread knows it. */
    private static final class Part {
        private final int port;
        private Socket socket;
        private DataInputStream in;
        private DataOutputStream out;
        int hits;
        int best;
        float score;

        Part(int port) {
            this.port = port;
        }

        void ask(String query) {
            try {
                if (socket == null) {
                    socket = new Socket(InetAddress.getLoopbackAddress(), port);
                    socket.setTcpNoDelay(true);
                    in = new DataInputStream(new BufferedInputStream(socket.getInputStream()));
                    out = new DataOutputStream(socket.getOutputStream());
                }
                out.writeUTF(query);
            } catch (IOException away) {
                close();
            }
        }

        /** Whether it answered. */
        boolean answer() {
            if (socket == null) {
                return false;
            }
            try {
                hits = in.readInt();
                for (int i = 0; i < hits; i++) {
                    int number = in.readInt();
                    float next = in.readFloat();
                    if (i == 0) {
                        best = number;
                        score = next;
                    }
                }
                return true;
            } catch (IOException away) {
                close();
                return false;
            }
        }

        void close() {
            try (Socket old = socket) {
                socket = null;
            } catch (IOException gone) {
                // It is closed all the same.
            }
        }
    }
}
