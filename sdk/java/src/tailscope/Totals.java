// SPDX-License-Identifier: MIT
package tailscope;

/** What a thread's time had gone to when its meter's sequence number was this. */
record Totals(int seq, long[] ns, int[] n) {
    /** Reads a meter; it is whole if the sequence number is still the same afterwards. */
    static Totals read(long meter, int seq) {
        long[] ns = new long[Abi.CAUSES];
        int[] n = new int[Abi.CAUSES];
        for (int cause = 0; cause < Abi.CAUSES; cause++) {
            ns[cause] = ns(meter, cause);
            n[cause] = n(meter, cause);
        }
        return new Totals(seq, ns, n);
    }

    static long ns(long meter, int cause) {
        return Memory.getLong(meter + Abi.METER_NS + 8L * cause);
    }

    static int n(long meter, int cause) {
        return Memory.getInt(meter + Abi.METER_N + 4L * cause);
    }
}
