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
 * To blame for a wait for the CPU is who ran there most of the time (run_history.h); for a lock, a
 * message or a signal it is the waker.
 */
#ifndef TAILSCOPE_SCHED_H
#define TAILSCOPE_SCHED_H

#include "meters.h"
#include "run_history.h"

#define TASK_UNINTERRUPTIBLE 2
#define TASK_STOPPED 4
#define TASK_TRACED 8
#define TASK_FROZEN 0x8000 /* by the freezer of cgroup v1; Linux >= 6.1 */
#define S_IFMT 0170000
#define S_IFSOCK 0140000
#define S_IFREG 0100000
#define S_IFBLK 0060000

/* read(2) and write(2) block on what their descriptor is. */
static __noinline __u32 cause_of_file(struct task_struct *task, __u32 fd)
{
	struct fdtable *fdt = task->files->fdt;
	struct file *file = NULL;
	__u16 mode;

	if (fd >= fdt->max_fds || bpf_probe_read_kernel(&file, sizeof(file), fdt->fd + fd) || !file)
		return TS_SLEEP;
	mode = BPF_CORE_READ(file, f_inode, i_mode) & S_IFMT;
	if (mode == S_IFSOCK)
		return TS_NETWORK;
	return mode == S_IFREG || mode == S_IFBLK ? TS_IO : TS_SLEEP;
}

/* Who keeps the thread from running, if it is stopped: enum stop. */
static __always_inline __u32 stop_of(struct task_struct *task, __u32 state)
{
	if (state & TASK_TRACED)
		return STOP_TRACER;
	if (state & TASK_STOPPED)
		return STOP_SIGNAL;
	if (state & TASK_FROZEN)
		return STOP_FREEZER;
	if (bpf_core_field_exists(task->frozen) && BPF_CORE_READ_BITFIELD(task, frozen))
		return STOP_FREEZER;
	return 0;
}

static __always_inline __u32 cause_of_block(struct task_struct *task, struct thread *t, __u32 state)
{
	struct pt_regs___task *regs;
	long nr;

	t->stop = stop_of(task, state);
	if (t->stop)
		return TS_STOPPED;
	if (t->contended)
		return TS_LOCK;
	if (BPF_CORE_READ_BITFIELD(task, in_iowait))
		return TS_IO;
	if (bpf_core_field_exists(task->in_memstall) && BPF_CORE_READ_BITFIELD(task, in_memstall))
		return TS_RECLAIM;
	regs = (struct pt_regs___task *)bpf_task_pt_regs(task);
	nr = SYSCALL_NR(regs);
	if (nr < 0 || nr >= SYSCALLS) /* from an exception: a page that has to be read */
		return state & TASK_UNINTERRUPTIBLE ? TS_IO : TS_SLEEP;
	switch (config.syscall_kind[nr] & KIND_MASK) {
	case KIND_LOCK:
		return TS_LOCK;
	case KIND_NETWORK:
		return TS_NETWORK;
	case KIND_IO:
		return TS_IO;
	case KIND_FILE:
		return cause_of_file(task, SYSCALL_ARG0(regs));
	default:
		return TS_SLEEP;
	}
}

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

/* From now on the thread waits for a CPU. */
static __always_inline void wait_begins(struct task_struct *task, struct thread *t,
					struct ts_meter *m, __u32 cause, __u64 now)
{
	m->pending = cause;
	m->since_ns = now;
	m->seq++;
	t->cfs_rq = (__u64)task->se.cfs_rq;
	t->throttled = throttled_clock(task);
	t->now.waited = cause;
	t->now.woken = now;
}

/* Softirqs that had the CPU of a thread that waited for it. */
static __noinline void charge_deferred(struct ts_meter *m, __u32 cause, __u64 ns)
{
	/* Each by its own: the cause is then a constant. */
	if (cause == TS_SOFTIRQ_NET)
		charge_to(m, TS_SOFTIRQ_NET, ns, WHO_SOFTIRQ | NET_RX);
	else if (cause == TS_SOFTIRQ_TIMER)
		charge_to(m, TS_SOFTIRQ_TIMER, ns, WHO_SOFTIRQ | TIMER);
	else
		charge_to(m, TS_SOFTIRQ_OTHER, ns, WHO_NOBODY);
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
	} else {
		/* Blocked, and no waking was seen since: it came while the thread was on its way
		 * out, before the switch. So it was runnable all the time. */
		t->now.woken = t->now.out;
		t->now.waited = TS_RUNQUEUE;
	}
	wait -= throttled;
	if (prev) {
		look_back(&behind, next, prev, wait);
		if (behind.deferred)
			charge_deferred(m, behind.softirqs, behind.deferred);
	}
	/* Each by its own, as the verifier of Linux 6.1 forgets that it is one of two. */
	if (m->pending == TS_PREEMPTED)
		charge_to(m, TS_PREEMPTED, wait - behind.deferred, behind.who);
	else
		charge_to(m, TS_RUNQUEUE, wait - behind.deferred, behind.who);
	m->pending = TS_ON_CPU;
	t->now.in = now;
	t->now.throttled = throttled;
	t->now.deferred = behind.deferred;
	t->now.softirqs = behind.softirqs;
	t->last[t->aways++ & (AWAYS - 1)] = t->now;
}

