/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Programs that say themselves where their spans begin and end (sdk/), in memory that they share with
 * the recorder. Their threads look for a meter and ask by a probe whether somebody listens, as lifecycle.h
 * answers it for the recorder. Here nothing is metered: a thread hears yes, and its end is noted.
 */
#ifndef TAILSCOPE_TIMELINE_SDK_H
#define TAILSCOPE_TIMELINE_SDK_H

#include "timeline_rings.h"
#include <tailscope_abi.h>
#include "meter_map.h"
#include "sdk_slot.h"

/* One of each process, so that none sees another's. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, TL_MAX_SDK);
	__type(key, __u32);
	__array(values, struct meter_map);
} meters SEC(".maps");

/* Where in that each process has its own. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, TL_MAX_SDK);
	__type(key, __u32); /* tgid */
	__type(value, __u32);
} sdk_processes SEC(".maps");

/* Of a thread: one more than the slot that is its meter; 0: it has none. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, __u32);
} claims SEC(".maps");

static __always_inline struct ts_meter *meter_of(__u32 tgid, __u32 slot)
{
	__u32 *index = bpf_map_lookup_elem(&sdk_processes, &tgid);
	void *own = index ? bpf_map_lookup_elem(&meters, index) : NULL;

	return own ? bpf_map_lookup_elem(own, &slot) : NULL;
}

/* The SDK's probe: a thread tells which slot of its process's map it claimed, or, as a negative
 * number, with which errno it failed to. */
SEC("usdt") /* so libbpf loads it for uprobe_multi where the kernel has that */
int on_sdk_thread(struct pt_regs *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u32 tgid = shown_pid(task), *claim;
	struct ts_meter *m;
	long slot;

	if (!is_watched(tgid) || !sdk_slot(ctx, &slot))
		return 0;
	if (slot < 0) {
		lost.refused_errno = -slot;
		lost.refused_process = tgid;
		return 0;
	}
	m = slot < TS_METERS ? meter_of(tgid, slot) : NULL;
	claim = bpf_task_storage_get(&claims, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!m || !claim)
		return 0;
	*claim = slot + 1;
	m->kernel_tid = shown_tid(task);
	return 0;
}

/* Whoever claimed a meter ends: it writes no more, and the meter is free. */
static __always_inline void end_claim(struct task_struct *task)
{
	__u32 *claim = bpf_task_storage_get(&claims, task, 0, 0);
	struct ts_meter *m = claim && *claim ? meter_of(shown_pid(task), *claim - 1) : NULL;

	if (!m)
		return;
	m->kernel_tid = 0;
	m->tid = 0;
}

#endif
