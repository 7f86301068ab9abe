/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the loader has to know at once, in a ring that wakes it up. */
#ifndef TAILSCOPE_PROCESS_EVENTS_H
#define TAILSCOPE_PROCESS_EVENTS_H

#include "meters.h"

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, EVENTS_BYTES);
} events SEC(".maps");

static __always_inline void report(__u32 kind, __u32 pid, __u32 detail)
{
	struct event e = {.kind = kind, .pid = pid, .detail = detail};

	if (bpf_ringbuf_output(&events, &e, sizeof(e), 0))
		__sync_fetch_and_add(&lost.events, 1);
}

/* A function of its own: one row in thousands calls it. Where the ring of events is full, somebody is
 * being woken up already. */
__noinline int wake_for_rows(void)
{
	struct event e = {.kind = EVENT_ROWS};

	bpf_ringbuf_output(&events, &e, sizeof(e), 0);
	return 0;
}

#endif
