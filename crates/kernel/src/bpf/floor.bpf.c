/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The least that we know a span between two probes to take: which span it is, the thread's own
 * place (as in the recorder: its number is kept by CPU), the clock at both ends, and a row in memory
 * that another process reads. No causes, no nesting, no losses. For bench/probe_cost.py, whose
 * program is the only thread on its CPU. */
#include "types.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

struct begun {
	__u64 source;
	__u64 at;
};

#define CPUS 1024 /* a power of two */
#define PLACES 1024

SEC(".bss.places") __u32 places[CPUS] = {};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PLACES);
	__type(key, __u32);
	__type(value, struct begun);
} begun SEC(".maps");

static __always_inline struct begun *begun_here(void)
{
	__u32 place = *(volatile __u32 *)&places[bpf_get_smp_processor_id() & (CPUS - 1)];

	return bpf_map_lookup_elem(&begun, &place);
}

#define ROWS 4096

struct row {
	__u64 source;
	__u64 begin;
	__u64 wall;
	__u64 thread;
};

struct rows {
	__u64 head;
	struct row row[ROWS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct rows);
} rows SEC(".maps");

SEC("uprobe.multi")
int floor_begin(struct pt_regs *ctx)
{
	struct begun *b = begun_here();

	if (!b)
		return 0;
	b->source = bpf_get_attach_cookie(ctx);
	b->at = bpf_ktime_get_ns();
	return 0;
}

SEC("uprobe.multi")
int floor_end(struct pt_regs *ctx)
{
	struct begun *b = begun_here();
	__u64 source = bpf_get_attach_cookie(ctx), now = bpf_ktime_get_ns();
	__u32 zero = 0;
	struct rows *all = bpf_map_lookup_elem(&rows, &zero);
	struct row *row;

	if (!b || !all || b->source != source)
		return 0;
	row = &all->row[all->head & (ROWS - 1)];
	row->source = source;
	row->begin = b->at;
	row->wall = now - b->at;
	row->thread = bpf_get_current_pid_tgid();
	*(volatile __u64 *)&all->head = all->head + 1;
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
