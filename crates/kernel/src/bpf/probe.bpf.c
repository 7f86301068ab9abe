/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Programs that do nothing: whether they can be loaded and attached tells the loader which
 * mechanism for page faults, for probes in programs and for states of sockets this kernel has. */
#include "types.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

SEC("fentry/handle_mm_fault")
int BPF_PROG(probe_fentry)
{
	return 0;
}

SEC("kprobe/handle_mm_fault")
int probe_kprobe(void *ctx)
{
	return 0;
}

SEC("uprobe.multi")
int probe_uprobe_multi(void *ctx)
{
	return 0;
}

SEC("uprobe")
int probe_uprobe(void *ctx)
{
	return 0;
}

SEC("iter/bpf_sk_storage_map")
int probe_socket_iterator(void *ctx)
{
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
