/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Threads that come and go. Storage is only ever made here, in a task's own context or its
 * parent's, never under the run queue's lock. Other hooks only look it up. The storage of open
 * spans is separate: a thread's first span from a probe creates it (open_spans.h).
 */
#include "meters.h"
#include "process_events.h"
#include "open_spans.h"
#include "sdk_slot.h"

#define ETIMEDOUT 110

/* Gives a thread a slot of the maps that are ours. `pending` is where its time goes now. */
static __always_inline void begin_thread(struct task_struct *task, __u32 pending)
{
	struct thread *t;
	struct ts_meter *m;
	__u32 place;

	t = bpf_task_storage_get(&threads, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!t || (!t->map && bpf_map_pop_elem(&free_slots, &place))) {
		__sync_fetch_and_add(&lost.threads, 1);
		return;
	}
	if (t->map)
		return;
	m = meter_at(place >> 16, place & 0xffff);
	if (!m)
		return;
	m->pending = pending;
	none_open(m);
	m->kernel_tid = shown_tid(task);
	t->slot = place & 0xffff;
	t->ran_since = t->now.in = bpf_ktime_get_ns();
	t->map = place >> 16;
	begin_open_spans(task, t->map, t->slot);
}

static __always_inline void end_thread(struct thread *t)
{
	struct ts_meter *m = meter_at(t->map, t->slot);
	__u32 place = t->map << 16 | t->slot;

	if (m) {
		m->kernel_tid = 0;
		m->tid = 0; /* an SDK thread's claim */
	}
	if (t->map < FIRST_SDK_MAP)
		bpf_map_push_elem(&free_slots, &place, 0);
	t->map = 0;
}

/* Read once for each process that is to be watched: takes in the threads that it has. */
SEC("iter/task")
int take_in_threads(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	__u32 tgid;

	if (!task)
		return 0;
	tgid = task->tgid;
	if (is_watched(tgid))
		begin_thread(task, TS_UNKNOWN);
	return 0;
}

/*
 * Read where the recorder's numbers are not the kernel's: writes both of each process that the
 * recorder's namespace shows. The kernel iterates over no others.
 */
SEC("iter/task")
int list_processes(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct process_numbers of;

	if (!task || task->pid != task->tgid)
		return 0;
	of.kernel = task->tgid;
	of.shown = shown_pid(task);
	bpf_seq_write(ctx->meta->seq, &of, sizeof(of));
	return 0;
}

SEC("tp_btf/task_newtask")
int BPF_PROG(on_new_task, struct task_struct *task, unsigned long clone_flags)
{
	struct task_struct *parent = bpf_get_current_task_btf();
	__u32 tgid = task->tgid, from = parent->tgid;
	struct process fresh = {}, *of;

	if (!is_watched(from))
		return 0;
	if (tgid != from) {
		if (!config.follow_children)
			return 0;
		of = bpf_map_lookup_elem(&processes, &from);
		if (of) { /* its memory is a copy */
			fresh.interpreter = of->interpreter;
			fresh.interpreter_end = of->interpreter_end;
			fresh.python = of->python;
		}
		if (!watch(tgid, &fresh)) {
			__sync_fetch_and_add(&lost.processes, 1);
			return 0;
		}
		report_later(EVENT_CHILD, shown_pid(task), shown_pid(parent));
	}
	begin_thread(task, TS_UNKNOWN);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(on_exec, struct task_struct *task, int old_pid, struct linux_binprm *bprm)
{
	__u32 tgid = task->tgid;
	struct process *p;
	struct thread *t;

	p = may_be_watched(tgid) ? bpf_map_lookup_elem(&processes, &tgid) : NULL;
	if (!p) {
		__u32 shown = config.tell_programs ? shown_pid(task) : PID_OUTSIDE;

		if (!(shown & PID_OUTSIDE))
			report(EVENT_PROGRAM, shown, 0);
		return 0;
	}
	t = thread_of(task);
	if (t && t->map >= FIRST_SDK_MAP) { /* its memory is gone, and the map with it */
		end_thread(t);
		begin_thread(task, TS_ON_CPU);
		runs_here(this_cpu(), t, ~0ull);
	}
	p->map = 0;
	p->interpreter = p->interpreter_end = 0;
	p->python.interpreter = 0;
	report_exec(task, bprm->file);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct *task)
{
	struct thread *t = thread_of(task);
	__u32 tgid = task->tgid;

	if (t) {
		this_cpu()->map = 0;
		/* Its process may be watched no more. Then a slot of ours gets free, but a map of the
		 * SDK may be another process's by now. */
		if (t->map < FIRST_SDK_MAP || is_watched(tgid))
			end_thread(t);
		else
			t->map = 0;
	}
	if (!may_be_watched(tgid))
		return 0;
	if (task->signal->live.counter == 0 && unwatch(tgid))
		report_later(EVENT_EXIT, shown_pid(task), 0);
	return 0;
}

/*
 * The SDK's probe: a thread tells which slot of its process's map it claimed (or, as a negative
 * number, with which errno it failed to attach; it gets no turn in time where the machine is far
 * too busy). From here on its meter is there.
 */
SEC("usdt") /* so libbpf loads it for uprobe_multi where the kernel has that */
int on_sdk_thread(struct pt_regs *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u32 tgid = task->tgid;
	struct process *p;
	struct thread *t;
	struct ts_meter *m;
	long slot;

	if (!may_be_watched(tgid) || !sdk_slot(ctx, &slot))
		return 0;
	p = bpf_map_lookup_elem(&processes, &tgid);
	if (!p)
		return 0;
	if (slot < 0) {
		if (slot == -ETIMEDOUT) {
			__sync_fetch_and_add(&lost.threads, 1);
		} else if (!p->refused) {
			p->refused = -slot;
			report(EVENT_REFUSED, shown_pid(task), -slot);
		}
		return 0;
	}
	t = thread_of(task);
	m = meter_at(p->map, slot);
	if (!t || !m || slot >= TS_METERS || p->map < FIRST_SDK_MAP)
		return 0;
	abandon_all(open_spans_at(t->map, t->slot)); /* they began under the meter that it had */
	end_thread(t);
	m->pending = TS_ON_CPU;
	none_open(m);
	m->kernel_tid = shown_tid(task);
	t->slot = slot;
	t->map = p->map;
	runs_here(this_cpu(), t, ~0ull);
	return 0;
}
