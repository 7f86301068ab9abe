// SPDX-License-Identifier: Apache-2.0

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.Locale;
import java.util.Map;
import java.util.Scanner;
import java.util.function.Supplier;
import tailscope.Channel;

/**
 * The small programs of bench/c/methods.c in Java, to be run with and without the agent: {@code
 * Methods sort|hash|tree|matrix|text}. Goes on for as many seconds as each line of its input says,
 * and answers with how many rounds, of some microseconds, it made a second.
 */
public final class Methods {
    private static final Channel ROUNDS = Channel.counter("rounds");
    private static final Map<String, Supplier<Runnable>> PROGRAMS = Map.of(
        "sort", () -> new Sort()::round,
        "hash", () -> new Hash()::round,
        "tree", () -> new Tree()::round,
        "matrix", () -> new Matrix()::round,
        "text", () -> new Text()::round);

    private static long state = 88172645463325252L;

    /** Written each time, as C's volatile: Java's would wait for all stores before it. */
    @SuppressWarnings("unused")
    private static long result;

    private static final VarHandle RESULT = handle();

    private static VarHandle handle() {
        try {
            return MethodHandles.lookup().findStaticVarHandle(Methods.class, "result", long.class);
        } catch (ReflectiveOperationException e) {
            throw new ExceptionInInitializerError(e);
        }
    }

    private static long draw() {
        state ^= state << 13;
        state ^= state >>> 7;
        state ^= state << 17;
        return state;
    }

    /** Quicksort of 256 numbers, insertion sort below 12. */
    private static final class Sort {
        private final int[] numbers = new int[256];

        private static void insertion(int[] a, int from, int to) {
            for (int i = from + 1; i < to; i++) {
                int v = a[i];
                int j = i;
                for (; j > from && a[j - 1] > v; j--) {
                    a[j] = a[j - 1];
                }
                a[j] = v;
            }
        }

        private static void quicksort(int[] a, int from, int to) {
            if (to - from < 12) {
                insertion(a, from, to);
                return;
            }
            int i = from;
            int j = to - 1;
            int pivot = a[(from + to) / 2];
            while (i <= j) {
                while (a[i] < pivot) {
                    i++;
                }
                while (a[j] > pivot) {
                    j--;
                }
                if (i <= j) {
                    int t = a[i];
                    a[i++] = a[j];
                    a[j--] = t;
                }
            }
            quicksort(a, from, j + 1);
            quicksort(a, i, to);
        }

        void round() {
            for (int i = 0; i < numbers.length; i++) {
                numbers[i] = (int) draw();
            }
            quicksort(numbers, 0, numbers.length);
            RESULT.setOpaque((long) RESULT.getOpaque() + numbers[7]);
        }
    }

    /** 32 keys in a table of 4,096 places. */
    private static final class Hash {
        private final String[] keys = new String[4096];
        private final long[] values = new long[4096];

        private static int hashOf(String key) {
            int hash = 0x811c9dc5;
            for (int i = 0; i < key.length(); i++) {
                hash = (hash ^ key.charAt(i)) * 16777619;
            }
            return hash;
        }

        private int find(String key) {
            int at = hashOf(key) & 4095;
            while (keys[at] != null && !keys[at].equals(key)) {
                at = at + 1 & 4095;
            }
            keys[at] = key;
            return at;
        }

        void round() {
            for (int i = 0; i < 32; i++) {
                values[find("k" + (draw() & 2047))]++;
            }
        }
    }

    /** 16 look-ups among 20,000 nodes. */
    private static final class Tree {
        private static final class Node {
            final long key = draw() >>> 32;
            Node left;
            Node right;
        }

        private final Node root = new Node();

        Tree() {
            for (int i = 1; i < 20_000; i++) {
                Node node = new Node();
                Node last = look(node.key);
                if (node.key > last.key) {
                    last.right = node;
                } else {
                    last.left = node;
                }
            }
        }

        private Node look(long key) {
            Node at = root;
            Node last = at;
            while (at != null && at.key != key) {
                last = at;
                at = key > at.key ? at.right : at.left;
            }
            return at != null ? at : last;
        }

        void round() {
            for (int i = 0; i < 16; i++) {
                RESULT.setOpaque((long) RESULT.getOpaque() + look(draw() >>> 32).key);
            }
        }
    }

    /** A product of 16 by 16. */
    private static final class Matrix {
        private final double[] a = new double[256];
        private final double[] b = new double[256];
        private final double[] c = new double[256];

        private double dot(int row, int column) {
            double sum = 0;
            for (int i = 0; i < 16; i++) {
                sum += a[row + i] * b[column + 16 * i];
            }
            return sum;
        }

        void round() {
            a[(int) draw() & 255] = 1.0;
            b[(int) draw() & 255] = 2.0;
            for (int i = 0; i < 16; i++) {
                for (int j = 0; j < 16; j++) {
                    c[16 * i + j] = dot(16 * i, j);
                }
            }
            RESULT.setOpaque((long) RESULT.getOpaque() + (long) c[17]);
        }
    }

    /** Words of 1,000 letters. */
    private static final class Text {
        private final byte[] letters = new byte[1001];
        private int at;

        Text() {
            for (int i = 0; i < 1000; i++) {
                letters[i] = (byte) (draw() % 6 != 0 ? 'a' + (draw() >>> 1) % 26 : ' ');
            }
        }

        private static boolean isLetter(byte c) {
            return c >= 'a' && c <= 'z';
        }

        private long word() {
            long sum = 0;
            for (; isLetter(letters[at]); at++) {
                sum = sum * 31 + letters[at] - 'a';
            }
            return sum;
        }

        void round() {
            at = 0;
            while (letters[at] != 0) {
                RESULT.setOpaque((long) RESULT.getOpaque() + word());
                while (letters[at] == ' ') {
                    at++;
                }
            }
        }
    }

    public static void main(String[] arguments) {
        Runnable round = PROGRAMS.get(arguments[0]).get();
        Scanner orders = new Scanner(System.in).useLocale(Locale.ROOT);
        System.out.println("ready");
        while (orders.hasNextDouble()) {
            long begin = System.nanoTime();
            long length = (long) (orders.nextDouble() * 1e9);
            long rounds = 0;
            long now = begin;
            for (; now - begin < length; now = System.nanoTime()) {
                for (int i = 0; i < 100; i++) {
                    round.run();
                    ROUNDS.add(1);
                }
                rounds += 100;
            }
            System.out.println(rounds * 1e9 / (now - begin));
        }
    }

    private Methods() {}
}
