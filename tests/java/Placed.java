import java.util.zip.CRC32;
import tailscope.Channel;

/** Goes on and on with 700 rounds in one method and 300 in another; all rounds are alike. */
public final class Placed {
    private static final Channel ROUNDS = Channel.counter("rounds");
    private static final Channel PHASE = Channel.tag("phase");
    private static final byte[] BYTES = new byte[1 << 12];
    private static final CRC32 SUM = new CRC32();

    private static void seven() {
        for (int i = 0; i < 700; i++) {
            SUM.update(BYTES);
            ROUNDS.add(1);
        }
    }

    private static void three() {
        int i = 0;
        do {
            SUM.update(BYTES);
            ROUNDS.add(1);
            i++;
        } while (i < 300);
    }

    private static void run() {
        while (true) {
            PHASE.set(7);
            seven();
            PHASE.set(3);
            three();
        }
    }

    /** On Java's first thread, or on another if anything is asked for. */
    public static void main(String[] arguments) {
        if (arguments.length > 0) {
            new Thread(Placed::run, arguments[0]).start();
        } else {
            run();
        }
    }

    private Placed() {}
}
