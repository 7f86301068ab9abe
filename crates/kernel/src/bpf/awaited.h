/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What interrupts and softirqs took of a CPU for which a watched thread waits. They run on top of
 * the thread that has the CPU, or of the idle one, so no switch shows them: a thread that wakes up in a
 * storm of interrupts has no other thread to wait behind.
 *
 * A waker only writes down since when (a store to another CPU's line does not stall it). The sums
 * begin anew when the CPU sees that. Of two threads that wait for one CPU, the one that was woken
 * first knows only what came after the other's wake-up.
 */
#ifndef TAILSCOPE_AWAITED_H
#define TAILSCOPE_AWAITED_H

#include "meters.h"

enum interruption { BY_IRQ, BY_SOFTIRQ_NET, BY_SOFTIRQ_TIMER, BY_SOFTIRQ_OTHER, INTERRUPTIONS };

struct awaited {
	__u64 since; /* when the latest watched thread began to wait for this CPU; 0: none waits */
	__u64 counted; /* since when the sums count */
	__u64 mark;    /* up to where the level counts that was under way at that moment, */
	__u64 under;   /* and what nested in it since */
	__u64 ns[INTERRUPTIONS];
	__u16 who[INTERRUPTIONS]; /* the latest */
} __attribute__((aligned(64)));

SEC(".bss.awaited") struct awaited awaited[MAX_CPUS] = {};

static __always_inline struct awaited *awaited_cpu(__u32 cpu)
{
	return &awaited[cpu & (MAX_CPUS - 1)];
}

static __always_inline struct awaited *this_awaited(void)
{
	return awaited_cpu(bpf_get_smp_processor_id());
}

static __always_inline enum interruption interruption_of(__u32 cause)
{
	switch (cause) {
	case TS_SOFTIRQ_NET:
		return BY_SOFTIRQ_NET;
	case TS_SOFTIRQ_TIMER:
		return BY_SOFTIRQ_TIMER;
	case TS_SOFTIRQ_OTHER:
		return BY_SOFTIRQ_OTHER;
	default:
		return BY_IRQ;
	}
}

/* Brings the sums up to the latest wait. */
static __always_inline void count_from_latest(struct awaited *a)
{
	if (likely(a->counted == a->since))
		return;
	a->counted = a->mark = a->since;
	a->under = 0;
	a->ns[BY_IRQ] = a->ns[BY_SOFTIRQ_NET] = 0;
	a->ns[BY_SOFTIRQ_TIMER] = a->ns[BY_SOFTIRQ_OTHER] = 0;
}

/* A level has ended on a CPU for which a thread waits: it took `whole`, and `own` of that itself. */
static __always_inline void interrupted(struct awaited *a, __u32 cause, __u16 who, __u64 now,
					__u64 whole, __u64 own, bool is_lowest)
{
	enum interruption by = interruption_of(cause);
	__u64 waited;

	count_from_latest(a);
	waited = now > a->counted ? now - a->counted : 0;
	if (is_lowest)
		a->under += whole < waited ? whole : waited;
	a->ns[by] += own < waited ? own : waited;
	a->who[by] = who;
}

/* The same of a level that began before the thread waited. */
static __always_inline void interrupted_at_first(struct awaited *a, __u32 cause, __u16 who,
						 __u64 now)
{
	enum interruption by = interruption_of(cause);
	__u64 whole;

	count_from_latest(a);
	whole = now > a->mark ? now - a->mark : 0;
	a->ns[by] += whole > a->under ? whole - a->under : 0;
	a->who[by] = who;
	a->mark = now;
	a->under = 0;
}

/* The most of what took a CPU from a thread that has waited for it since then. */
struct interruptions {
	__u64 ns; /* all of them together */
	__u32 cause;
	__u16 who;
};

static __always_inline void consider(struct interruptions *found, __u64 *most,
				     const struct awaited *a, enum interruption by, __u32 cause)
{
	found->ns += a->ns[by];
	if (a->ns[by] <= *most)
		return;
	*most = a->ns[by];
	found->cause = cause;
	found->who = a->who[by];
}

/* What was counted for a thread that now runs here and has waited since then. */
static __always_inline void take_interruptions(struct interruptions *found, __u64 since)
{
	struct awaited *a = this_awaited();
	__u64 most = 0;

	found->ns = 0;
	if (a->counted == a->since && a->since >= since) {
		consider(found, &most, a, BY_IRQ, TS_IRQ);
		consider(found, &most, a, BY_SOFTIRQ_NET, TS_SOFTIRQ_NET);
		consider(found, &most, a, BY_SOFTIRQ_TIMER, TS_SOFTIRQ_TIMER);
		consider(found, &most, a, BY_SOFTIRQ_OTHER, TS_SOFTIRQ_OTHER);
	}
	if (a->since == since)
		a->since = 0;
}

/* This CPU has nothing to do. */
static __always_inline void nobody_waits_here(void)
{
	struct awaited *a = this_awaited();

	if (a->since)
		a->since = 0;
}

#endif
