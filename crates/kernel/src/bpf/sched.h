/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Off the CPU: where a thread's time goes between a switch-out and the next switch-in.
 *
 *   switch-out, still runnable    preempted ............................. switch-in
 *   switch-out, blocked           lock|io|network|sleep ... waking  runqueue ... switch-in
 *
 * `sched_waking` rather than `sched_wakeup`, because the wait for a CPU begins when the waker
 * decides, not when the other CPU has taken the interrupt. Kernels >= 5.18 (prev_state).
 *
 * To blame for a wait for the CPU is who ran there most of the time (run_history.h). What a block
 * is put down to, and to whom, is in blocked.h.
 */
#ifndef TAILSCOPE_SCHED_H
#define TAILSCOPE_SCHED_H

#include "blocked.h"
#include "meters.h"
#include "run_history.h"
#include "stacks.h"

static __always_inline __u64 throttled_clock(struct task_struct *task)
{
	struct cfs_rq *rq = task->se.cfs_rq;

	if (!bpf_core_field_exists(rq->throttled_clock_pelt_time))
		return 0;
	return rq->throttled_clock_pelt_time;
}

/* How far the clock of the run queue in which the thread began to wait has moved since. `task`, the
 * thread where that is known, may have been moved to another CPU's: only then a helper reads it. */
static __always_inline __u64 throttled_since(const struct thread *t, struct task_struct *task)
{
	struct cfs_rq *rq = (struct cfs_rq *)t->cfs_rq;

	if (!bpf_core_field_exists(rq->throttled_clock_pelt_time))
		return 0;
	if (task && t->cfs_rq == (__u64)task->se.cfs_rq)
		return throttled_clock(task) - t->throttled;
	return BPF_CORE_READ(rq, throttled_clock_pelt_time) - t->throttled;
}

/* A span that began when its data was ready looks back on times off the CPU before it was
 * selected, so then no switch is passed over. */
static __always_inline bool switch_passed_over(const struct ts_meter *m)
{
	return !config.from_ready && passed_over(m);
}

/* From now on the thread waits for a CPU, most likely for this one. */
static __always_inline void wait_begins(struct task_struct *task, struct thread *t,
					struct ts_meter *m, __u32 cause, __u64 now, __u32 cpu)
{
	awaited_cpu(cpu)->since = now;
	m->pending = cause;
	m->since_ns = now;
	m->seq++;
	t->cfs_rq = (__u64)task->se.cfs_rq;
	t->throttled = throttled_clock(task);
	t->now.waited = cause;
	t->now.woken = now;
}

/* What had the CPU of a thread that waited for it, all put down to the most of it. */
static __noinline void charge_interruptions(struct ts_meter *m, const struct interruptions *by)
{
	/* Each by its own: the cause is then a constant. */
	if (by->cause == TS_IRQ)
		charge_to(m, TS_IRQ, by->ns, by->who);
	else if (by->cause == TS_SOFTIRQ_NET)
		charge_to(m, TS_SOFTIRQ_NET, by->ns, by->who);
	else if (by->cause == TS_SOFTIRQ_TIMER)
		charge_to(m, TS_SOFTIRQ_TIMER, by->ns, by->who);
	else
		charge_to(m, TS_SOFTIRQ_OTHER, by->ns, by->who);
}

/* Charges what was pending, up to the switch-in at `now`, and remembers the time away. `prev`
 * leaves the CPU to `next`, the thread; both NULL where that is not known. */
static __always_inline void come_back(struct thread *t, struct ts_meter *m, __u64 now,
				      struct task_struct *next, struct task_struct *prev)
{
	struct waited behind = {};
	__u64 wait = now - m->since_ns, throttled = 0;

	if (m->pending == TS_RUNQUEUE || m->pending == TS_PREEMPTED) {
		throttled = throttled_since(t, next);
		if (throttled > wait)
			throttled = wait;
		if (throttled)
			charge(m, TS_THROTTLED, throttled);
	} else if (t->woken_early > t->now.in) {
		/* Blocked, and woken while it was on its way out, before the switch. So it was
		 * runnable all the time. */
		t->now.woken = t->now.out;
		t->now.waited = TS_RUNQUEUE;
	} else {
		/* The waking was not told: the kernel runs no program within itself, and none where
		 * it traces nothing. How long the thread waited for the CPU then is not known. */
		charge(m, m->pending, wait);
		t->now.woken = now;
		t->now.waited = TS_RUNQUEUE;
		m->since_ns = now;
		wait = 0;
	}
	wait -= throttled;
	if (prev) {
		take_interruptions(&behind.by, m->since_ns);
		look_back(&behind, next, prev, wait);
		if (behind.by.ns)
			charge_interruptions(m, &behind.by);
	}
	/* Two calls with a constant cause: the verifier of Linux 6.1 loses the bound of a variable. */
	if (m->pending == TS_PREEMPTED)
		charge_to(m, TS_PREEMPTED, wait - behind.by.ns, behind.who);
	else
		charge_to(m, TS_RUNQUEUE, wait - behind.by.ns, behind.who);
	m->pending = TS_ON_CPU;
	if (t->now.blocked != TS_PREEMPTED)
		t->ran_since = now;
	t->now.in = now;
	t->now.throttled = throttled;
	t->now.interrupted = behind.by.ns;
	t->now.interrupts = behind.by.cause;
	t->last[t->off_cpu_count++ & (OFF_CPU_INTERVALS - 1)] = t->now;
}

