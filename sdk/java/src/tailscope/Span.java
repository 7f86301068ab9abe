// SPDX-License-Identifier: MIT
package tailscope;

/**
 * A piece of work of one thread, from its begin until it is ended. It ends once: what comes after
 * the first {@code end} or {@code close} does nothing. It must end on the thread that began it, or
 * it is not recorded.
 */
public final class Span implements AutoCloseable {
    /** One that is not metered. */
    static final Span NONE = new Span(null, 0, null);

    private final Reading reading;
    private final long turn;
    /** For the other recorder; null: there is none, or it does not meter the span. */
    private final Span other;

    private Span(Reading reading, long turn, Span other) {
        this.reading = reading;
        this.turn = turn;
        this.other = other;
    }

    static Span of(Reading reading) {
        return reading == null ? NONE : new Span(reading, reading.turn, null);
    }

    /** For two recorders: {@code inner} was begun last, and ends first. */
    static Span of(Reading inner, Reading outer) {
        if (inner == null || outer == null) {
            return of(inner == null ? outer : inner);
        }
        return new Span(inner, inner.turn, of(outer));
    }

    /** Whether it is recorded: a recorder listens and has selected it. */
    public boolean isMetered() {
        return reading != null;
    }

    /** Ends it now. */
    public void end() {
        if (reading != null) {
            end(0, 0);
        }
    }

    /** Ends it and says which request it was part of: spans with one id are one request. */
    public void end(long id) {
        if (reading != null) {
            end(id, Abi.ROW_HAS_ID);
        }
    }

    /** Ends it, if it has not ended: for try-with-resources. */
    @Override
    public void close() {
        end();
    }

    private void end(long id, int flags) {
        Metered thread = reading.thread;
        if (thread.isCurrent() && reading.turn == turn) {
            thread.end(reading, id, flags);
        }
        if (other != null) {
            other.end(id, flags);
        }
    }
}
