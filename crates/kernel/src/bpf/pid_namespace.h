/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The numbers of processes and threads in the recorder's own PID namespace, as /proc shows them
 * there and as users know them. The kernel's task->pid and task->tgid are the numbers in the
 * initial namespace.
 *
 * A struct pid has one number for each namespace from the initial one (level 0) down to the task's
 * own. In the initial namespace the level is a constant 0, and the verifier removes the
 * translation. In others it takes three reads of kernel memory for each number.
 *
 * task_struct.thread_pid, signal_struct.pids: Linux 4.19.
 */
#ifndef TAILSCOPE_PID_NAMESPACE_H
#define TAILSCOPE_PID_NAMESPACE_H

#include "types.h"
#include "pid_namespace_config.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

SEC(".rodata.namespace") const volatile struct pid_namespace_config namespace = {};

struct pid_namespace___numbers {
	struct {
		unsigned int inum;
	} ns;
} CORE;

struct upid___numbers {
	int nr;
	struct pid_namespace___numbers *ns;
} CORE;

struct pid___numbers {
	unsigned int level;
	struct upid___numbers numbers[1]; /* level + 1 of them */
} CORE;

struct signal_struct___numbers {
	struct pid___numbers *pids[2]; /* by enum pid_type: PIDTYPE_PID, PIDTYPE_TGID */
} CORE;

struct task_struct___numbers {
	struct pid___numbers *thread_pid;
	struct signal_struct___numbers *signal;
} CORE;

/* The number in the configured namespace; 0: it does not show this task. */
static __noinline __u32 number_in_namespace(__u64 address)
{
	struct pid___numbers *pid = (void *)address;
	struct upid___numbers number = {};
	__u32 level = namespace.level;

	if (!pid || BPF_CORE_READ(pid, level) < level)
		return 0;
	address += bpf_core_field_offset(struct pid___numbers, numbers);
	address += level * bpf_core_type_size(struct upid___numbers);
	if (bpf_probe_read_kernel(&number, sizeof(number), (void *)address))
		return 0;
	return BPF_CORE_READ(number.ns, ns.inum) == namespace.inum ? number.nr : 0;
}

static __always_inline __u32 or_outside(__u32 shown, __u32 kernel)
{
	return shown || !kernel ? shown : PID_OUTSIDE | kernel;
}

/* The thread's number. */
static __always_inline __u32 shown_tid(struct task_struct *task)
{
	struct task_struct___numbers *t = (void *)task;

	if (!namespace.level)
		return task->pid;
	return or_outside(number_in_namespace((__u64)BPF_CORE_READ(t, thread_pid)), task->pid);
}

/* The process's number. */
static __always_inline __u32 shown_pid(struct task_struct *task)
{
	struct task_struct___numbers *t = (void *)task;

	if (!namespace.level)
		return task->tgid;
	return or_outside(number_in_namespace((__u64)BPF_CORE_READ(t, signal, pids[1])),
			  task->tgid);
}

/* Those of the running task, as bpf_get_current_pid_tgid has them: the process in the upper half. */
static __always_inline __u64 shown_ids(void)
{
	struct task_struct *task;

	if (!namespace.level)
		return bpf_get_current_pid_tgid();
	task = bpf_get_current_task_btf();
	return (__u64)shown_pid(task) << 32 | shown_tid(task);
}

#endif