/*
 * Not every switch is told: some kernels keep the threads of a hypervisor's agent out of
 * tracing, and then the switch from such a thread to ours is missing. Its pending time is then
 * what it did not run, by the scheduler's own count.
 */
static __noinline void settle_unseen(struct task_struct *task, struct thread *t, struct ts_meter *m,
				     __u64 now)
{
	__u64 ran = on_cpu_ns(task);
	__u64 away = now - m->since_ns;

	__sync_fetch_and_add(&lost.switches, 1);
	t->contended = 0; /* the end of that may have been missed too */
	come_back(t, m, ran < away ? now - ran : m->since_ns, NULL, NULL);
	if (config.stacks)
		send_blocked_stack(task, t, now);
}

/* The meter of the thread that runs here, if it is watched. */
static __always_inline struct ts_meter *current_meter(struct cpu *cpu)
{
	struct task_struct *task;
	struct ts_meter *m;
	struct thread *t;

	if (likely(cpu->map))
		return meter_at(cpu->map, cpu->slot);
	task = bpf_get_current_task_btf();
	if (!may_be_watched(task->tgid))
		return NULL;
	t = thread_of(task);
	m = t ? meter_at(t->map, t->slot) : NULL;
	if (!m)
		return NULL;
	if (m->pending < TS_CAUSES)
		settle_unseen(task, t, m, bpf_ktime_get_ns());
	m->pending = TS_ON_CPU;
	runs_here(cpu, t, ~0ull);
	return m;
}

static __always_inline void leave_cpu(void *ctx, struct task_struct *prev, bool runnable,
				      __u32 state, __u64 now)
{
	struct thread *t = thread_of(prev);
	struct ts_meter *m = t ? meter_at(t->map, t->slot) : NULL;
	__u32 cause;

	if (!m)
		return;
	if (switch_passed_over(m)) {
		m->pending = TS_UNKNOWN;
		return;
	}
	if (m->pending < TS_CAUSES)
		settle_unseen(prev, t, m, now);
	t->now.out = now;
	t->turn.waits = 0;
	if (runnable) {
		t->now.blocked = TS_PREEMPTED;
		wait_begins(prev, t, m, TS_PREEMPTED, now, bpf_get_smp_processor_id());
		return;
	}
	cause = cause_of_block(prev, t, state);
	if (cause == TS_LOCK)
		blocks_at_lock(prev, t, m);
	else
		blocks_elsewhere(prev, t, m);
	t->now.blocked = cause;
	t->now.idle = !has_open(m);
	m->since_ns = now;
	barrier();
	m->pending = cause; /* last: from now on a waking on another CPU ends the block */
	m->seq++;
	if (config.stacks)
		remember_stack(ctx, prev, t, m, now);
}

static __always_inline void enter_cpu(struct task_struct *next, struct task_struct *prev,
				      struct cpu *cpu, __u64 now)
{
	struct thread *t = thread_of(next);
	struct ts_meter *m = t ? meter_at(t->map, t->slot) : NULL;

	if (!m)
		return;
	runs_here(cpu, t, now);
	if (m->pending < TS_CAUSES) {
		come_back(t, m, now, next, prev);
		if (config.stacks)
			send_blocked_stack(next, t, now);
	}
	cpu->turn = t->turn.first;
	m->pending = TS_ON_CPU;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next,
	     unsigned int prev_state)
{
	bool leaves = may_be_watched(prev->tgid), enters = may_be_watched(next->tgid);
	struct cpu *cpu;
	__u64 now;

	on_cpu_ends(prev);
	if (!next->pid)
		nobody_waits_here();
	cpu = this_cpu();
	if (!leaves && !enters) {
		/* The thread that ran here is not watched any more, or one that waited runs elsewhere. */
		if (unlikely(cpu->map || cpu->depth || cpu->data))
			cpu->map = cpu->depth = cpu->data = 0;
		return 0;
	}
	now = bpf_ktime_get_ns();
	cpu->map = cpu->depth = cpu->data = cpu->turn = 0;
	/* First the one whose wait ends: this CPU's `awaited` then is for the one whose wait begins. */
	if (enters)
		enter_cpu(next, prev, cpu, now);
	if (leaves)
		leave_cpu(ctx, prev, preempt || !prev_state, prev_state, now);
	return 0;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(on_waking, struct task_struct *p)
{
	struct thread *t;
	struct ts_meter *m;
	__u64 now;

	if (!may_be_watched(p->tgid))
		return 0;
	t = thread_of(p);
	m = t ? meter_at(t->map, t->slot) : NULL;
	if (!m)
		return 0;
	if (is_blocked(m)) {
		now = bpf_ktime_get_ns();
		charge_block(p, t, m, now - m->since_ns);
		wait_begins(p, t, m, TS_RUNQUEUE, now, p->wake_cpu);
	} else if (m->pending == TS_ON_CPU) {
		t->woken_early = bpf_ktime_get_ns();
	}
	return 0;
}

#endif
