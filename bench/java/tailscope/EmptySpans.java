// SPDX-License-Identifier: Apache-2.0
package tailscope;

/**
 * Spans named {@code outer} of a hundred empty spans each, as lab/c/countbench.c makes them in C: what
 * those cost. EmptySpans SPANS NAP_US: so many, and for how long to sleep after each, for the recorder
 * and HotSpot's compilers to keep up.
 */
public final class EmptySpans {
    private static final int EMPTY = 100;

    private static void outer() {
        Span outer = Tailscope.begin("outer");
        for (int i = 0; i < EMPTY; i++) {
            Tailscope.begin("empty").end();
        }
        outer.end(EMPTY);
    }

    public static void main(String[] arguments) throws InterruptedException {
        int spans = Integer.parseInt(arguments[0]);
        long napUs = Long.parseLong(arguments[1]);
        for (int i = 0; i < spans; i++) {
            outer();
            Thread.sleep(napUs / 1000, (int) (napUs % 1000 * 1000));
        }
    }
}