/*
 * Not every switch is told: some kernels keep the threads of a hypervisor's agent out of
 * tracing, and then the switch from such a thread to ours is missing. Its pending time is then
 * what it did not run, by the scheduler's own count.
 */
static __always_inline void settle_unseen(struct task_struct *task, struct thread *t,
					  struct ts_meter *m, __u64 now)
{
	__u64 ran = stint(task);
	__u64 away = now - m->since_ns;

	__sync_fetch_and_add(&lost.switches, 1);
	come_back(t, m, ran < away ? now - ran : m->since_ns, NULL, NULL);
}

/* The meter of the thread that runs here, if it is watched. */
static __always_inline struct ts_meter *current_meter(struct cpu *cpu)
{
	struct task_struct *task;
	struct ts_meter *m;
	struct thread *t;

	if (cpu->map)
		return meter_at(cpu->map, cpu->slot);
	task = bpf_get_current_task_btf();
	if (!is_watched(task->tgid))
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

static __always_inline void leave_cpu(struct task_struct *prev, bool runnable, __u32 state,
				      __u64 now)
{
	struct thread *t = thread_of(prev);
	struct ts_meter *m = t ? meter_at(t->map, t->slot) : NULL;

	if (!m)
		return;
	if (switch_passed_over(m)) {
		m->pending = TS_UNKNOWN;
		return;
	}
	if (m->pending < TS_CAUSES)
		settle_unseen(prev, t, m, now);
	t->now.out = now;
	if (runnable) {
		t->now.blocked = TS_PREEMPTED;
		wait_begins(prev, t, m, TS_PREEMPTED, now);
		return;
	}
	t->now.blocked = m->pending = cause_of_block(prev, t, state);
	t->now.idle = !has_open(m);
	m->since_ns = now;
	m->seq++;
}

static __always_inline void enter_cpu(struct task_struct *next, struct task_struct *prev,
				      struct cpu *cpu, __u64 now)
{
	struct thread *t = thread_of(next);
	struct ts_meter *m = t ? meter_at(t->map, t->slot) : NULL;

	if (!m)
		return;
	runs_here(cpu, t, now);
	if (m->pending < TS_CAUSES)
		come_back(t, m, now, next, prev);
	m->pending = TS_ON_CPU;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next,
	     unsigned int prev_state)
{
	bool leaves = is_watched(prev->tgid), enters = is_watched(next->tgid);
	struct cpu *cpu;
	__u64 now;

	stint_ends(prev);
	if (!leaves && !enters)
		return 0;
	cpu = this_cpu();
	now = bpf_ktime_get_ns();
	cpu->map = 0;
	cpu->depth = 0;
	if (leaves)
		leave_cpu(prev, preempt || !prev_state, prev_state, now);
	if (enters)
		enter_cpu(next, prev, cpu, now);
	return 0;
}

/*
 * Who lets this thread go on, which waits for a lock. Interrupts wake by timeout: on a CPU where a
 * watched thread runs, the stack of levels tells one. Elsewhere nothing does (the kernel's own count
 * is in no table of symbols on some), so there a waker is believed if it is in a system call for
 * locks, or lets a lock of the kernel go, which has no timeouts.
 */
static __always_inline __u16 releaser(const struct thread *t)
{
	struct task_struct *current = bpf_get_current_task_btf();
	struct pt_regs___task *regs;
	long nr;

	if (!current->pid)
		return WHO_INTERRUPT;
	if (this_cpu()->map)
		return this_cpu()->depth ? WHO_INTERRUPT : number_of_thread(current);
	if (t->contended)
		return number_of_thread(current);
	regs = (struct pt_regs___task *)bpf_task_pt_regs(current);
	nr = SYSCALL_NR(regs);
	if (nr < 0 || nr >= SYSCALLS || (config.syscall_kind[nr] & KIND_MASK) != KIND_LOCK)
		return WHO_NOBODY;
	return number_of_thread(current);
}

/*
 * Who lets this thread go on, which waits for a message, a signal or a timeout. Packets over the
 * loopback device are handled in their sender's system call, so a thread in a call that can wake is
 * believed: now and then it is one that packets from outside have interrupted there.
 */
static __always_inline __u16 waker(bool data)
{
	struct task_struct *current = bpf_get_current_task_btf();
	struct pt_regs___task *regs;
	long nr;

	if (current->pid) {
		regs = (struct pt_regs___task *)bpf_task_pt_regs(current);
		nr = SYSCALL_NR(regs);
		if (nr >= 0 && nr < SYSCALLS && config.syscall_kind[nr] & KIND_WAKES)
			return number_of_thread(current);
	}
	return data ? WHO_PACKETS : WHO_INTERRUPT;
}

/* Whether it matters who ends a wait of this thread: not where no span can be open. */
static __always_inline bool blames_waker(const struct thread *t, const struct ts_meter *m)
{
	return has_open(m) || config.probes || t->map >= FIRST_SDK_MAP;
}

/* Who stopped the thread that now goes on. */
static __always_inline __u16 stopper(struct task_struct *p, const struct thread *t)
{
	struct process *process;
	__u32 tgid = p->tgid;

	if (t->stop == STOP_TRACER)
		return number_of_thread(p->parent); /* who traces takes the parent's place */
	if (t->stop == STOP_FREEZER)
		return WHO_FREEZER;
	process = bpf_map_lookup_elem(&processes, &tgid);
	return process ? process->stopper : WHO_NOBODY;
}

/* Puts down the block that this waking ends. */
static __always_inline void charge_block(struct task_struct *p, const struct thread *t,
					 struct ts_meter *m, __u64 ns)
{
	struct cpu *cpu = this_cpu();
	bool data = cpu->data;

	cpu->data = 0;
	/* Each by its own: the cause is then a constant. */
	if (m->pending == TS_LOCK)
		charge_to(m, TS_LOCK, ns, releaser(t));
	else if (m->pending == TS_STOPPED)
		charge_to(m, TS_STOPPED, ns, stopper(p, t));
	else if (m->pending == TS_NETWORK && blames_waker(t, m))
		charge_to(m, TS_NETWORK, ns, waker(data));
	else if (m->pending == TS_SLEEP && blames_waker(t, m))
		charge_to(m, TS_SLEEP, ns, waker(data));
	else
		charge(m, m->pending, ns);
}

static __always_inline bool is_blocked(const struct ts_meter *m)
{
	return (m->pending >= TS_LOCK && m->pending <= TS_SLEEP) || m->pending == TS_STOPPED ||
	       m->pending == TS_RECLAIM;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(on_waking, struct task_struct *p)
{
	struct thread *t;
	struct ts_meter *m;
	__u64 now;

	if (!is_watched(p->tgid))
		return 0;
	t = thread_of(p);
	m = t ? meter_at(t->map, t->slot) : NULL;
	if (!m)
		return 0;
	if (is_blocked(m)) {
		now = bpf_ktime_get_ns();
		charge_block(p, t, m, now - m->since_ns);
		wait_begins(p, t, m, TS_RUNQUEUE, now);
	}
	return 0;
}

/* Signals that stop are remembered with their sender, until the process goes on. */
#define SIGSTOP 19
#define SIGTTOU 22 /* and what lies between: SIGTSTP, SIGTTIN */

SEC("tp_btf/signal_generate")
int BPF_PROG(on_signal, int signal, void *info, struct task_struct *task)
{
	struct process *process;
	__u32 tgid;

	if (signal < SIGSTOP || signal > SIGTTOU || !is_watched(task->tgid))
		return 0;
	tgid = task->tgid;
	process = bpf_map_lookup_elem(&processes, &tgid);
	if (process)
		process->stopper = number_of_thread(bpf_get_current_task_btf());
	return 0;
}

/* In-kernel locks that sleep (mutex, rwsem, …), Linux >= 5.19: without these two the block
 * counts by its system call. Spinning stays with `running`. */
#define LCB_F_SPIN 1

SEC("tp_btf/contention_begin")
int BPF_PROG(on_contention_begin, void *lock, unsigned int flags)
{
	struct thread *t;

	if (!this_cpu()->map || flags & LCB_F_SPIN)
		return 0;
	t = thread_of(bpf_get_current_task_btf());
	if (t)
		t->contended = 1;
	return 0;
}

SEC("tp_btf/contention_end")
int BPF_PROG(on_contention_end, void *lock, int ret)
{
	struct thread *t;

	if (!this_cpu()->map)
		return 0;
	t = thread_of(bpf_get_current_task_btf());
	if (t)
		t->contended = 0;
	return 0;
}

#endif
