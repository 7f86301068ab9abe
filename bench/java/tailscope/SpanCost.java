// SPDX-License-Identifier: Apache-2.0
package tailscope;

import java.util.Locale;
import java.util.Scanner;

/**
 * What one begin+end costs in Java, as bench/c/sdk_cost.c asks it of C: reads a number of rounds
 * and a pause in microseconds from each line, and prints for each round the ns of a span in a
 * batch, less those of an empty batch. In the SDK's package, to see which state the recorder is in.
 * SpanCost BATCH.
 */
public final class SpanCost {
    private static final int WARM_BURSTS = 200;
    private static final int WARM_SPANS = 1000;

    @SuppressWarnings("unused")
    private static int sink;

    private static String state() {
        if (!Probe.isHeard(0)) {
            return "none";
        }
        if (Recorder.FIRST.epoch() == 0 || !isMetered()) {
            return "not attached";
        }
        long others = Recorder.FIRST.region() + Abi.REGION_RETENTION + Abi.RETENTION_OTHERS;
        return Memory.getLongOpaque(others) == 0 ? "kept" : "not kept";
    }

    private static boolean isMetered() {
        try (Span span = Tailscope.begin("bench")) {
            return span.isMetered();
        }
    }

    private static void spans(int n) {
        for (int i = 0; i < n; i++) {
            try (Span span = Tailscope.begin("bench")) {
                sink = i;
            }
        }
    }

    private static void nothing(int n) {
        for (int i = 0; i < n; i++) {
            sink = i;
        }
    }

    private static double timeOf(boolean isSpans, int n) {
        long begin = System.nanoTime();
        if (isSpans) {
            spans(n);
        } else {
            nothing(n);
        }
        return (double) (System.nanoTime() - begin) / n;
    }

    /** Until C2 has compiled what this state takes, in bursts that a recorder keeps up with. */
    private static void warmUp(int batch) throws InterruptedException {
        for (int i = 0; i < WARM_BURSTS; i++) {
            Thread.sleep(2);
            for (int left = WARM_SPANS; left > 0; left -= batch) {
                timeOf(true, batch);
                timeOf(false, batch);
            }
        }
    }

    public static void main(String[] arguments) throws InterruptedException {
        int batch = Integer.parseInt(arguments[0]);
        Scanner orders = new Scanner(System.in);
        String warm = "";
        while (orders.hasNextInt()) {
            int rounds = orders.nextInt();
            int pauseUs = orders.nextInt();
            String state = state();
            if (!state.equals(warm)) {
                warmUp(batch);
                warm = state;
            }
            StringBuilder line = new StringBuilder("{\"state\": \"" + state + "\", \"span\": [");
            for (int i = 0; i < rounds; i++) {
                Thread.sleep(pauseUs / 1000, pauseUs % 1000 * 1000);
                spans(16); // what sleeping made cold is not what is asked
                double ns = -timeOf(false, batch);
                ns += timeOf(true, batch);
                line.append(i > 0 ? ", " : "").append(String.format(Locale.ROOT, "%.2f", ns));
            }
            System.out.println(line.append("]}"));
        }
    }
}
