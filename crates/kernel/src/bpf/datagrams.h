/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * When the datagrams came in that wait on a UDP socket: each is a request of its own. They are received in
 * the order in which they came.
 */
#ifndef TAILSCOPE_DATAGRAMS_H
#define TAILSCOPE_DATAGRAMS_H

#include "types.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#define DATAGRAMS 64 /* a power of two: of more that wait, the moments of the latest are known */

struct datagrams {
	__u32 come;
	__u32 taken; /* of these, as far as that is known */
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

/* One has come in. */
static __noinline int note_datagram(struct sock *sk)
{
	struct datagrams *d = bpf_sk_storage_get(&datagrams, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	__u32 number;

	if (!d)
		return 0;
	number = __sync_fetch_and_add(&d->come, 1);
	d->at[number & (DATAGRAMS - 1)] = bpf_ktime_get_ns();
	return 0;
}

/* When the one came in that was received just now; 0: that is not known. */
static __noinline __u64 take_datagram(struct sock *sk)
{
	struct datagrams *d = bpf_sk_storage_get(&datagrams, sk, 0, 0);
	__u32 number, waiting;
	__u64 at;

	if (!d)
		return 0;
	waiting = d->come - d->taken;
	if (!waiting || waiting > 1u << 31)
		return 0;
	number = __sync_fetch_and_add(&d->taken, 1);
	at = waiting > DATAGRAMS ? 0 : d->at[number & (DATAGRAMS - 1)];
	/* One that was broken, or could not be copied, is gone without having been received. */
	if (waiting > 1 && !sk->sk_receive_queue.qlen &&
	    !BPF_CORE_READ((struct udp_sock___queue *)sk, reader_queue.qlen))
		d->taken = d->come;
	return at;
}

#endif
