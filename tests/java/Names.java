import tailscope.Tailscope;

/** Names that are long, not English, missing, or too many. */
public final class Names {
    public static void main(String[] arguments) {
        Tailscope.begin("ä".repeat(40)).end(); // 80 bytes: cut between letters
        Tailscope.begin("").end();
        Tailscope.begin(null).end();
        for (int i = 0; i < 300; i++) {
            Tailscope.begin("name " + i).end(i);
        }
        String problem = Tailscope.problem();
        System.out.println("{\"problem\": \"" + (problem == null ? "" : problem) + "\"}");
    }
}
