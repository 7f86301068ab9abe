/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Rows of spans from probes. Uprobes can be preempted, so a CPU's ring of rows may be found in use by
 * a program that was preempted there. Then, and where the ring is full, the row goes into a BPF ring
 * buffer, where each is reserved on its own: that takes two calls of the kernel and a lock, so it is
 * no rule.
 */
#ifndef TAILSCOPE_PROBE_ROWS_H
#define TAILSCOPE_PROBE_ROWS_H

#include "meters.h"
#include "open_spans.h"
#include "rings.h"

/* Rows that find the ring of their CPU in use or full. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, PROBE_ROWS_BYTES);
} probe_rows SEC(".maps");

static __always_inline void fill_row(struct ts_row *row, const struct open_spans *s,
				     const struct open_span *span, __u64 now, __u32 source,
				     __u16 kept)
{
	row->begin = span->begin;
	row->wall = now - span->begin;
	row->id = span->id;
	row->pid = s->pid;
	row->tid = s->tid;
	row->cpu = bpf_get_smp_processor_id();
	row->name = source;
	row->flags = span->flags;
	row->text = span->text;
	row->kept = kept;
	row->queue_ns = 0;
}

/* The causes since the begin, of all of which there is a share; returns when they were read. */
static __always_inline __u64 take_shares(struct ts_row *row, const struct open_span *span,
					 const struct ts_meter *m)
{
	struct ts_share *share = (struct ts_share *)(row + 1);
	__u64 now = 0;

	for (int try = 0; try < 4; try++) { /* again, if something came in between */
		__u32 seq = *(volatile __u32 *)&m->seq;

		now = bpf_ktime_get_ns();
		for (int i = 0; i < TS_CAUSES; i++) {
			share[i].ns = m->totals.ns[i] - span->totals.ns[i];
			share[i].n = m->totals.n[i] - span->totals.n[i];
			share[i].who = WHO_NOBODY;
			if (TS_BLAMED_CAUSES & 1u << i && share[i].n)
				share[i].who = blamed_in(&m->recent[i], m->totals.n[i], share[i].n);
		}
		barrier();
		if (*(volatile __u32 *)&m->seq == seq)
			break;
	}
	row->causes = (1 << TS_CAUSES) - 1;
	return now;
}

/* Nothing was charged since the begin up to this moment: most spans are short, and their rows are
 * a quarter. */
static __always_inline bool was_quiet(const struct open_span *span, const struct ts_meter *m)
{
	barrier(); /* the moment was read before */
	return *(volatile __u32 *)&m->seq == span->seq;
}

/* Where the ring of this CPU is in use or full. */
static __noinline int write_reserved_row(const struct open_spans *s, const struct ts_meter *m,
					 __u64 now, __u64 source_and_kept)
{
	__u32 source = source_and_kept >> 16;
	__u16 kept = source_and_kept;
	const struct open_span *span;
	struct ts_row *row;

	if (!s || !m || s->ending >= OPEN_SPANS)
		return 0;
	span = &s->span[bounded(s->ending)];
	if (was_quiet(span, m)) {
		row = bpf_ringbuf_reserve(&probe_rows, sizeof(*row), 0);
		if (!row)
			goto no_room;
		row->causes = 0;
	} else {
		row = bpf_ringbuf_reserve(&probe_rows, TS_ROW_MAX, 0);
		if (!row)
			goto no_room;
		now = take_shares(row, span, m);
	}
	fill_row(row, s, span, now, source, kept);
	bpf_ringbuf_submit(row, BPF_RB_NO_WAKEUP);
	return 0;
no_room:
	__sync_fetch_and_add(&lost.rows, 1);
	return 0;
}

static __always_inline void write_probe_row(const struct open_spans *s,
					    const struct open_span *span, const struct ts_meter *m,
					    __u64 now, __u32 source, __u16 kept)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct ts_ring *ring = bpf_map_lookup_elem(&probe_rings, &cpu);
	struct ts_row *row;
	__u64 head;

	if (!ring)
		return;
	if (__sync_lock_test_and_set(&ring->busy, 1)) {
		write_reserved_row(s, m, now, (__u64)source << 16 | kept);
		return;
	}
	row = next_row(ring, &head);
	if (row) {
		if (was_quiet(span, m)) {
			row->causes = 0;
			head += sizeof(*row);
		} else {
			now = take_shares(row, span, m);
			head += TS_ROW_MAX;
		}
		fill_row(row, s, span, now, source, kept);
		publish(ring, head);
	}
	*(volatile __u64 *)&ring->busy = 0;
	if (!row)
		write_reserved_row(s, m, now, (__u64)source << 16 | kept);
}

#endif
