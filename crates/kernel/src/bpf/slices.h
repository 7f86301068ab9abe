/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Where slices of a thread begin and end without a socket: it waits, and another thread wakes it.
 * Both programs follow those of sched.h on the same tracepoint, so the meter already knows.
 *
 * A wake-up hands work over if a thread makes it: in a system call, not in an interrupt, and not
 * because data came for a socket.
 */
#ifndef TAILSCOPE_SLICES_H
#define TAILSCOPE_SLICES_H

#include "sched.h"
#include "slice_ring.h"

/* Data has just become ready on this CPU, and nobody was woken since: the depth of interrupts at
 * that moment, plus one. */
struct slice_cpu {
	__u32 data;
	__u32 received; /* receives of servers, and which of PEEK_EVERY is drawn */
	__u32 drawn;
} __attribute__((aligned(64)));

SEC(".bss.slice_cpus") struct slice_cpu slice_cpus[MAX_CPUS] = {};

static __always_inline struct slice_cpu *this_slice_cpu(void)
{
	return &slice_cpus[bpf_get_smp_processor_id() & (MAX_CPUS - 1)];
}

/* A timer that runs out wakes those who wait for it at once: in a sleep, in a call that takes so long
 * at the most, and for a timerfd. The end comes first here, as it is attached first. */
SEC("tp_btf/hrtimer_expire_exit")
int BPF_PROG(on_timer_exit)
{
	this_cpu()->timer = 0;
	return 0;
}

SEC("tp_btf/hrtimer_expire_entry")
int BPF_PROG(on_timer_entry)
{
	this_cpu()->timer = 1;
	return 0;
}

#define NS_PER_US 1000
#define NS_PER_MS 1000000
#define NS_PER_S 1000000000ll
#define LONGEST_S (1 << 30)

/* For how long a thread in such a call waits at the most, in ns; 0: without a limit, or not known. */
static __always_inline __u64 longest_wait(struct pt_regs___task *regs, __u8 kind)
{
	__u64 limit = SYSCALL_ARG3(regs);
	__s64 time[2];

	if (kind & POLL_FIFTH)
		limit = SYSCALL_ARG4(regs);
	else if (kind & POLL_THIRD)
		limit = SYSCALL_ARG2(regs);
	if (!(kind & POLL_POINTS))
		return (__s32)limit > 0 ? (__u64)(__u32)limit * NS_PER_MS : 0;
	if (!limit || bpf_probe_read_user(time, sizeof(time), (void *)limit))
		return 0;
	if (time[0] < 0 || time[0] > LONGEST_S || time[1] < 0 || time[1] >= NS_PER_S)
		return 0;
	if (kind & POLL_FIFTH && kind & POLL_THIRD)
		time[1] *= NS_PER_US;
	return time[0] * NS_PER_S + time[1];
}

/* What says more of a wait than its cause: where a lock lies, whether the thread waits in a call that
 * sends or receives, and for how long at the most. */
static __always_inline void describe_wait(struct task_struct *prev, struct sl_entry *e)
{
	struct pt_regs___task *regs = (struct pt_regs___task *)bpf_task_pt_regs(prev);
	const __u8 receives = KIND_BUFFER | KIND_VECTOR | KIND_MESSAGE;
	long nr = SYSCALL_NR(regs);
	__u8 kind;

	if (nr < 0 || nr >= SYSCALLS)
		return;
	kind = config.syscall_kind[nr];
	if (e->detail == TS_LOCK && (kind & KIND_MASK) == KIND_FUTEX) {
		e->since = SYSCALL_ARG0(regs);
	} else if (e->detail == TS_NETWORK && (kind & KIND_MASK) == KIND_POLL) {
		e->since = longest_wait(regs, kind);
	} else if (e->detail == TS_NETWORK) {
		e->length = kind & KIND_WAKES ? SL_SENDS : kind & receives ? SL_RECEIVES : 0;
	}
}

static __always_inline void slice_blocks(struct task_struct *prev)
{
	struct thread *t = thread_of(prev);
	struct ts_meter *m = t ? meter_at(t->map, t->slot) : NULL;
	struct slice_thread *s = m ? slice_thread_at(t->map, t->slot, m) : NULL;
	struct sl_entry e = {.kind = SL_BLOCK};

	if (!s)
		return;
	if (unlikely(!s->pid))
		s->pid = shown_pid(prev);
	if (s->blocked && asks_again(t))
		return;
	e.at = m->since_ns;
	/* Who waits for a turn in the interpreter is in the midst of something, as on the way to a CPU. */
	e.detail = t->turn.waits ? TS_PREEMPTED : m->pending;
	if (e.detail == TS_LOCK || e.detail == TS_NETWORK)
		describe_wait(prev, &e);
	s->blocked = e.detail + 1;
	s->woken = s->by_timer = 0;
	write_entry(&e, s, m, NULL);
}

