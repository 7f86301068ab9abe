/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What keeps the processes of a replica from answering: collections and other VM operations of a
 * JVM, stops, CPU quotas, waits for a CPU, the end. Each is kept in the replica's hazard word
 * (tailscope_hazard.h), and each change is also sent through a ring that wakes its reader.
 *
 * The programs know nothing of meters or of the timeline: all may run at the same time.
 */
#include "types.h"
#include "hazard.h"
#define process hazard_process /* what watched.h keeps of each */
#include "watched.h"
#undef process
#include "pid_namespace.h"
#include "tailscope_hazard.h"
#include <bpf/bpf_tracing.h>
#include <bpf/usdt.bpf.h>

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, HAZARD_SLOTS);
	__type(key, __u32);
	__type(value, struct ts_hazard);
} words SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, HAZARD_RING_BYTES);
} changes SEC(".maps");

enum thread_state {
	UNSEEN,
	SLEEPS,
	WAITS, /* for a CPU: counted in `waiting` */
	RUNS,
};

/* A thread of a watched process. */
struct thread {
	__u32 state; /* changes at once: it may be woken while it is switched in */
	__u32 stop;  /* the process's stop, by its number, that it takes part in; or 0 */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread);
} threads SEC(".maps");

/* Changes that did not fit into the ring. The words have them all the same. */
SEC(".bss.lost") __u64 lost_changes = 0;

static __always_inline struct hazard_process *process_of(struct task_struct *task)
{
	__u32 pid = shown_pid(task);

	if (!may_be_watched(pid))
		return NULL;
	return bpf_map_lookup_elem(&processes, &pid);
}

static __always_inline struct ts_hazard *word_of(const struct hazard_process *p)
{
	__u32 slot = p->slot;

	return bpf_map_lookup_elem(&words, &slot);
}

static __always_inline void tell(__u32 slot, __u32 pid, __u32 kind, bool ends, __u64 at,
				 __u64 since)
{
	struct ts_hazard_change change = {
	    .at = at, .since = since, .slot = slot, .pid = pid, .kind = kind, .ends = ends};

	if (bpf_ringbuf_output(&changes, &change, sizeof(change), 0))
		__sync_fetch_and_add(&lost_changes, 1);
}

/* Threads of a process may stop on several CPUs at a time. The one that changes the mask sends it. */
static __always_inline void begins(struct ts_hazard *w, __u32 slot, __u32 pid, __u32 kind)
{
	__u64 now;

	if (kind >= TS_HAZARD_KINDS || w->mask & 1u << kind)
		return;
	now = bpf_ktime_get_ns();
	w->since[kind] = now;
	if (!(__sync_fetch_and_or(&w->mask, 1u << kind) & 1u << kind))
		tell(slot, pid, kind, false, now, now);
}

static __always_inline void ends(struct ts_hazard *w, __u32 slot, __u32 pid, __u32 kind)
{
	__u64 since;

	if (kind >= TS_HAZARD_KINDS || !(w->mask & 1u << kind))
		return;
	since = w->since[kind];
	if (__sync_fetch_and_and(&w->mask, ~(1u << kind)) & 1u << kind)
		tell(slot, pid, kind, true, bpf_ktime_get_ns(), since);
}

/* --- waits for a CPU, quotas and stops ------------------------------------------------------ */

static __always_inline bool is_throttled(struct task_struct *task)
{
	struct cfs_rq *rq = task->se.cfs_rq;

	return bpf_core_field_exists(rq->throttle_count) && rq->throttle_count > 0;
}

static __always_inline void begins_wait(struct task_struct *task, struct hazard_process *p,
					struct ts_hazard *w)
{
	if (!__sync_fetch_and_add(&p->waiting, 1))
		w->since[TS_HAZARD_RUNQUEUE] = bpf_ktime_get_ns();
	if (is_throttled(task))
		begins(w, p->slot, shown_pid(task), TS_HAZARD_THROTTLED);
}

/* The thread is in this state from now on. False: it did not wait before. */
static __always_inline bool ends_wait(struct thread *t, enum thread_state after,
				      struct hazard_process *p, struct ts_hazard *w)
{
	volatile __u64 *since = &w->since[TS_HAZARD_RUNQUEUE];
	__u64 known;

	if (__sync_lock_test_and_set(&t->state, after) != WAITS)
		return false;
	/* A process that is watched anew, in another slot, begins with none. */
	if (p->waiting)
		__sync_fetch_and_add(&p->waiting, -1);
	/* Since when no thread of the process got a CPU while one waited: from now, or not at all. */
	if (p->waiting)
		*since = bpf_ktime_get_ns();
	/* Others begin and end at the same time. A thread that sees none left writes 0, but not over a
	 * time that was written since it looked: that time is of a wait that has begun. */
	known = *since;
	if (!__sync_fetch_and_add(&p->waiting, 0))
		__sync_val_compare_and_swap(since, known, 0);
	return true;
}

#define STATE_STOPPED 4 /* __TASK_STOPPED */
#define STATE_TRACED 8	/* __TASK_TRACED */

