/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Where threads are while a span is open: on the CPU at each tick of a clock, off the CPU where they
 * blocked. A sample has the kernel's stack as addresses. Of the user's stack it has registers and
 * bytes, which user space unwinds: most programs have no frame pointers.
 *
 *   on the CPU    each tick of cpu-clock stands for config.stack_period_ns
 *   off the CPU   a wait is taken with probability length / WAIT_NS, at most 1, and stands for the
 *                 larger of both: every estimate of time is unbiased, and short waits cost little
 *
 * A sample also has the code objects of the Python functions on the stack (python_frames.h).
 *
 * Only the thread's own context can read its user stack, so a block copies it at the switch-out,
 * before its length is known, and the switch-in sends the copy; where that is not told, what next
 * finds the thread running does.
 *
 * BPF_PROG_TYPE_PERF_EVENT with bpf_get_stack: Linux 4.18; bpf_task_pt_regs: 5.15.
 */
#ifndef TAILSCOPE_STACKS_H
#define TAILSCOPE_STACKS_H

#include "meters.h"
#include "open_spans.h"
#include "python_frames.h"

#define WAIT_NS 1000000u /* a wait of this length is always taken */
#define STACK_CHUNK 1024 /* divides a page: a chunk is readable as a whole or not at all */
#define PF_KTHREAD 0x00200000
#define PF_USER_WORKER 0x00004010 /* PF_USER_WORKER, PF_IO_WORKER: threads without user code */

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, STACK_RING_BYTES);
} stack_ring SEC(".maps");

/* Where a tick builds its sample. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct stack_sample);
} stack_scratch SEC(".maps");

/* By thread: where it blocked last. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, BLOCKED_STACKS);
	__type(key, __u32);
	__type(value, struct stack_sample);
} blocked_stacks SEC(".maps");

/* How many samples off the CPU each CPU may still send until `until`. */
struct stack_budget {
	__u64 until;
	__u64 left;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct stack_budget);
} stack_budgets SEC(".maps");

#define BUDGET_NS 100000000ull

/* The registers with which the thread entered the kernel, and its stack from there on. */
static __always_inline void copy_user_stack(struct task_struct *task, struct stack_sample *s)
{
	struct pt_regs___task *regs = (struct pt_regs___task *)bpf_task_pt_regs(task);
	__u32 chunks;

	s->ip = USER_IP(regs);
	s->sp = USER_SP(regs);
	s->fp = USER_FP(regs);
	s->lr = USER_LR(regs);
	s->from = s->sp & ~(__u64)(STACK_CHUNK - 1);
	s->chunks = 0;
	if (task->flags & (PF_KTHREAD | PF_USER_WORKER))
		return;
	for (chunks = 0; chunks < STACK_BYTES / STACK_CHUNK; chunks++)
		if (bpf_probe_read_user(s->bytes + chunks * STACK_CHUNK, STACK_CHUNK,
					(void *)(s->from + chunks * STACK_CHUNK)))
			break;
	s->chunks = chunks;
}

/* A uretprobe puts its own address in place of a function's return address. */
static __always_inline void copy_returns(struct task_struct *task, struct stack_sample *s)
{
	struct return_instance *instance;

	__builtin_memset(s->returns, 0, sizeof(s->returns));
	if (!config.probes)
		return;
	instance = BPF_CORE_READ(task, utask, return_instances);
	for (int i = 0; i < STACK_RETURNS && instance; i++) {
		s->returns[i].at = BPF_CORE_READ(instance, stack);
		s->returns[i].to = BPF_CORE_READ(instance, orig_ret_vaddr);
		instance = BPF_CORE_READ(instance, next);
	}
}

static __always_inline void copy_stacks(void *ctx, struct task_struct *task, struct stack_sample *s,
					__u64 now)
{
	long bytes = bpf_get_stack(ctx, s->kernel, sizeof(s->kernel), 0);
	struct process *process;
	__u32 tgid = task->tgid;

	s->kernel_frames = bytes > 0 ? bytes / sizeof(s->kernel[0]) : 0;
	s->at = now;
	s->pid = shown_pid(task);
	s->tid = shown_tid(task);
	copy_returns(task, s);
	copy_user_stack(task, s);
	s->python_frames = s->python_whole = 0;
	process = bpf_map_lookup_elem(&processes, &tgid);
	if (process && process->python.interpreter)
		copy_python_frames(s, &process->python);
}

