/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the loader has to know of processes, in a ring that wakes it up where it has to act at once. */
#ifndef TAILSCOPE_PROCESS_EVENTS_H
#define TAILSCOPE_PROCESS_EVENTS_H

#include "meters.h"

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, EVENTS_BYTES);
} events SEC(".maps");

/*
 * Wakes the loader up, whatever else is in the ring: without a flag the kernel does so only where the
 * entries before were read, and those of `report_later` may not be.
 */
static __always_inline void report_now(struct event *e)
{
	if (bpf_ringbuf_output(&events, e, sizeof(*e), BPF_RB_FORCE_WAKEUP))
		__sync_fetch_and_add(&lost.events, 1);
}

static __always_inline void report(__u32 kind, __u32 pid, __u32 detail)
{
	struct event e = {.kind = kind, .pid = pid, .detail = detail};

	report_now(&e);
}

/* A watched process runs this file now. The loader need not ask /proc, which would make it a folder for
 * each process that comes and goes. */
static __always_inline void report_exec(struct task_struct *task, struct file *file)
{
	struct event e = {.kind = EVENT_EXEC, .pid = shown_pid(task)};

	e.detail = bpf_get_current_uid_gid();
	e.inode = file->f_inode->i_ino;
	e.device = file->f_inode->i_sb->s_dev;
	e.at = bpf_ktime_get_ns();
	report_now(&e);
}

/*
 * The loader reads it at its next poll, which is soon enough: nobody waits for it. Processes that come
 * and go all the time would wake it up twice as often otherwise. Before the ring is full, it is woken up.
 */
static __always_inline void report_later(__u32 kind, __u32 pid, __u32 detail)
{
	struct event e = {.kind = kind, .pid = pid, .detail = detail};
	__u64 flags = BPF_RB_NO_WAKEUP;

	if (bpf_ringbuf_query(&events, BPF_RB_AVAIL_DATA) > EVENTS_BYTES / 4)
		flags = BPF_RB_FORCE_WAKEUP;
	if (bpf_ringbuf_output(&events, &e, sizeof(e), flags))
		__sync_fetch_and_add(&lost.events, 1);
}

/* A function of its own: one row in thousands calls it. Where the ring of events is full, somebody is
 * being woken up already. */
__noinline int wake_for_rows(void)
{
	struct event e = {.kind = EVENT_ROWS};

	bpf_ringbuf_output(&events, &e, sizeof(e), BPF_RB_FORCE_WAKEUP);
	return 0;
}

#endif
