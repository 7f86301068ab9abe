/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The channel that says who runs on each CPU, for an observer that reads it with loads. Apart from the
 * recorder's programs, so that observing asks for nothing but this: a store at each switch.
 *
 * tp_btf/sched_switch: every kernel with BTF, from 5.5 on.
 */
#include "types.h"
#include "tailscope_abi.h"
#include "shared.h"
#include "pid_namespace.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

/* A cache line a CPU: the observer of one CPU takes no line that others write. */
struct running {
	__u64 who; /* RUNNING_SEEN | process << 32 | thread; 0: no switch was seen yet */
	__u64 reserved[7];
} __attribute__((aligned(64)));

SEC(".bss.running") struct running running[MAX_CPUS] = {};

SEC("tp_btf/sched_switch")
int BPF_PROG(on_running, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	__u64 process = shown_pid(next), thread = shown_tid(next);

	if (process & PID_OUTSIDE) /* one name for all of them */
		process = thread = PID_OUTSIDE;
	running[bpf_get_smp_processor_id() & (MAX_CPUS - 1)].who =
	    RUNNING_SEEN | process << 32 | thread;
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
