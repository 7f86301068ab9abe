/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Who had each CPU lately, so that a thread that comes to run knows what it waited behind: whom
 * to blame, and how much of the wait interrupts and softirqs had (awaited.h), also softirqs that had
 * been left to ksoftirqd. Those are softirqs to the thread as much as those that run on top of it: what
 * is to be done about them is the same, and where they are raised no faster than they are handled, the
 * kernel moves them back.
 *
 * Times are by the CPU's own clock of the scheduler (rq_clock_task), which both threads of a
 * switch have just been brought up to: no clock is read.
 */
#ifndef TAILSCOPE_RUN_HISTORY_H
#define TAILSCOPE_RUN_HISTORY_H

#include "awaited.h"
#include "blame.h"

#define ON_CPU_INTERVALS 4 /* a power of two */
#define PF_KTHREAD 0x00200000
#define KSOFTIRQ 0x71726974666f736bull /* "ksoftirq", as little-endian bytes */
#define NET_RX 3
#define TIMER 1

/* Kinds of softirqs, as causes tell them apart. */
enum softirq_kind { SOFTIRQ_NET, SOFTIRQ_TIMER, SOFTIRQ_OTHER, SOFTIRQ_KINDS };

/* One time that a thread had a CPU. */
struct on_cpu {
	__u64 task;
	__u64 ns;
	__u64 end;
	int pid;
	__u32 softirqs; /* of ksoftirqd: the cause that it stands for; else 0 */
};

struct run_history {
	__u32 count;
	__u32 softirqs[SOFTIRQ_KINDS]; /* that nobody who is watched was under, in this interval */
	struct on_cpu last[ON_CPU_INTERVALS];
} __attribute__((aligned(64)));

SEC(".bss.run_history") struct run_history run_history[MAX_CPUS] = {};

static __always_inline struct run_history *this_run_history(void)
{
	return &run_history[bpf_get_smp_processor_id() & (MAX_CPUS - 1)];
}

/* How long a thread that now leaves its CPU has run there. */
static __always_inline __u64 on_cpu_ns(struct task_struct *task)
{
	return task->se.sum_exec_runtime - task->se.prev_sum_exec_runtime;
}

static __always_inline __u32 kind_of_softirq(unsigned int vector)
{
	switch (vector) { /* include/linux/interrupt.h */
	case 2:		  /* NET_TX */
	case NET_RX:
		return SOFTIRQ_NET;
	case TIMER:
	case 8: /* HRTIMER */
		return SOFTIRQ_TIMER;
	default:
		return SOFTIRQ_OTHER;
	}
}

/* What ksoftirqd's time went to, as far as counts tell: a poll for packets may take hundreds of
 * them, what else is handled between two polls is short. */
static __always_inline __u32 cause_of_most(const struct run_history *l)
{
	__u32 net = l->softirqs[SOFTIRQ_NET], timer = l->softirqs[SOFTIRQ_TIMER];
	__u32 other = l->softirqs[SOFTIRQ_OTHER];

	if (net && 4 * net >= timer + other)
		return TS_SOFTIRQ_NET;
	return timer > other ? TS_SOFTIRQ_TIMER : TS_SOFTIRQ_OTHER;
}

static __always_inline bool is_ksoftirqd(const struct task_struct *task)
{
	return task->flags & PF_KTHREAD && *(__u64 *)&task->comm[0] == KSOFTIRQ;
}

/* A thread leaves this CPU. The idle thread's clock stands still, and nobody waits behind it. */
static __always_inline void on_cpu_ends(struct task_struct *prev)
{
	struct run_history *l = this_run_history();
	struct on_cpu *s;

	if (prev->pid) {
		s = &l->last[l->count++ & (ON_CPU_INTERVALS - 1)];
		s->task = (__u64)prev;
		s->ns = on_cpu_ns(prev);
		s->end = prev->se.exec_start;
		s->pid = prev->pid;
		s->softirqs = is_ksoftirqd(prev) ? cause_of_most(l) : 0;
	}
	l->softirqs[SOFTIRQ_NET] = l->softirqs[SOFTIRQ_TIMER] = l->softirqs[SOFTIRQ_OTHER] = 0;
}

/* The number of who had that interval; it may be gone since, and another be in its place. */
static __noinline __u16 number_of_on_cpu(const struct on_cpu *s)
{
	struct task_struct *task = (struct task_struct *)s->task, *leader;
	__u64 name[4] = {};

	if (BPF_CORE_READ(task, pid) != s->pid)
		return WHO_NOBODY;
	leader = BPF_CORE_READ(task, group_leader);
	if (bpf_core_read(&name[0], COMM_BYTES, &task->comm) ||
	    bpf_core_read(&name[2], COMM_BYTES, &leader->comm))
		return WHO_NOBODY;
	return number_of_name(name[0], name[1], name[2], name[3]);
}

/* What a thread waited behind. */
struct waited {
	struct interruptions by;
	__u16 who; /* had most of the rest */
};

static __always_inline __u16 softirq_of(__u32 cause)
{
	if (cause == TS_SOFTIRQ_NET)
		return WHO_SOFTIRQ | NET_RX;
	return cause == TS_SOFTIRQ_TIMER ? WHO_SOFTIRQ | TIMER : WHO_NOBODY;
}

/*
 * What `next` waited behind, so long until now, when `prev` leaves the CPU to it. Of a wait behind
 * more than ON_CPU_INTERVALS others only the last are known. `found` has the interruptions that were
 * counted; the softirqs of ksoftirqd are among them, but for a wait that began for another CPU.
 */
static __noinline void look_back(struct waited *found, const struct task_struct *next,
				 struct task_struct *prev, __u64 wait)
{
	struct run_history *l = this_run_history();
	__u64 longest = 0, deferred = 0, now = next->se.exec_start;
	const struct on_cpu *most = NULL;
	__u32 softirqs = 0;

	for (int i = 1; i <= ON_CPU_INTERVALS; i++) {
		const struct on_cpu *s = &l->last[(l->count - i) & (ON_CPU_INTERVALS - 1)];
		__u64 ago = now - s->end, had = s->ns;

		if (!s->task || ago >= wait)
			break;
		if (had > wait - ago)
			had = wait - ago;
		if (s->softirqs) {
			deferred += had;
			softirqs = s->softirqs;
		} else if (had > longest) {
			longest = had;
			most = s;
		}
	}
	if (deferred > found->by.ns) {
		found->by.ns = deferred;
		found->by.cause = softirqs;
		found->by.who = softirq_of(softirqs);
	}
	if (found->by.ns > wait)
		found->by.ns = wait;
	if (!most || most->task == (__u64)prev)
		found->who = number_of_thread(prev);
	else
		found->who = number_of_on_cpu(most);
}

#endif