static __always_inline void slice_runs(struct task_struct *next)
{
	struct cpu *cpu = this_cpu();
	struct ts_meter *m = cpu->map ? meter_at(cpu->map, cpu->slot) : NULL;
	struct slice_thread *s = m ? slice_thread_at(cpu->map, cpu->slot, m) : NULL;
	struct sl_entry e = {.kind = SL_RUN};
	struct thread *t;

	this_slice_cpu()->data = 0;
	if (!s || !s->blocked)
		return;
	if (s->blocked == TS_PREEMPTED + 1) {
		t = thread_of(next);
		if (t && asks_again(t))
			return;
	}
	if (unlikely(!s->pid))
		s->pid = shown_pid(next);
	e.at = cpu->in;
	e.since = s->woken;
	e.length = s->by_timer;
	e.detail = s->blocked - 1;
	s->blocked = 0;
	write_entry(&e, s, m, NULL);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_slice_switch, bool preempt, struct task_struct *prev, struct task_struct *next,
	     unsigned int prev_state)
{
	/* With PREEMPT_RT, a timer may end only after the thread that it wakes has run. */
	this_cpu()->timer = 0;
	if (may_be_watched(prev->tgid))
		slice_blocks(prev);
	if (may_be_watched(next->tgid))
		slice_runs(next);
	return 0;
}

/* Whether the running thread is in a system call that lets others go on. */
static __always_inline bool calls_to_wake(void)
{
	__u8 kind = kind_of_call(bpf_get_current_task_btf());

	return kind & KIND_WAKES || (kind & KIND_MASK) == KIND_FUTEX;
}

/* The thread that runs here, if it is watched, has woken the one that waited for `cause`. */
static __always_inline void slice_wakes(__u32 tid, __u32 cause, __u64 now)
{
	struct cpu *cpu = this_cpu();
	struct ts_meter *m = cpu->map && !cpu->depth ? meter_at(cpu->map, cpu->slot) : NULL;
	struct slice_thread *s = m ? slice_thread_at(cpu->map, cpu->slot, m) : NULL;
	struct sl_entry e = {.kind = SL_WAKE, .at = now, .length = tid, .detail = cause};

	if (!s || !calls_to_wake())
		return;
	if (unlikely(!s->pid))
		s->pid = shown_pid(bpf_get_current_task_btf());
	write_entry(&e, s, m, NULL);
}

#define PF_IO_WORKER 0x10 /* the kernel's own thread, for io_uring (include/linux/sched.h) */

/* The thread that runs here may have made the new one for its work. That waits for its first CPU. */
SEC("tp_btf/task_newtask")
int BPF_PROG(on_slice_new_thread, struct task_struct *task)
{
	struct cpu *cpu = this_cpu();
	struct task_struct *maker = bpf_get_current_task_btf();
	struct sl_entry e = {.kind = SL_SPAWN};
	struct slice_thread *s;
	struct ts_meter *m;
	struct thread *t;

	if (task->tgid != maker->tgid || task->flags & PF_IO_WORKER || !may_be_watched(task->tgid))
		return 0;
	t = thread_of(task);
	m = t ? meter_at(t->map, t->slot) : NULL;
	s = m ? slice_thread_at(t->map, t->slot, m) : NULL;
	if (s)
		s->blocked = TS_PREEMPTED + 1;
	m = cpu->map ? meter_at(cpu->map, cpu->slot) : NULL;
	s = m ? slice_thread_at(cpu->map, cpu->slot, m) : NULL;
	if (!s)
		return 0;
	if (unlikely(!s->pid))
		s->pid = shown_pid(maker);
	e.at = bpf_ktime_get_ns();
	e.length = shown_tid(task);
	write_entry(&e, s, m, NULL);
	return 0;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(on_slice_waking, struct task_struct *p)
{
	struct slice_cpu *slice_cpu = this_slice_cpu();
	struct slice_thread *s;
	struct ts_meter *m;
	struct thread *t;
	__u32 data = slice_cpu->data, cause;

	if (!may_be_watched(p->tgid))
		return 0;
	slice_cpu->data = 0;
	t = thread_of(p);
	m = t ? meter_at(t->map, t->slot) : NULL;
	s = m ? slice_thread_at(t->map, t->slot, m) : NULL;
	if (!s || !s->blocked || s->woken)
		return 0;
	s->woken = m->since_ns;
	s->by_timer = this_cpu()->timer;
	cause = s->blocked - 1;
	if (data == this_cpu()->depth + 1)
		return 0;
	if (cause == TS_LOCK || cause == TS_SLEEP || cause == TS_NETWORK)
		slice_wakes(s->tid, cause, s->woken);
	return 0;
}

#endif
