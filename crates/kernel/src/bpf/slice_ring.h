/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The entries of the source of spans `request` (tailscope_slice.h): one ring for each CPU, in
 * memory that the recorder maps. Programs write them in a task's context, with preemption off, so a
 * ring has one producer. If one comes in between all the same, it finds `busy` set and counts a loss.
 *
 * What an entry knows of its thread lies beside the thread's meter, by the same slot: programs in
 * the scheduler can make no storage of a task's.
 */
#ifndef TAILSCOPE_SLICE_RING_H
#define TAILSCOPE_SLICE_RING_H

#include <tailscope_slice.h>
#include "requests.h"
#include "rings.h"

/* The largest entry fits where a row does. */
_Static_assert(SL_ENTRY_MAX <= TS_KERNEL_ROW_MAX, "both are read from rings of the same kind");
_Static_assert(TS_CAUSES <= 14, "see SL_ENTRY_MAX");

struct rings slice_rings SEC(".maps");

/* A thread as the entries so far have left it. */
struct slice_thread {
	__u32 tid; /* whose: a slot is used again */
	__u32 pid;
	__u32 number;  /* entries so far */
	__u32 blocked; /* the cause for which it waits, plus one; 0: it does not */
	__u64 woken;   /* when that wait ended; 0: it goes on */
	__u64 reserved;
	struct reading seen; /* its meter at the latest entry */
};

/* By the slot of the recorder's own meters. The loader makes it small where nobody asks. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, OWN_SLOTS);
	__type(key, __u32);
	__type(value, struct slice_thread);
} slice_threads SEC(".maps");

/* A thread's, whose meter `m` is; NULL: the meter is an SDK's. */
static __always_inline struct slice_thread *slice_thread_at(__u32 map, __u32 slot,
							    const struct ts_meter *m)
{
	__u32 at = (map - FIRST_OWN_MAP) * TS_METERS + slot;
	struct slice_thread *s;

	if (map < FIRST_OWN_MAP || map >= FIRST_SDK_MAP)
		return NULL;
	s = bpf_map_lookup_elem(&slice_threads, &at);
	if (s && unlikely(s->tid != m->kernel_tid)) {
		s->tid = m->kernel_tid;
		s->pid = 0;
		s->number = 0;
		s->blocked = 0;
		s->woken = 0;
		read_meter(&s->seen, m);
	}
	return s;
}

/* Appends the share of a cause, if it had any since the entry before. */
static __always_inline __u32 add_share(struct ts_share *shares, __u32 count, struct slice_thread *s,
				       const struct ts_meter *m, int cause)
{
	__u32 n = m->totals.n[cause] - s->seen.n[cause];
	struct ts_share *share;

	if (!n)
		return count;
	barrier_var(count);
	share = &shares[count & CAUSES_MASK];
	share->ns = m->totals.ns[cause] - s->seen.ns[cause];
	share->n = n;
	share->who = 0;
	share->reserved = 0;
	if (TS_BLAMED_CAUSES & 1u << cause)
		share->who = blamed_in(&m->recent[cause], m->totals.n[cause], n);
	s->seen.ns[cause] = m->totals.ns[cause];
	s->seen.n[cause] = m->totals.n[cause];
	return count + 1;
}

/* Copies what is to be said of an entry behind its shares. */
static __always_inline void copy_extra(struct sl_entry *e, __u32 shares, const void *extra,
				       __u32 length)
{
	__u64 *to = (__u64 *)((struct ts_share *)(e + 1) + (shares & CAUSES_MASK));
	const __u64 *from = extra;

#pragma unroll
	for (int i = 0; i < SL_TEXT / 8; i++)
		to[i] = from[i];
	e->extra = length;
}

/*
 * Writes an entry that is like `model`, with the shares of its thread. `extra`: SL_TEXT bytes, of
 * which model->extra count; or NULL.
 */
static __noinline int write_entry(const struct sl_entry *model, struct slice_thread *s,
				  const struct ts_meter *m, const void *extra)
{
	__u32 cpu = bpf_get_smp_processor_id(), shares = 0, causes = 0;
	const __u64 *pairs, *seen;
	struct ts_ring *ring;
	struct sl_entry *e;
	__u64 head;

	if (!model || !s || !m)
		return 0;
	s->number++;
	ring = bpf_map_lookup_elem(&slice_rings, &cpu);
	if (!ring)
		return 0;
	if (__sync_lock_test_and_set(&ring->busy, 1)) {
		__sync_fetch_and_add(&lost.slices, 1);
		return 0;
	}
	e = (struct sl_entry *)next_row(ring, &head);
	if (!e) {
		__sync_fetch_and_add(&lost.slices, 1);
		goto done;
	}
	*e = *model;
	e->pid = s->pid;
	e->tid = s->tid;
	e->number = s->number;
	e->cpu = cpu;
	pairs = (const __u64 *)m->totals.n;
	seen = (const __u64 *)s->seen.n;
#pragma unroll
	for (int i = 0; i < TS_CAUSES / 2; i++) {
		__u32 before;

		if (likely(pairs[i] == seen[i]))
			continue;
		before = shares;
		shares = add_share((struct ts_share *)(e + 1), shares, s, m, 2 * i);
		if (shares != before)
			causes |= 1u << 2 * i;
		before = shares;
		shares = add_share((struct ts_share *)(e + 1), shares, s, m, 2 * i + 1);
		if (shares != before)
			causes |= 2u << 2 * i;
	}
	e->causes = causes;
	head += sizeof(*e) + (shares & CAUSES_MASK) * sizeof(struct ts_share);
	if (extra) {
		copy_extra(e, shares, extra, model->extra);
		head += SL_TEXT;
	}
	publish(ring, head);
done:
	*(volatile __u64 *)&ring->busy = 0;
	return 0;
}

#endif
