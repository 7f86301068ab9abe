/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Waits at a futex with a timeout. Libraries sleep that way, too: Thread.sleep in Java, sleep in Ruby.
 * So a wait that its timeout ends is a sleep, unless the thread waits at the same futex again at once:
 * then it waits for a lock and looks at it now and then.
 */
#ifndef TAILSCOPE_FUTEX_H
#define TAILSCOPE_FUTEX_H

#include "meters.h"

#define FUTEX_PRIVATE_FLAG 128

/* A thread that waits again does so before it has run for so long. */
#define AGAIN_WITHIN_NS 50000

static __always_inline bool tries_again(const struct thread *t)
{
	return t->now.out - t->now.in < AGAIN_WITHIN_NS;
}

/* A condition variable of glibc has two futexes, side by side. */
static __always_inline bool is_same_futex(__u64 a, __u64 b)
{
	return a && a - b + 4 <= 8;
}

/* The thread blocks at a futex. */
static __always_inline void waits_at_futex(struct thread *t, __u64 futex, bool timed)
{
	if (is_same_futex(t->timed.in_vain, futex) && tries_again(t))
		t->timed.again = futex;
	t->timed.in_vain = 0;
	t->timed.now = timed ? futex : 0;
}

/* Whether the thread has just slept. `by_thread`: a thread has ended its wait. */
static __always_inline bool slept_at_futex(struct thread *t, bool by_thread)
{
	if (by_thread || t->contended || !t->timed.now)
		return false;
	t->timed.in_vain = t->timed.now;
	return !is_same_futex(t->timed.again, t->timed.now);
}

#endif
