import tailscope.Span;
import tailscope.Tailscope;

/** What must not be recorded, between what must: Virtual SPANS. */
public final class Virtual {
    public static void main(String[] arguments) throws Exception {
        int spans = Integer.parseInt(arguments[0]);
        for (int i = 0; i < spans; i++) {
            Tailscope.begin("platform").end();
        }
        int[] metered = {0};
        Thread virtual = Thread.ofVirtual().start(() -> {
            for (int i = 0; i < spans; i++) {
                try (Span span = Tailscope.begin("virtual")) {
                    metered[0] += span.isMetered() ? 1 : 0;
                    Thread.yield();
                }
            }
        });
        virtual.join();
        // Begun here, ended elsewhere.
        Span moved = Tailscope.begin("moved");
        Thread other = new Thread(() -> {
            moved.end();
            Tailscope.begin("other").end();
        });
        other.start();
        other.join();
        Tailscope.begin("last").end();
        System.out.println("{\"metered\": " + metered[0] + "}");
    }
}