static __always_inline void leaves(struct task_struct *task, bool preempt, unsigned int state)
{
	struct hazard_process *p = process_of(task);
	struct ts_hazard *w = p ? word_of(p) : NULL;
	struct thread *t;
	__u32 stops;

	if (!w)
		return;
	t = bpf_task_storage_get(&threads, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!t)
		return;
	if (preempt || !state) {
		if (__sync_lock_test_and_set(&t->state, WAITS) != WAITS)
			begins_wait(task, p, w);
		return;
	}
	ends_wait(t, SLEEPS, p, w);
	if (!(state & (STATE_STOPPED | STATE_TRACED)) && !BPF_CORE_READ_BITFIELD(task, frozen))
		return;
	/* By a signal, a debugger or the freezer. The number grows before the stop begins, and once for
	 * all threads, so that none ends another stop. */
	stops = *(volatile __u32 *)&p->stops;
	if (!(*(volatile __u32 *)&w->mask & 1u << TS_HAZARD_STOPPED))
		__sync_val_compare_and_swap(&p->stops, stops, stops + 1);
	t->stop = p->stops;
	begins(w, p->slot, shown_pid(task), TS_HAZARD_STOPPED);
}

static __always_inline void enters(struct task_struct *task)
{
	struct hazard_process *p = process_of(task);
	struct ts_hazard *w = p ? word_of(p) : NULL;
	__u64 since, now;
	struct thread *t;

	if (!w)
		return;
	t = bpf_task_storage_get(&threads, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!t)
		return;
	/* The first that runs again ends the stop; one that was slow to leave an earlier stop does not. */
	if (t->stop && t->stop == p->stops)
		ends(w, p->slot, shown_pid(task), TS_HAZARD_STOPPED);
	t->stop = 0;
	if (p->stopped) {
		p->stopped = 0;
		ends(w, p->slot, shown_pid(task), TS_HAZARD_STOPPED);
	}
	since = w->since[TS_HAZARD_RUNQUEUE];
	if (!ends_wait(t, RUNS, p, w))
		return;
	now = bpf_ktime_get_ns();
	if (since && now - since >= TS_HAZARD_WAIT_NS)
		tell(p->slot, shown_pid(task), TS_HAZARD_RUNQUEUE, true, now, since);
	if (w->mask & 1u << TS_HAZARD_THROTTLED && !is_throttled(task))
		ends(w, p->slot, shown_pid(task), TS_HAZARD_THROTTLED);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next,
	     unsigned int prev_state)
{
	leaves(prev, preempt, prev_state);
	enters(next);
	return 0;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(on_waking, struct task_struct *task)
{
	struct hazard_process *p = process_of(task);
	struct ts_hazard *w = p ? word_of(p) : NULL;
	struct thread *t;

	if (!w)
		return 0;
	t = bpf_task_storage_get(&threads, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	/* One that is not yet off its CPU, or is being switched in, is not taken to wait. */
	if (t && __sync_val_compare_and_swap(&t->state, SLEEPS, WAITS) == SLEEPS)
		begins_wait(task, p, w);
	return 0;
}

/* --- the process's life --------------------------------------------------------------------- */

SEC("tp_btf/sched_process_exec")
int BPF_PROG(on_exec, struct task_struct *task)
{
	struct hazard_process *p = process_of(task);
	struct ts_hazard *w = p ? word_of(p) : NULL;

	if (!w)
		return 0;
	ends(w, p->slot, shown_pid(task), TS_HAZARD_COLLECTION);
	ends(w, p->slot, shown_pid(task), TS_HAZARD_SAFEPOINT);
	__sync_fetch_and_add(&w->incarnation, 1);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct *task)
{
	struct hazard_process *p = process_of(task);
	struct ts_hazard *w = p ? word_of(p) : NULL;
	__u32 pid = shown_pid(task), slot;

	if (!w || task->signal->live.counter)
		return 0;
	slot = p->slot;
	if (!unwatch(pid))
		return 0;
	if (__sync_fetch_and_add(&w->processes, -1) == 1) {
		w->since[TS_HAZARD_RUNQUEUE] = 0;
		begins(w, slot, pid, TS_HAZARD_GONE);
	}
	return 0;
}

/* --- Java ----------------------------------------------------------------------------------- */

/* gc__begin and gc__end, of every process that has the library mapped. */
SEC("usdt")
int BPF_USDT(on_collection)
{
	__u64 cookie = bpf_usdt_cookie(ctx);
	struct task_struct *task = bpf_get_current_task_btf();
	struct hazard_process *p = process_of(task);
	struct ts_hazard *w = p ? word_of(p) : NULL;

	if (!w)
		return 0;
	if (cookie & HAZARD_COOKIE_END)
		ends(w, p->slot, shown_pid(task), TS_HAZARD_COLLECTION);
	else
		begins(w, p->slot, shown_pid(task), TS_HAZARD_COLLECTION);
	return 0;
}

/* vmops__begin and vmops__end: the third argument is 0 where all threads are stopped for it. */
SEC("usdt")
int BPF_USDT(on_operation)
{
	__u64 cookie = bpf_usdt_cookie(ctx);
	struct task_struct *task = bpf_get_current_task_btf();
	struct hazard_process *p = process_of(task);
	struct ts_hazard *w = p ? word_of(p) : NULL;
	long mode = 0;

	if (!w)
		return 0;
	if (cookie & HAZARD_COOKIE_END)
		ends(w, p->slot, shown_pid(task), TS_HAZARD_SAFEPOINT);
	else if (!bpf_usdt_arg(ctx, 2, &mode) && !mode)
		begins(w, p->slot, shown_pid(task), TS_HAZARD_SAFEPOINT);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
