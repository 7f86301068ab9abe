import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import tailscope.Span;
import tailscope.Tailscope;

/**
 * Spans in spans, on some threads, each pair with an id of its own: Nesting [PAIRS [SECONDS]]. With
 * SECONDS it says after each 1,000 pairs that were metered.
 */
public final class Nesting {
    private static final int THREADS = 3;
    @SuppressWarnings("unused")
    private static volatile int sink;
    private static final int TELL_AFTER = 1000;
    private static final AtomicInteger METERED = new AtomicInteger();

    private static void work() {
        for (int i = 0; i < 2000; i++) {
            sink = i;
        }
    }

    private static void count(boolean isMetered) {
        if (isMetered && METERED.incrementAndGet() % TELL_AFTER == 0) {
            System.out.println("metered " + METERED.get());
        }
    }

    private static void pairs(int thread, int pairs, boolean tells) {
        for (int pair = 0; pair < pairs; pair++) {
            long id = (long) thread * pairs + pair;
            Span outer = Tailscope.begin("outer");
            work();
            try (Span scoped = Tailscope.begin("scoped"); Span inner = Tailscope.begin("inner")) {
                work();
                inner.end(id);
                if (tells) {
                    count(inner.isMetered());
                }
            }
            outer.end(id);
            outer.end(-1); // it has ended
        }
    }

    public static void main(String[] arguments) throws InterruptedException {
        int pairs = arguments.length > 0 ? Integer.parseInt(arguments[0]) : 500;
        double seconds = arguments.length > 1 ? Double.parseDouble(arguments[1]) : 0;
        long until = System.nanoTime() + (long) (seconds * 1e9);
        do {
            List<Thread> threads = new ArrayList<>();
            for (int i = 0; i < THREADS; i++) {
                int number = i;
                threads.add(new Thread(() -> pairs(number, pairs, seconds > 0)));
            }
            for (Thread thread : threads) {
                thread.start();
            }
            for (Thread thread : threads) {
                thread.join();
            }
        } while (System.nanoTime() < until);
        System.out.println("{\"pairs\": " + THREADS * pairs + "}");
    }
}
