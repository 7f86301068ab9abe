/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * How many PID namespaces are above the loader's own. The kernel does not tell that to processes
 * inside one, so the loader runs this program once, in its own context (BPF_PROG_TEST_RUN of a raw
 * tracepoint's program: Linux 5.10). It is never attached.
 */
#include "pid_namespace.h"

SEC("raw_tp")
int own_level(void *ctx)
{
	struct task_struct___numbers *t = (void *)bpf_get_current_task();

	return BPF_CORE_READ(t, thread_pid, level);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