static __always_inline void send_stack(struct stack_sample *s)
{
	__u32 chunks = s->chunks;
	__u64 length;

	if (chunks > STACK_BYTES / STACK_CHUNK)
		return;
	/* The compiler would join the two by an OR, of which the verifier knows no bound. */
	length = (__u64)chunks * STACK_CHUNK;
	barrier_var(length);
	length += __builtin_offsetof(struct stack_sample, bytes);
	if (bpf_ringbuf_output(&stack_ring, s, length, BPF_RB_NO_WAKEUP))
		__sync_fetch_and_add(&lost.stacks, 1);
}

/* Whether a span may be open on the thread. Spans of the SDK are known to its process alone. */
static __always_inline bool may_have_span(const struct thread *t, const struct ts_meter *m)
{
	const struct open_spans *s;

	if (config.stacks_everywhere || t->map >= FIRST_SDK_MAP || has_open(m))
		return true;
	if (!config.probes)
		return false;
	s = open_spans_at(t->map, t->slot);
	return !s || s->depth;
}

SEC("perf_event")
int on_tick(void *ctx)
{
	struct cpu *cpu = this_cpu();
	struct task_struct *task;
	struct stack_sample *s;
	struct thread *t;
	struct ts_meter *m;
	__u32 zero = 0;

	if (!cpu->map)
		return 0;
	task = bpf_get_current_task_btf();
	t = thread_of(task);
	m = t ? meter_at(t->map, t->slot) : NULL;
	if (!m || passed_over(m) || !may_have_span(t, m))
		return 0;
	s = bpf_map_lookup_elem(&stack_scratch, &zero);
	if (!s)
		return 0;
	s->cause = STACK_ON_CPU;
	s->ns = config.stack_period_ns;
	copy_stacks(ctx, task, s, bpf_ktime_get_ns());
	send_stack(s);
	return 0;
}

/* The thread blocks at `now`, in its own context. */
static __always_inline void remember_stack(void *ctx, struct task_struct *task,
					   const struct thread *t, const struct ts_meter *m,
					   __u64 now)
{
	__u32 zero = 0, tid = task->pid;
	struct stack_sample *s;

	if (!may_have_span(t, m))
		return;
	s = bpf_map_lookup_elem(&blocked_stacks, &tid);
	if (!s) {
		s = bpf_map_lookup_elem(&stack_scratch, &zero);
		if (!s || bpf_map_update_elem(&blocked_stacks, &tid, s, BPF_ANY))
			goto none;
		s = bpf_map_lookup_elem(&blocked_stacks, &tid);
		if (!s)
			goto none;
	}
	copy_stacks(ctx, task, s, now);
	return;
none:
	__sync_fetch_and_add(&lost.stacks, 1);
}

static __always_inline bool within_stack_budget(__u64 now)
{
	__u32 zero = 0;
	struct stack_budget *b = bpf_map_lookup_elem(&stack_budgets, &zero);

	if (!b)
		return false;
	if (now >= b->until) {
		b->until = now + BUDGET_NS;
		b->left = BLOCKED_STACKS_PER_SECOND / (1000000000 / BUDGET_NS);
	}
	/* A switch can come between: below 0 it is as empty. */
	if ((__s64)b->left <= 0)
		return false;
	b->left--;
	return true;
}

/* The thread, which blocked for `cause`, has a CPU again. */
static __always_inline void send_blocked_stack(struct task_struct *task, const struct thread *t,
					       __u64 now)
{
	__u64 ns = t->now.woken - t->now.out;
	__u32 tid = task->pid;
	struct stack_sample *s;

	if (t->now.woken <= t->now.out || t->now.blocked >= TS_CAUSES)
		return;
	if (ns < WAIT_NS && bpf_get_prandom_u32() % WAIT_NS >= ns)
		return;
	s = bpf_map_lookup_elem(&blocked_stacks, &tid);
	if (!s || s->at != t->now.out) /* no span was open, or too many threads block */
		return;
	if (!within_stack_budget(now)) {
		__sync_fetch_and_add(&lost.stacks, 1);
		return;
	}
	s->cause = t->now.blocked;
	s->ns = ns < WAIT_NS ? WAIT_NS : ns;
	send_stack(s);
}

#endif
