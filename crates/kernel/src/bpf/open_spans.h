/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The spans from probes that are open on a thread, those of all sources on one stack, the latest on
 * top. One that ends below the top leaves a gap. A thread has at most 16 (OPEN_SPANS) open spans;
 * `lost.depth` counts begins beyond that.
 *
 * They lie beside the thread's meter, where they are found without a call of the kernel: task storage
 * takes a span 45 ns. It is for threads whose meters are an SDK's, and for those beyond the first
 * thousand.
 */
#ifndef TAILSCOPE_OPEN_SPANS_H
#define TAILSCOPE_OPEN_SPANS_H

#include "meters.h"

struct open_span {
	__u64 sp; /* at the begin */
	__u64 ip;
	__u64 id;
	__u32 map; /* the meter of its thread, which may change: an SDK that attaches, an exec */
	__u32 slot;
	__u32 seq;  /* of the meter, at the begin */
	__u16 text; /* number of its name; 0: that of the source */
	__u8 flags; /* of its row */
	__u8 reserved;
	__u64 begin; /* 0: passed over under --sample */
	struct ts_totals totals;
};

struct open_spans {
	__u32 pid; /* whose they are */
	__u32 tid;
	__u32 depth;
	__u8 source[OPEN_SPANS];  /* plus one; 0: ended before those on top of it */
	__u8 beyond[MAX_SOURCES]; /* begins that found no room and whose ends are still to come */
	__u32 ending;		  /* which one, on its way from one function to another */
	struct open_span span[OPEN_SPANS];
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct open_spans);
} open_spans SEC(".maps");

/* By the slot of our first map of meters. The loader makes it small where there are no probes. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, OPEN_SPANS_SLOTS);
	__type(key, __u32);
	__type(value, struct open_spans);
} open_spans_by_slot SEC(".maps");

/* NULL: those of the thread with this meter lie in its task storage, or there are no probes. */
static __always_inline struct open_spans *open_spans_at(__u32 map, __u32 slot)
{
	if (!config.probes || map != FIRST_OWN_MAP)
		return NULL;
	return bpf_map_lookup_elem(&open_spans_by_slot, &slot);
}

static __always_inline void own(struct open_spans *s, struct task_struct *task)
{
	s->pid = shown_pid(task);
	s->tid = shown_tid(task);
}

/* Those of a thread that has just been given this meter: none. */
static __always_inline void begin_open_spans(struct task_struct *task, __u32 map, __u32 slot)
{
	struct open_spans *s = open_spans_at(map, slot);

	if (!s)
		return;
	__builtin_memset(s, 0, __builtin_offsetof(struct open_spans, span));
	own(s, task);
}

/* Those of the thread that runs here. */
static __always_inline struct open_spans *open_spans_here(const struct cpu *cpu)
{
	struct open_spans *s = open_spans_at(cpu->map, cpu->slot);

	return s ? s : bpf_task_storage_get(&open_spans, bpf_get_current_task_btf(), 0, 0);
}

/* The same, made if there are none yet; NULL: no memory. */
static __always_inline struct open_spans *make_open_spans_here(const struct cpu *cpu)
{
	struct open_spans *s = open_spans_at(cpu->map, cpu->slot);
	struct task_struct *task;

	if (s)
		return s;
	task = bpf_get_current_task_btf();
	s = bpf_task_storage_get(&open_spans, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (s)
		own(s, task);
	return s;
}

/* The compiler knows bounds that it does not let the verifier see: both get to see these. */
static __always_inline __u32 bounded(__u32 at)
{
	barrier_var(at);
	return at & (OPEN_SPANS - 1);
}

/* What walks over the stack is a function of its own, which the verifier looks at once: inlined
 * it would follow each way through it together with each way through the rest. */
__noinline int trim(struct open_spans *s)
{
	if (!s)
		return 0;
	for (int i = 0; i < OPEN_SPANS; i++) {
		__u32 top = s->depth - 1;

		if (top >= OPEN_SPANS || s->source[bounded(top)])
			break;
		s->depth = top;
	}
	return 0;
}

static __always_inline void deselect(const struct open_span *span)
{
	struct ts_meter *m;

	if (!sampling() || !span->begin)
		return;
	m = meter_at(span->map, span->slot);
	if (m && m->open)
		__sync_fetch_and_add(&m->open, -1);
}

/* Its end will never come. */
__noinline int abandon(struct open_spans *s, __u32 at)
{
	if (!s || at >= OPEN_SPANS)
		return 0;
	deselect(&s->span[bounded(at)]);
	s->source[bounded(at)] = 0;
	__sync_fetch_and_add(&lost.abandoned, 1);
	return 0;
}

/* None of them will end. */
__noinline int abandon_all(struct open_spans *s)
{
	if (!s)
		return 0;
	for (__u32 i = 0; i < OPEN_SPANS; i++)
		if (i < s->depth && s->source[bounded(i)])
			abandon(s, i);
	s->depth = 0;
	return 0;
}

/*
 * Drops the spans of this source whose frames have been left: a begin further up the stack, or
 * at the same place of the same frame again. Inlined copies of a function share a frame and
 * differ in their place.
 */
__noinline int drop_left(struct open_spans *s, __u32 source, __u64 sp, __u64 ip)
{
	if (!s)
		return 0;
	for (__u32 i = 0; i < OPEN_SPANS; i++) {
		if (i >= s->depth)
			break;
		if (s->source[bounded(i)] == source + 1 &&
		    (s->span[bounded(i)].sp < sp ||
		     (s->span[bounded(i)].sp == sp && s->span[bounded(i)].ip == ip)))
			abandon(s, i);
	}
	return trim(s);
}

/* Closes the gaps that spans left which ended before those on top of them. */
__noinline int close_gaps(struct open_spans *s)
{
	__u32 kept = 0;

	if (!s)
		return 0;
	for (__u32 i = 0; i < OPEN_SPANS; i++) {
		if (i >= s->depth || !s->source[bounded(i)])
			continue;
		if (kept != i) {
			s->span[bounded(kept)] = s->span[bounded(i)];
			s->source[bounded(kept)] = s->source[bounded(i)];
			s->source[bounded(i)] = 0;
		}
		kept++;
	}
	s->depth = kept;
	return 0;
}

#endif
