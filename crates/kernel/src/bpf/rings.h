/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Rings of rows, one for each CPU, in memory that the recorder maps (struct ts_ring): a row costs
 * its stores, with no lock, no reservation and no wake-up, but for one at each half of a ring: the
 * recorder looks now and then, and may have looked away from a burst.
 *
 * Only programs in a task's context write to `rows`. Programs that may run in an interrupt write
 * to a BPF ring buffer (`late_rows`, answers.h). Rings of probes have a `busy` word (probe_rows.h).
 */
#ifndef TAILSCOPE_RINGS_H
#define TAILSCOPE_RINGS_H

#include "meters.h"
#include "process_events.h"

/* The loader sets how many, and how large. */
struct rings {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, TS_RING_HEAD + TS_RING_SLACK);
};

struct rings rows SEC(".maps");	       /* of spans from sockets */
struct rings probe_rings SEC(".maps"); /* of spans from probes */

/* Room for the largest row, and where in the ring it begins; NULL if there is none. */
static __always_inline struct ts_row *next_row(struct ts_ring *ring, __u64 *begin)
{
	__u64 mask = config.ring_mask, head = ring->head, at = head & mask;

	if (mask + 1 - at < TS_KERNEL_ROW_MAX) {
		head += mask + 1 - at;
		at = 0;
	}
	if (head + TS_KERNEL_ROW_MAX - *(volatile __u64 *)&ring->tail > mask + 1)
		return NULL;
	*begin = head;
	return (struct ts_row *)((__u8 *)ring + TS_RING_HEAD + at);
}

/*
 * Stores to where the next row will be: its lines, which the recorder's CPU may have, are fetched
 * while the task goes on. Else the program that writes the row waits for them.
 */
static __always_inline void fetch_row(struct ts_ring *ring, int lines)
{
	__u64 head, *row = (__u64 *)next_row(ring, &head);

	if (!row)
		return;
	for (int line = 0; line < lines; line++)
		*(volatile __u64 *)(row + 8 * line) = 0;
}

static __always_inline void fetch_next_row(void)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct ts_ring *ring = bpf_map_lookup_elem(&rows, &cpu);

	if (ring)
		fetch_row(ring, 2);
}

/* Lets the recorder see what was written, up to `head`. */
static __always_inline void publish(struct ts_ring *ring, __u64 head)
{
	__u64 half = (config.ring_mask + 1) / 2, filled = (ring->head ^ head) & half;

#if defined(__TARGET_ARCH_x86)
	barrier(); /* stores are not reordered with later stores */
	*(volatile __u64 *)&ring->head = head;
#else
	__sync_lock_test_and_set(&ring->head, head); /* a full barrier, and the store */
#endif
	if (filled)
		wake_for_rows();
}

#endif
