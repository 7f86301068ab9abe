/* SPDX-License-Identifier: MIT */
/*
 * The lock of what threads do seldom and briefly, such as attaching: a part of tailscope.h, which
 * includes it. Not for callers.
 *
 * The word is the id of the thread that holds it, with a bit if others wait; 0: nobody. A signal
 * handler that interrupts its own thread here sees that thread's id, and goes without. A thread that
 * dies with the lock costs the others TS__LOCK_PATIENCE each time, not their lives.
 */
#ifndef TAILSCOPE_LOCK_H
#define TAILSCOPE_LOCK_H

#define TS__LOCK_WAITED_FOR 0x80000000u
#define TS__LOCK_PATIENCE 2 /* s */

/* Returns whether this thread has the lock now. */
static inline int ts__lock(ts_u32 *locked)
{
	ts_u32 self = (ts_u32)syscall(SYS_gettid), mine = self, nobody = 0, seen;
	struct timespec deadline;

	if (__atomic_compare_exchange_n(locked, &nobody, mine, 0, __ATOMIC_ACQUIRE,
					__ATOMIC_RELAXED))
		return 1;
	clock_gettime(CLOCK_MONOTONIC, &deadline);
	deadline.tv_sec += TS__LOCK_PATIENCE;
	/* Whoever has waited can't know whether others still do. */
	mine |= TS__LOCK_WAITED_FOR;
	for (;;) {
		seen = __atomic_load_n(locked, __ATOMIC_RELAXED);
		if (!seen) {
			if (__atomic_compare_exchange_n(locked, &seen, mine, 0, __ATOMIC_ACQUIRE,
							__ATOMIC_RELAXED))
				return 1;
			continue;
		}
		if ((seen & ~TS__LOCK_WAITED_FOR) == self)
			return 0;
		if (!(seen & TS__LOCK_WAITED_FOR) &&
		    !__atomic_compare_exchange_n(locked, &seen, seen | TS__LOCK_WAITED_FOR, 0,
						 __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			continue;
		if (syscall(SYS_futex, locked, FUTEX_WAIT_BITSET_PRIVATE,
			    seen | TS__LOCK_WAITED_FOR, &deadline, NULL, FUTEX_BITSET_MATCH_ANY) &&
		    errno == ETIMEDOUT)
			return 0;
	}
}

static inline void ts__unlock(ts_u32 *locked)
{
	if (__atomic_exchange_n(locked, 0, __ATOMIC_RELEASE) & TS__LOCK_WAITED_FOR)
		syscall(SYS_futex, locked, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

#endif
