/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Where the timeline's programs write, and who is watched. */
#ifndef TAILSCOPE_TIMELINE_RINGS_H
#define TAILSCOPE_TIMELINE_RINGS_H

#include "timeline_types.h"
#include "timeline.h"
#include <tailscope_event.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

SEC(".rodata.config") const volatile struct tl_config config = {};
SEC(".bss.lost") struct tl_lost lost = {};

/* --- the rings ---------------------------------------------------------------------------- */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* the loader sets how many, and how large */
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, TL_RING_HEAD + TL_EVENT_BYTES);
} rings SEC(".maps");

/*
 * Room for the next event. An interrupt may come at any moment and write events of its own, so a
 * place is taken in one step. A reader tells an event that is not written yet, or an older one,
 * by its place, which is written last.
 */
static __always_inline struct tl_event *next_event(__u32 *place)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct tl_ring *ring = bpf_map_lookup_elem(&rings, &cpu);
	__u64 number;

	if (!ring)
		return NULL;
	number = __sync_fetch_and_add(&ring->head, 1);
	*place = number;
	return (struct tl_event *)((__u8 *)ring + TL_RING_HEAD +
				   (number & config.ring_mask) * sizeof(struct tl_event));
}

static __always_inline void write_at(__u64 at, __u8 kind, __u8 flags, __u16 small, __u32 tid,
				     __u32 x, __u32 y, __u32 z)
{
	struct tl_event *e;
	__u32 place;

	e = next_event(&place);
	if (!e)
		return;
	e->at = at;
	e->tid = tid;
	e->kind = kind;
	e->flags = flags;
	e->small = small;
	e->x = x;
	e->y = y;
	e->z = z;
#if defined(__TARGET_ARCH_x86)
	barrier(); /* stores are not reordered with later stores */
	*(volatile __u32 *)&e->place = place;
#else
	__sync_lock_test_and_set(&e->place, place); /* a full barrier, and the store */
#endif
}

/* The clock first: it says when the hook was reached, whatever interrupts the rest. */
static __always_inline void write(__u8 kind, __u8 flags, __u16 small, __u32 tid, __u32 x, __u32 y,
				  __u32 z)
{
	write_at(bpf_ktime_get_ns(), kind, flags, small, tid, x, y, z);
}

static __always_inline __u32 self(void)
{
	return bpf_get_current_pid_tgid();
}

/* --- who is watched ----------------------------------------------------------------------- */

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, TL_MAX_PROCESSES);
	__type(key, __u32);
	__type(value, __u8);
} processes SEC(".maps");

/* Counts of watched processes by the low bits of their id: one load rules out most others. */
SEC(".bss.watched") __u32 watched[TL_BUCKETS] = {};

static __always_inline bool is_watched(__u32 tgid)
{
	return watched[tgid & (TL_BUCKETS - 1)] && bpf_map_lookup_elem(&processes, &tgid);
}

static __always_inline bool watched_here(void)
{
	return is_watched(bpf_get_current_pid_tgid() >> 32);
}

#endif
