/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Waits at a futex with a timeout. Libraries sleep that way: Thread.sleep in Java, sleep in Ruby. So a
 * wait that its timeout ends is a sleep. Others look at a lock now and then while they wait for it, as
 * for monitors in Java: such a thread waits there again at once, until another thread lets it go on.
 */
#ifndef TAILSCOPE_FUTEX_H
#define TAILSCOPE_FUTEX_H

#include "meters.h"

/* A thread that waits again does so before it has run for so long. */
#define AGAIN_WITHIN_NS 50000

static __always_inline bool runs_since_lately(const struct thread *t)
{
	return t->now.out - t->now.in < AGAIN_WITHIN_NS;
}

/* A condition variable of glibc has two futexes, side by side. */
static __always_inline bool is_same_futex(__u64 a, __u64 b)
{
	return a && a - b + 4 <= 8;
}

/* The thread blocks at a futex; 0: elsewhere. */
static __always_inline void waits_at(struct thread *t, __u64 futex)
{
	bool again = is_same_futex(t->timed.in_vain, futex) && runs_since_lately(t);

	if (t->timed.in_vain && !again)
		t->timed.lock = 0; /* it was a sleep */
	t->timed.again = again ? futex : 0;
	t->timed.in_vain = 0;
}

/* Its wait at a futex ends: whether it has slept. `by_thread`: another thread has ended it. */
static __always_inline bool slept_at(struct thread *t, __u64 futex, bool timed, bool by_thread)
{
	if (!timed)
		return false;
	if (by_thread) {
		t->timed.lock = t->timed.again ?: t->timed.lock;
		return false;
	}
	t->timed.in_vain = futex;
	return !is_same_futex(t->timed.lock, futex);
}

#endif
