import java.util.ArrayList;
import java.util.List;
import tailscope.Tailscope;

/**
 * Threads that come and go, some at a time: Storm THREADS SPANS. Each span has an id of its own.
 */
public final class Storm {
    private static final int AT_A_TIME = 20;

    public static void main(String[] arguments) throws InterruptedException {
        int threads = Integer.parseInt(arguments[0]);
        int spans = Integer.parseInt(arguments[1]);
        for (int first = 0; first < threads; first += AT_A_TIME) {
            List<Thread> alive = new ArrayList<>();
            for (int i = first; i < Math.min(first + AT_A_TIME, threads); i++) {
                long from = (long) i * spans;
                alive.add(new Thread(() -> {
                    for (long id = from; id < from + spans; id++) {
                        Tailscope.begin("storm").end(id);
                    }
                }));
            }
            for (Thread thread : alive) {
                thread.start();
            }
            for (Thread thread : alive) {
                thread.join();
            }
        }
        System.out.println("{\"spans\": " + (long) threads * spans + "}");
    }
}
