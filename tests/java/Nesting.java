import java.util.ArrayList;
import java.util.List;
import tailscope.Span;
import tailscope.Tailscope;

/** Spans in spans, on some threads, each pair with an id of its own: Nesting [PAIRS [SECONDS]]. */
public final class Nesting {
    private static final int THREADS = 3;
    @SuppressWarnings("unused")
    private static volatile int sink;

    private static void work() {
        for (int i = 0; i < 2000; i++) {
            sink = i;
        }
    }

    private static void pairs(int thread, int pairs) {
        for (int pair = 0; pair < pairs; pair++) {
            long id = (long) thread * pairs + pair;
            Span outer = Tailscope.begin("outer");
            work();
            try (Span scoped = Tailscope.begin("scoped"); Span inner = Tailscope.begin("inner")) {
                work();
                inner.end(id);
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
                threads.add(new Thread(() -> pairs(number, pairs)));
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
