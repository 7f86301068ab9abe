/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The timeline's programs: what the stack does, as events of 32 bytes, into a ring of each CPU.
 *
 * One handler a hook, and none does more than read a few words and write one event. They know
 * nothing of the recorder's meters: both may run at the same time. ../timeline/ switches off what
 * this kernel lacks. All threads, interrupts, ticks, packets and idle CPUs are recorded; of system calls,
 * page faults, receives and sends those of the watched processes.
 */
#include "timeline_packets.h"
#include "timeline_rings.h"
#include "timeline_sdk.h"
#include "timeline_spans.h"
#include <bpf/usdt.bpf.h>

#define PF_KTHREAD 0x00200000 /* include/linux/sched.h */
#define MAX_RT_PRIO 100

/* --- who is watched ----------------------------------------------------------------------- */

static __always_inline void write_name(struct task_struct *task)
{
	__u32 part[4], tid = shown_tid(task), process = shown_pid(task);
	__u64 now = bpf_ktime_get_ns();

	__builtin_memcpy(part, task->comm, sizeof(part));
	write_at(now, TL_NAME_FRONT, 0, 0, tid, process, part[0], part[1]);
	write_at(now, TL_NAME_BACK, 0, 0, tid, process, part[2], part[3]);
}

SEC("tp_btf/task_newtask")
int BPF_PROG(on_new_task, struct task_struct *task, unsigned long clone_flags)
{
	__u32 tgid = shown_pid(task), from = process_here();
	struct process fresh = {bpf_ktime_get_ns()};

	if (tgid == from || !config.follow_children || !is_watched(from))
		return 0;
	if (!watch(tgid, &fresh))
		__sync_fetch_and_add(&lost.processes, 1);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(on_exec, struct task_struct *task)
{
	__u32 tgid = shown_pid(task);
	struct process *process;

	process = may_be_watched(tgid) ? bpf_map_lookup_elem(&processes, &tgid) : NULL;
	if (process)
		process->began = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct *task)
{
	write_name(task);
	end_claim(task);
	if (!task->signal->live.counter)
		unwatch(shown_pid(task));
	return 0;
}

static __always_inline bool sends(long call)
{
#if defined(__TARGET_ARCH_x86)
	return call == 1 || call == 20 || call == 44 || call == 46 || call == 307;
#else /* write, writev, sendto, sendmsg, sendmmsg */
	return call == 64 || call == 66 || call == 206 || call == 211 || call == 269;
#endif
}

/* --- threads ------------------------------------------------------------------------------ */

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next,
	     unsigned int prev_state)
{
	__u8 flags = preempt | (prev->prio < MAX_RT_PRIO) << 1;

	here()->sends = 0;
	/* Preempted while it was about to block, it could go on all the same. */
	write(TL_SWITCH, flags, preempt ? 0 : prev_state, shown_tid(prev), shown_tid(next),
	      shown_pid(next), shown_pid(prev));
	return 0;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(on_waking, struct task_struct *task)
{
	write(TL_WAKING, 0, 0, self(), shown_tid(task), 0, shown_pid(task));
	return 0;
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(on_waking_new, struct task_struct *task)
{
	write(TL_WAKING, 0, 0, self(), shown_tid(task), 0, shown_pid(task));
	return 0;
}

SEC("tp_btf/sched_migrate_task")
int BPF_PROG(on_migrate, struct task_struct *task, int cpu)
{
	write(TL_MIGRATE, 0, 0, self(), shown_tid(task), cpu, 0);
	return 0;
}

SEC("tp_btf/cpu_idle")
int BPF_PROG(on_idle, unsigned int state, unsigned int cpu)
{
	write(TL_IDLE, 0, 0, 0, state, 0, 0);
	return 0;
}

/* --- interrupts --------------------------------------------------------------------------- */

SEC("tp_btf/softirq_entry")
int BPF_PROG(on_softirq_entry, unsigned int vector)
{
	write(TL_SOFTIRQ_IN, 0, vector, self(), 0, 0, 0);
	return 0;
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(on_softirq_exit, unsigned int vector)
{
	write(TL_SOFTIRQ_OUT, 0, vector, self(), 0, 0, 0);
	return 0;
}

/* The loader attaches these to irq_handler_*, and the next two to each vector (x86). */
SEC("raw_tp")
int on_irq_entry(struct bpf_raw_tracepoint_args *ctx)
{
	write(TL_IRQ_IN, 0, 0, self(), ctx->args[0], 0, 0);
	return 0;
}

SEC("raw_tp")
int on_irq_exit(struct bpf_raw_tracepoint_args *ctx)
{
	write(TL_IRQ_OUT, 0, 0, self(), ctx->args[0], 0, 0);
	return 0;
}

SEC("raw_tp")
int on_vector_entry(struct bpf_raw_tracepoint_args *ctx)
{
	write(TL_VECTOR_IN, 0, ctx->args[0], self(), 0, 0, 0);
	return 0;
}

SEC("raw_tp")
int on_vector_exit(struct bpf_raw_tracepoint_args *ctx)
{
	write(TL_VECTOR_OUT, 0, ctx->args[0], self(), 0, 0, 0);
	return 0;
}

/* --- the timer's ticks: where threads spend their time ---------------------------------------- */

/* Attached to local_timer_entry. A CPU that works has a tick each few ms as a rule, recorded or not,
 * and more interrupts where programs' timers expire. So this sampling costs none of its own. */
SEC("raw_tp")
int on_tick(void *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct pt_regs___task *regs = (struct pt_regs___task *)bpf_task_pt_regs(task);
	__u64 ids = ids_here(), ip;

	if (!task->pid || task->flags & PF_KTHREAD)
		return 0;
	ip = USER_IP(regs);
	if (!ip) /* the kernel's worker of a process */
		return 0;
	/* An interrupt of the program itself has no number of a system call. */
	write(TL_TICK, SYSCALL_NR(regs) >= 0, 0, ids, ip, ip >> 32, ids >> 32);
	return 0;
}

/* --- page faults: the recorder's mechanisms (faults.h), by the same names ------------------------ */

static __always_inline int fault(__u8 kind, __u64 address)
{
	if (watched_here())
		write(kind, 0, 0, self(), address, address >> 32, 0);
	return 0;
}

SEC("fentry/handle_mm_fault")
int BPF_PROG(on_fault_fentry, void *vma, unsigned long address)
{
	return fault(TL_FAULT_IN, address);
}

SEC("fexit/handle_mm_fault")
int BPF_PROG(on_fault_fexit)
{
	return fault(TL_FAULT_OUT, 0);
}

SEC("kprobe/handle_mm_fault")
int BPF_KPROBE(on_fault_kprobe, void *vma, unsigned long address)
{
	return fault(TL_FAULT_IN, address);
}

SEC("kretprobe/handle_mm_fault")
int on_fault_kretprobe(void *ctx)
{
	return fault(TL_FAULT_OUT, 0);
}

/* Attached to page_fault_user and page_fault_kernel. */
SEC("raw_tp")
int on_fault_exception(struct bpf_raw_tracepoint_args *ctx)
{
	return fault(TL_FAULT_IN, ctx->args[0]);
}

/* Attached to PERF_COUNT_SW_PAGE_FAULTS_MIN and _MAJ, one event in each fault, on every CPU. */
SEC("perf_event")
int on_fault_event(void *ctx)
{
	return fault(TL_FAULT_OUT, 0);
}

/* --- system calls of the watched ----------------------------------------------------------- */

SEC("tp_btf/sys_enter")
int BPF_PROG(on_syscall_entry, struct pt_regs *registers, long number)
{
	__u64 ids = ids_here(), now;
	__u32 tgid = ids >> 32;
	bool ours = is_watched(tgid);

	if (!ours && !clients[tgid & (WATCHED_BUCKETS - 1)])
		return 0;
	now = bpf_ktime_get_ns();
	if (sends(number)) {
		struct here *h = here();

		h->sends_at = now;
		h->sends = ids;
	}
	if (ours) {
		struct pt_regs___task *r = (void *)registers;

		write_at(now, TL_SYSCALL_IN, 0, number, ids, SYSCALL_ARG0(r), 0, 0);
	}
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(on_syscall_exit, struct pt_regs *registers, long result)
{
	__u64 ids = ids_here();

	here()->sends = 0;
	if (is_watched(ids >> 32)) {
		struct pt_regs___task *r = (void *)registers;

		write(TL_SYSCALL_OUT, 0, SYSCALL_NR(r), ids, result, 0, 0);
	}
	return 0;
}

/* --- disks -------------------------------------------------------------------------------- */

SEC("tp_btf/block_rq_issue")
int BPF_PROG(on_block_issue, struct request *request)
{
	write(TL_BLOCK_ISSUE, 0, 0, self(), name_of(request), request->__data_len, 0);
	return 0;
}

SEC("tp_btf/block_rq_complete")
int BPF_PROG(on_block_done, struct request *request, int error, unsigned int bytes)
{
	write(TL_BLOCK_DONE, 0, 0, self(), name_of(request), bytes, 0);
	return 0;
}

/* --- Java ----------------------------------------------------------------------------------- */

#define JVM_TEXT 24

/* HotSpot's probes, of every process that has the library mapped. A name is no string with a zero
 * at its end, but a place and a length. */
SEC("usdt")
int BPF_USDT(on_jvm)
{
	__u64 cookie = bpf_usdt_cookie(ctx), now = bpf_ktime_get_ns();
	__u8 kind = cookie & TL_COOKIE_END ? TL_JVM_OUT : TL_JVM_IN;
	__u32 which = (cookie >> TL_COOKIE_NAME) & 15, word[8] = {};
	long at = 0, length = 0;

	if (!watched_here())
		return 0;
	if (which && !bpf_usdt_arg(ctx, which - 1, &at) && !bpf_usdt_arg(ctx, which, &length)) {
		__u64 bytes = (__u32)length < JVM_TEXT ? (__u32)length : JVM_TEXT;

		/* The bound as a mask: verifiers lose one that a comparison of halves gave. */
		barrier_var(bytes);
		bpf_probe_read_user(word, bytes & 31, (void *)at);
	}
	write_at(now, kind, !!word[3], cookie & TL_COOKIE_WHAT, self(), word[0], word[1], word[2]);
	if (word[3])
		write_at(now, TL_TEXT, 0, 0, self(), word[3], word[4], word[5]);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
