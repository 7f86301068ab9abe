/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Where the timeline's programs write, and who is watched. */
#ifndef TAILSCOPE_TIMELINE_RINGS_H
#define TAILSCOPE_TIMELINE_RINGS_H

#include "timeline_types.h"
#include "timeline.h"
#include "pid_namespace.h"
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
 * Where in its ring the event of this number lies: number % (chunks << chunk_shift), in events. A
 * ring may have any number of chunks, and a division would cost as much as the rest of an event.
 */
static __always_inline __u64 slot_of(__u64 number)
{
	__u64 fraction = (number >> config.chunk_shift) * config.reciprocal;
	__u64 chunk;

	fraction &= (1ULL << TL_FRACTION_BITS) - 1;
	chunk = fraction * config.chunks >> TL_FRACTION_BITS;
	/* Never so. Verifiers can't follow the product and have to see a bound. */
	if (chunk >= config.chunks)
		chunk = 0;
	return (chunk << config.chunk_shift) + (number & config.chunk_mask);
}

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
				   slot_of(number) * sizeof(struct tl_event));
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

/* The name of a socket or of a disk's request. Verifiers allow no arithmetic with a pointer but its
 * distance from another, here from a place that stays where it is. */
static __always_inline __u32 name_of(const void *object)
{
	__u64 distance = (__u64)object - (__u64)&config;

	barrier_var(distance);
	return distance >> 6;
}

/* --- who runs here ------------------------------------------------------------------------ */

/* By CPU, in a cache line of its own. */
struct here {
	__u64 sends_at; /* since when the thread is in a system call that sends */
	__u32 sends;	/* that thread; 0: none. Whoever leaves the CPU meanwhile is not followed */
} __attribute__((aligned(64)));
SEC(".bss.here") struct here cpus_here[TL_MAX_CPUS] = {};

static __always_inline struct here *here(void)
{
	return &cpus_here[bpf_get_smp_processor_id() & (TL_MAX_CPUS - 1)];
}

/* The ids of the process (the upper half) and of the thread: a call, so once a program. */
static __always_inline __u64 ids_here(void)
{
	return shown_ids();
}

static __always_inline __u32 self(void)
{
	return ids_here();
}

static __always_inline __u32 process_here(void)
{
	return ids_here() >> 32;
}

/* --- who is watched ----------------------------------------------------------------------- */

struct process {
	__u64 began; /* to run its program, in ns; 0: before it was watched */
};

#include "watched.h"

static __always_inline bool watched_here(void)
{
	return is_watched(process_here());
}

#endif
