// SPDX-License-Identifier: MIT
package tailscope;

/**
 * Tell Tailscope where a request begins and ends:
 *
 * <pre>{@code
 * try (Span span = Tailscope.begin("get")) {
 *     answer(request);
 *     span.end(request.number()); // or let it close
 * }
 * }</pre>
 *
 * Nothing to initialise. Without a recorder a begin costs a load and a branch; with one, begin and
 * end read the thread's meter and make no system call. Spans may nest and overlap. They work in JDK
 * 22 and newer, on Linux on x86-64 and arm64; elsewhere the same calls do nothing, and {@link
 * #problem} says why.
 *
 * <p>A meter belongs to a thread of the kernel's. A virtual thread changes those, and with them
 * whose waits it would count, so a span that begins on one is not metered; the recorder tells of
 * it.
 */
public final class Tailscope {
    private static final String PROBLEM = start();
    private static final boolean WORKS = PROBLEM == null;

    private static String start() {
        try {
            Probe.isOfUse();
            Recorder.knock();
            return null;
        } catch (Throwable e) {
            // An older JDK, native access denied, a machine or a system that it was not made for:
            // whatever it is, it is no reason for a program not to run.
            Throwable cause = e;
            while (cause.getCause() != null) {
                cause = cause.getCause();
            }
            return cause.toString();
        }
    }

    /** Begins a span of this thread. At most 255 different names a process, of up to 59 bytes. */
    public static Span begin(String name) {
        return WORKS && Probe.isOfUse() ? metered(name) : Span.NONE;
    }

    private static Span metered(String name) {
        if (Thread.currentThread().isVirtual()) {
            Recorder.FIRST.tellOfVirtual();
            Recorder.SECOND.tellOfVirtual();
            return Span.NONE;
        }
        Metered thread = Metered.current();
        if (Probe.isOfUse(1)) {
            return forBoth(thread, name);
        }
        if (!Probe.isHeard(0)) {
            thread.recorderLeft();
            return Span.NONE;
        }
        return Span.of(thread.begin(name));
    }

    /**
     * For the recorders that listen. One whose events are counted comes last, and first in the end:
     * the other's work is no part of what the span counts.
     */
    private static Span forBoth(Metered first, String name) {
        Metered second = first.second();
        boolean isFirstInner = first.counts();
        Reading outer = (isFirstInner ? second : first).beginIfHeard(name);
        Reading inner = (isFirstInner ? first : second).beginIfHeard(name);
        return Span.of(inner, outer);
    }

    /** Why spans can't be recorded in this process; null if they can, once there is a recorder. */
    public static String problem() {
        return PROBLEM;
    }

    private Tailscope() {}
}
