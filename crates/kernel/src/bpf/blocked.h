/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Blocked: what a thread waits for when it can't go on, and who lets it go on. To blame for a lock,
 * a message or a signal is the waker.
 */
#ifndef TAILSCOPE_BLOCKED_H
#define TAILSCOPE_BLOCKED_H

#include "blame.h"
#include "futex.h"
#include "interpreter.h"
#include "meters.h"

#define TASK_UNINTERRUPTIBLE 2
#define TASK_STOPPED 4
#define TASK_TRACED 8
#define PF_EXITING 0x4
#define TASK_FROZEN 0x8000	       /* by the freezer of cgroup v1; Linux >= 6.1 */
#define JOBCTL_TRAP_FREEZE (1ul << 23) /* by that of cgroup v2 */
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
	/* In vfork(2) a thread counts as frozen too, as far as its cgroup is concerned. */
	if (bpf_core_field_exists(task->frozen) && BPF_CORE_READ_BITFIELD(task, frozen) &&
	    task->jobctl & JOBCTL_TRAP_FREEZE)
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
	case KIND_FUTEX:
	case KIND_LOCK:
		return TS_LOCK;
	case KIND_NETWORK:
	case KIND_POLL:
		return TS_NETWORK;
	case KIND_IO:
		return TS_IO;
	case KIND_FILE:
		return cause_of_file(task, SYSCALL_ARG0(regs));
	default:
		return TS_SLEEP;
	}
}

/* What kind of system call a thread is in; 0: in none that is known. */
static __always_inline __u8 kind_of_call(struct task_struct *task)
{
	struct pt_regs___task *regs = (struct pt_regs___task *)bpf_task_pt_regs(task);
	long nr = SYSCALL_NR(regs);

	return nr >= 0 && nr < SYSCALLS ? config.syscall_kind[nr] : 0;
}

/* Whether it is one for locks. */
static __always_inline bool is_for_locks(__u8 kind)
{
	return (kind & KIND_MASK) == KIND_FUTEX || (kind & KIND_MASK) == KIND_LOCK;
}

/* Whether a thread that waits for a lock does so at a futex. */
static __always_inline bool is_at_futex(const struct thread *t, struct task_struct *task)
{
	return !t->contended && (kind_of_call(task) & KIND_MASK) == KIND_FUTEX;
}

/* Whether it does so at a semaphore, where the wait may have a timeout, as at a futex. The calls for
 * locks of files wake nobody else. */
static __always_inline bool is_at_semaphore(const struct thread *t, struct task_struct *task)
{
	__u8 kind = kind_of_call(task);

	return !t->contended && (kind & KIND_MASK) == KIND_LOCK && kind & KIND_WAKES;
}

/*
 * Who lets this thread go on, which waits for a lock. A timer's interrupt can wake it too: where slices
 * are recorded, `timer` shows that. On a CPU with a watched thread, the shadow stack shows an
 * interrupt. On others nothing does (some kernels do not export their own count), so there a waker
 * counts if it is in a system call for locks, or releases a lock of the kernel, which has no timeouts;
 * and one that ends, for which others wait (pthread_join).
 */
static __always_inline __u16 releaser(const struct thread *t)
{
	struct task_struct *current = bpf_get_current_task_btf();

	if (!current->pid || this_cpu()->timer)
		return WHO_INTERRUPT;
	if (this_cpu()->map)
		return this_cpu()->depth ? WHO_INTERRUPT : number_of_task(current, t->turn.waits);
	if (t->contended || current->flags & PF_EXITING)
		return number_of_thread(current);
	if (!is_for_locks(kind_of_call(current)))
		return WHO_NOBODY;
	return number_of_task(current, t->turn.waits);
}

/*
 * Who lets this thread go on, which waits for a message, a signal, room or a timeout. Packets over the
 * loopback device are handled in their sender's system call, so a thread in a call that can wake is
 * believed: now and then it is one that packets from outside have interrupted there. A thread that
 * makes room is believed where nothing shows an interrupt, by one in a call that waits for room.
 */
static __always_inline __u16 waker(struct task_struct *p, bool data)
{
	struct task_struct *current = bpf_get_current_task_btf();
	__u8 kind = current->pid && !this_cpu()->timer ? kind_of_call(current) : 0;

	if (kind & KIND_WAKES)
		return number_of_thread(current);
	if (kind & KIND_FREES && !data && !this_cpu()->depth &&
	    kind_of_call(p) & (KIND_WAKES | KIND_FREES))
		return number_of_thread(current);
	return data ? WHO_PACKETS : WHO_INTERRUPT;
}

