/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The network's softirqs that run on top of a send: what of them is no part of the request. */
#ifndef TAILSCOPE_DELIVERY_H
#define TAILSCOPE_DELIVERY_H

#include <bpf/bpf_endian.h>

#include "requests.h"

/* A network softirq from this length on is no part of the request if the answer had left before it. A
 * shorter one stays part of it: over the loopback, it lasts about as long as the client's own send,
 * which the server can't see. There it lasts until the client's socket has the answer. */
#define DELIVERY_FROM_NS 20000
/* A send returns so soon after its last packet. All of its packets have the time of the first, so a
 * softirq that ended earlier may have kept back the others. */
#define RETURNS_WITHIN_NS 10000

/* Both ports of a connection, at the end that has this socket. */
static __always_inline __u32 ports_here(const struct sock *sk)
{
	return (__u32)sk->__sk_common.skc_num << 16 | bpf_ntohs(sk->__sk_common.skc_dport);
}

/* The same at its other end. */
static __always_inline __u32 ports_there(const struct sock *sk)
{
	return (__u32)bpf_ntohs(sk->__sk_common.skc_dport) << 16 | sk->__sk_common.skc_num;
}

/* Data has come in at this socket, perhaps on top of the send that is its other end. TCP has just read
 * the clock for it (tcp_mstamp_refresh). */
static __always_inline void note_taken(struct sock *sk)
{
	struct cpu *cpu = this_cpu();
	struct tcp_sock *tcp = cpu->map ? bpf_skc_to_tcp_sock(sk) : NULL;

	if (!tcp)
		return;
	cpu->taken = tcp->tcp_clock_cache;
	cpu->taken_by = ports_here(sk);
}

/*
 * How much of such a softirq on top of this send, which has returned at `now`, is no part of the request:
 * it has brought in other packets, or taken the answer through the loopback to the client's socket with
 * the ports `there`, and woken the client. TCP passed on its last data at `passed_on`, and all of it. 0:
 * there was no such softirq, or the reading of the meter came later. Not static: see write_entry.
 */
__noinline __u64 delivery_after(const struct reading *r, const struct ts_meter *m, __u64 passed_on,
				__u64 now, __u32 there)
{
	volatile struct cpu *cpu = this_cpu(); /* softirqs change it between two readings */
	__u64 begin = cpu->delivery, end = cpu->delivered, ns = cpu->delivery_ns;
	__u64 until = end, taken = cpu->taken;

	if (cpu->taken_by == there && taken >= begin && taken < end)
		until = taken;
	cpu->left_out_n = until == end || until - begin >= DELIVERY_FROM_NS;
	if (!cpu->left_out_n && ns > end - until)
		ns = end - until;
	if (!r || !m || (until == end && ns < DELIVERY_FROM_NS) || begin != cpu->delivery)
		return 0;
	if (begin < passed_on || end > now || now - end > RETURNS_WITHIN_NS)
		return 0;
	if (begin < cpu->in) /* on top of another thread */
		return 0;
	if (m->totals.n[TS_SOFTIRQ_NET] == r->n[TS_SOFTIRQ_NET])
		return 0;
	return m->totals.ns[TS_SOFTIRQ_NET] - r->ns[TS_SOFTIRQ_NET] < ns ? 0 : ns;
}

/* Hides what is left out from what compares with the reading, until `take_back` or `leave_to_next`. */
static __always_inline void leave_out(struct reading *r, const struct cpu *cpu)
{
	if (cpu->left_out) {
		r->ns[TS_SOFTIRQ_NET] += cpu->left_out;
		r->n[TS_SOFTIRQ_NET] += cpu->left_out_n;
	}
}

static __always_inline void take_back(struct reading *r, const struct cpu *cpu)
{
	if (cpu->left_out) {
		r->ns[TS_SOFTIRQ_NET] -= cpu->left_out;
		r->n[TS_SOFTIRQ_NET] -= cpu->left_out_n;
	}
}

/* `take_back` for slices. Each has what came since the slice before, so what was left out belongs to the next
 * one. It needs a number there, too: without one it would wait for the next softirq, perhaps in a later
 * request. A softirq of which a part was left out thus counts in both slices. */
static __always_inline void leave_to_next(struct reading *said, const struct ts_meter *m,
					  const struct cpu *cpu)
{
	if (cpu->left_out) {
		said->ns[TS_SOFTIRQ_NET] -= cpu->left_out;
		if (said->n[TS_SOFTIRQ_NET] == m->totals.n[TS_SOFTIRQ_NET])
			said->n[TS_SOFTIRQ_NET]--;
	}
}

#endif
