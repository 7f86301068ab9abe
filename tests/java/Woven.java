/** Methods of all shapes that the agent makes spans of. None of them knows of Tailscope. */
public final class Woven {
    /** Three ways out. */
    private static int ends(int way) {
        if (way == 0) {
            return 1;
        }
        switch (way) {
            case 1:
                return 2;
            default:
                return 3;
        }
    }

    /** Its own handlers come before the span's. */
    private static int fails(boolean isCaught) {
        try {
            if (isCaught) {
                throw new IllegalStateException();
            }
        } catch (IllegalStateException e) {
            return 7;
        } finally {
            Thread.onSpinWait();
        }
        throw new IllegalArgumentException();
    }

    private static synchronized int loops() {
        int sum = 0;
        for (int i = 0; i < 10; i++) {
            sum += i;
        }
        return sum;
    }

    private static double answer(long a, double b) {
        Object text = a > 5 ? "text" : Long.valueOf(a); // a type to be merged
        return text.hashCode() > -1 ? b : 2 * b;
    }

    private static void answer(int[] to) {
        to[0] += 11;
    }

    private interface Work {
        int work();
    }

    private static final class Inner implements Work {
        @Override
        public int work() {
            return 5;
        }
    }

    public static void main(String[] arguments) {
        long sum = 0;
        int[] answered = {0};
        Work work = new Inner();
        for (int i = 0; i < 10; i++) {
            sum += ends(0) + ends(1) + ends(2);
            sum += fails(true);
            try {
                fails(false);
            } catch (IllegalArgumentException e) {
                sum += 7;
            }
            sum += loops();
            sum += work.work();
            answer(answered);
            answer(answered);
            answer(i, 1.0);
            answer(i, 2.0);
        }
        System.out.println("{\"sum\": " + (sum + answered[0]) + "}");
    }
}
