/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * When the datagrams came in that wait on a UDP socket: each is a request of its own. They are received in
 * the order in which they came. And whether they are QUIC's, in which nothing can be followed.
 */
#ifndef TAILSCOPE_DATAGRAMS_H
#define TAILSCOPE_DATAGRAMS_H

#include "types.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

/* A power of two. As many as fit in a socket's memory by default; of more that wait, the moments of the
 * latest are known. */
#define DATAGRAMS 256
/* Receivers on several CPUs may have taken datagrams that came so close together. */
#define TOGETHER 8
#define TOGETHER_NS 1000000

struct datagrams {
	__u32 come;
	__u32 taken; /* the number of the next one that is received, or less */
	__u64 at[DATAGRAMS];
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct datagrams);
} datagrams SEC(".maps");

struct udp_sock___queue {
	struct sk_buff_head reader_queue;
} CORE;

/* The first datagram of a connection of QUIC has at least as many bytes (RFC 9000, section 14.1), and
 * begins with a long header (section 17.2) and the version: 1, or 2 (RFC 9369). */
#define QUIC_LEAST 1200
#define QUIC_LONG_HEADER 0xc0
#define QUIC_PROVES 2 /* as many are no coincidence */

/* The kernel has taken off the header of UDP by then (udp_csum_pull_header). */
static __always_inline bool begins_quic(struct sk_buff *skb)
{
	__u8 b[5];

	if (BPF_CORE_READ(skb, len) < QUIC_LEAST ||
	    bpf_probe_read_kernel(b, sizeof(b), BPF_CORE_READ(skb, data)) ||
	    (b[0] & QUIC_LONG_HEADER) != QUIC_LONG_HEADER)
		return false;
	return (!b[1] && !b[2] && !b[3] && b[4] == 1) ||
	       (b[1] == 0x6b && b[2] == 0x33 && b[3] == 0x43 && b[4] == 0xcf);
}

/* One has come in. `quic` counts those that begin a connection of QUIC; NULL: they need no count. */
static __noinline int note_datagram(struct sock *sk, __u8 *quic)
{
	struct datagrams *d = bpf_sk_storage_get(&datagrams, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	__u64 now = bpf_ktime_get_ns();
	__u32 number;

	if (quic && begins_quic(sk->sk_receive_queue.prev))
		(*quic)++;
	if (!d)
		return 0;
	/* First, for who sees that it has come; and then where it is, if two came at once. */
	d->at[d->come & (DATAGRAMS - 1)] = now;
	number = __sync_fetch_and_add(&d->come, 1);
	d->at[number & (DATAGRAMS - 1)] = now;
	return 0;
}

/* When the one came in that was received just now; 0: that is not known. All that came after it still
 * wait. That says which one it was, even if some were dropped, or taken by a thread that is not watched. */
static __noinline __u64 take_datagram(struct sock *sk)
{
	struct datagrams *d = bpf_sk_storage_get(&datagrams, sk, 0, 0);
	__u32 number, wait, oldest;
	__u64 at;

	if (!d)
		return 0;
	wait = sk->sk_receive_queue.qlen +
	       BPF_CORE_READ((struct udp_sock___queue *)sk, reader_queue.qlen);
	number = d->come - 1 - wait;
	if ((__s32)(number - d->taken) < 0) /* it was taken before it was noted */
		return 0;
	at = d->at[number & (DATAGRAMS - 1)];
	if (number - d->taken < TOGETHER && at - d->at[d->taken & (DATAGRAMS - 1)] < TOGETHER_NS) {
		number = d->taken;
		at = d->at[number & (DATAGRAMS - 1)];
	}
	oldest = d->come - DATAGRAMS;
	if ((__s32)(oldest - number) > 0) /* it has waited since then or longer */
		at = d->at[oldest & (DATAGRAMS - 1)];
	d->taken = number + 1;
	return at;
}

#endif
