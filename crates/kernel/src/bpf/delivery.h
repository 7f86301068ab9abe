/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The network's softirqs that run on top of a send: what of them is no part of the request. */
#ifndef TAILSCOPE_DELIVERY_H
#define TAILSCOPE_DELIVERY_H

#include "requests.h"

/* A network softirq from this length on is no part of the request if the answer had left before it. A
 * shorter one stays part of it: over the loopback, it lasts about as long as the client's own send,
 * which the server can't see. */
#define DELIVERY_FROM_NS 20000
/* A send returns so soon after its last packet. All of its packets have the time of the first, so a
 * softirq that ended earlier may have kept back the others. */
#define RETURNS_WITHIN_NS 10000

/*
 * How long such a softirq took on top of this send, which has returned at `now`: it has brought in other
 * packets, or taken the answer through the loopback. TCP passed on its last data at `passed_on`, and all
 * of it. 0: there was no such softirq, or the reading of the meter came later. Not static: see
 * write_entry.
 */
__noinline __u64 delivery_after(const struct reading *r, const struct ts_meter *m, __u64 passed_on,
				__u64 now)
{
	const volatile struct cpu *cpu = this_cpu(); /* softirqs change it between two readings */
	__u64 begin = cpu->delivery, end = cpu->delivered, ns = cpu->delivery_ns;

	if (!r || !m || ns < DELIVERY_FROM_NS || begin != cpu->delivery)
		return 0;
	if (begin < passed_on || end > now || now - end > RETURNS_WITHIN_NS)
		return 0;
	if (begin < cpu->in) /* on top of another thread */
		return 0;
	if (m->totals.n[TS_SOFTIRQ_NET] == r->n[TS_SOFTIRQ_NET])
		return 0;
	return m->totals.ns[TS_SOFTIRQ_NET] - r->ns[TS_SOFTIRQ_NET] < ns ? 0 : ns;
}

#endif
