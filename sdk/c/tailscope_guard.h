/* SPDX-License-Identifier: MIT */
/*
 * Counters that user space may no longer read: a part of tailscope.h, which includes it. Not for
 * callers.
 *
 * Whoever owns the machine may switch user space's access off while threads count (sysctl
 * kernel.perf_user_access on arm64, rdpmc in sysfs on x86-64). The next reading then faults, which
 * would end the program, and nothing tells of it before. So while threads count, there is a handler
 * for that signal. It passes over a reading of ours that faulted, and the thread counts nothing any
 * more until the recorder says that it is other events' turn. Every other fault is for the handler
 * that was there before.
 */
#ifndef TAILSCOPE_GUARD_H
#define TAILSCOPE_GUARD_H

#include <signal.h>
#include <ucontext.h>

struct ts__guard {
	struct sigaction before; /* what other faults are for */
	int set;
	ts_u32 locked;
};

TS__ONE struct ts__guard ts__guard;

#ifdef __x86_64__
#define TS__FAULT SIGSEGV
#else
#define TS__FAULT SIGILL
#endif

/* Takes away the counters that this thread is reading; returns whether there are any. */
static inline int ts__take_away(void)
{
	ts_u32 which;
	int took = 0;

	for (which = 0; which < TS_RECORDERS; which++) {
		struct ts__counters *c = &ts__thread[which].counters;

		if (!c->reading)
			continue;
		took = 1;
		/* What is open ends without values, what begins has none. */
		c->count = c->head.known = 0;
		if (ts__process[which].epoch)
			__atomic_store_n(&ts__process[which].region->counting.refused, EOPNOTSUPP,
					 __ATOMIC_RELAXED);
	}
	return took;
}

/* If it is a reading of this thread's counters that faulted: goes on after it, without any. */
static inline int ts__pass_over(ucontext_t *context)
{
	int length;

#ifdef __x86_64__
	greg_t *at = &context->uc_mcontext.gregs[16]; /* REG_RIP, which asks for _GNU_SOURCE */
	const unsigned char *code = (const unsigned char *)*at;

	if (code[0] != 0x0f || code[1] != 0x33) /* rdpmc */
		return 0;
	length = 2;
#else
	unsigned long long *at = (unsigned long long *)&context->uc_mcontext.pc;
	ts_u32 code = *(const ts_u32 *)*at;

	/* mrs of pmevcntr0_el0 to pmevcntr30_el0, or of pmccntr_el0 */
	if ((code & 0xfffffc00) != 0xd53be800 && (code & 0xffffffe0) != 0xd53b9d00)
		return 0;
	length = 4;
#endif
	if (!ts__take_away())
		return 0;
#ifdef __x86_64__
	*at += length;
#else
	*at += (unsigned long long)length;
#endif
	return 1;
}

TS__ONE void ts__on_fault(int number, siginfo_t *info, void *context)
{
	struct sigaction before = ts__guard.before;
	int is_sent = info->si_code <= 0; /* by kill() and the like: no instruction faulted */

#ifdef __x86_64__
	/* A page fault is no reading, and its instruction may lie where nothing can be read. */
	if (info->si_code == SI_KERNEL && ts__pass_over((ucontext_t *)context))
		return;
#else
	if (!is_sent && ts__pass_over((ucontext_t *)context))
		return;
#endif
	if (before.sa_handler == SIG_DFL || before.sa_handler == SIG_IGN) {
		if (is_sent && before.sa_handler == SIG_IGN)
			return;
		memset(&before, 0, sizeof(before)); /* SIG_DFL: the instruction faults again */
		sigaction(number, &before, NULL);
		if (is_sent)
			raise(number);
	} else if (before.sa_flags & SA_SIGINFO) {
		before.sa_sigaction(number, info, context);
	} else {
		before.sa_handler(number);
	}
}

/* From now on a reading may fault. */
static inline void ts__set_guard(void)
{
	struct sigaction ours;

	if (!ts__lock(&ts__guard.locked))
		return;
	if (!ts__guard.set && !sigaction(TS__FAULT, NULL, &ts__guard.before)) {
		/* The handler of before is called as if it were its own signal: same mask, same
		 * flags. */
		ours = ts__guard.before;
		ours.sa_flags = (ours.sa_flags & ~SA_RESETHAND) | SA_SIGINFO | SA_ONSTACK;
		ours.sa_sigaction = ts__on_fault;
		ts__guard.set = !sigaction(TS__FAULT, &ours, NULL);
	}
	ts__unlock(&ts__guard.locked);
}

/* No thread counts any more for one recorder. If none does for the other, the guard goes; but if the
 * program has put a handler of its own on top, ours stays below. */
static inline void ts__lift_guard(void)
{
	struct sigaction now;

	if (!ts__lock(&ts__guard.locked))
		return;
	if (ts__guard.set && !tailscope_semaphore.part[0].counting &&
	    !tailscope_semaphore.part[1].counting && !sigaction(TS__FAULT, NULL, &now) &&
	    now.sa_flags & SA_SIGINFO && now.sa_sigaction == ts__on_fault) {
		sigaction(TS__FAULT, &ts__guard.before, NULL);
		ts__guard.set = 0;
	}
	ts__unlock(&ts__guard.locked);
}

#undef TS__FAULT

#endif