/* Whether it matters who ends a wait of this thread: not where no span can be open. */
static __always_inline bool blames_waker(const struct thread *t, const struct ts_meter *m)
{
	return has_open(m) || config.probes || config.slices || t->map >= FIRST_SDK_MAP;
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

/* The thread waits for a lock. */
static __always_inline void blocks_at_lock(struct task_struct *task, struct thread *t,
					   struct ts_meter *m)
{
	struct pt_regs___task *regs = (struct pt_regs___task *)bpf_task_pt_regs(task);
	__u64 futex = is_at_futex(t, task) ? SYSCALL_ARG0(regs) : 0;

	waits_at(t, futex);
	blocks_for_turn(task, t, m, futex);
}

/* It waits for something else. */
static __always_inline void blocks_elsewhere(struct task_struct *task, struct thread *t,
					     struct ts_meter *m)
{
	waits_at(t, 0);
	if (unlikely(t->turn.first))
		settle_turn(task, t, m);
}

/* Who is to blame for a wait for a lock that the running thread, `who`, ends. If that waited for a lock
 * itself for most of the time, the one who ended its wait. */
static __always_inline __u16 held_most(__u16 who, __u64 since, __u64 until)
{
	struct thread *by = who < WHO_THREAD ? NULL : thread_of(bpf_get_current_task_btf());
	__u64 begin;

	if (!by || by->lock.who < WHO_THREAD || by->lock.until <= since)
		return who;
	begin = by->lock.since < since ? since : by->lock.since;
	return (by->lock.until - begin) * 2 > until - since ? by->lock.who : who;
}

#define FUTEX_PRIVATE_FLAG 128

/* Puts down a wait for a lock, which ends. */
static __always_inline void charge_lock(struct task_struct *p, struct thread *t, struct ts_meter *m,
					__u64 ns)
{
	struct pt_regs___task *regs = (struct pt_regs___task *)bpf_task_pt_regs(p);
	bool at_futex = is_at_futex(t, p), timed = SYSCALL_ARG3(regs) != 0;
	bool is_foreign = bpf_get_current_task_btf()->tgid != p->tgid, by_thread;
	__u16 who;

	/* Of a futex of a process alone, others know nothing: an interrupt has come in between. */
	if (at_futex && is_foreign && SYSCALL_ARG1(regs) & FUTEX_PRIVATE_FLAG)
		who = WHO_INTERRUPT;
	else
		who = releaser(t);
	by_thread = who >= WHO_THREAD || who == WHO_OTHER;
	if (t->turn.waits) {
		charge_turn(p, t, m, m->since_ns + ns, by_thread ? who : 0);
	} else if (at_futex ? slept_at(t, SYSCALL_ARG0(regs), timed, by_thread)
			    : timed && !by_thread && is_at_semaphore(t, p)) {
		t->now.blocked = TS_SLEEP;
		charge_to(m, TS_SLEEP, ns, WHO_INTERRUPT);
	} else {
		who = held_most(who, m->since_ns, m->since_ns + ns);
		t->lock.since = m->since_ns;
		t->lock.until = m->since_ns + ns;
		t->lock.who = who;
		charge_to(m, TS_LOCK, ns, who);
	}
}

/* Puts down the block that this waking ends. */
static __always_inline void charge_block(struct task_struct *p, struct thread *t,
					 struct ts_meter *m, __u64 ns)
{
	struct cpu *cpu = this_cpu();
	bool data = !cpu->timer && cpu->data == cpu->depth + 1;

	cpu->data = 0;
	/* Each by its own: the cause is then a constant. */
	if (m->pending == TS_LOCK)
		charge_lock(p, t, m, ns);
	else if (m->pending == TS_STOPPED)
		charge_to(m, TS_STOPPED, ns, stopper(p, t));
	else if (m->pending == TS_NETWORK && blames_waker(t, m))
		/* Slices show who sent data, so that a look at the waker would only cost time. */
		charge_to(m, TS_NETWORK, ns, data && config.slices ? WHO_PACKETS : waker(p, data));
	else if (m->pending == TS_SLEEP && blames_waker(t, m))
		charge_to(m, TS_SLEEP, ns,
			  cpu->map && cpu->depth && !data ? WHO_INTERRUPT : waker(p, data));
	else
		charge(m, m->pending, ns);
}

static __always_inline bool is_blocked(const struct ts_meter *m)
{
	return (m->pending >= TS_LOCK && m->pending <= TS_SLEEP) || m->pending == TS_STOPPED ||
	       m->pending == TS_RECLAIM;
}

/* Signals that stop are remembered with their sender, until the process goes on. */
#define SIGSTOP 19
#define SIGTTOU 22 /* and what lies between: SIGTSTP, SIGTTIN */

SEC("tp_btf/signal_generate")
int BPF_PROG(on_signal, int signal, void *info, struct task_struct *task)
{
	struct process *process;
	__u32 tgid;

	if (signal < SIGSTOP || signal > SIGTTOU || !may_be_watched(task->tgid))
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
		t->contended = (__u64)lock;
	return 0;
}

SEC("tp_btf/contention_end")
int BPF_PROG(on_contention_end, void *lock, int ret)
{
	struct thread *t;

	if (!this_cpu()->map)
		return 0;
	t = thread_of(bpf_get_current_task_btf());
	/* Not at the end of a spin in between: for the lock inside of that one. */
	if (t && t->contended == (__u64)lock)
		t->contended = 0;
	return 0;
}

#endif
