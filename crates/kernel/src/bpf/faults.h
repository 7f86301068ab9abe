/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Page faults. A fault may be interrupted and may sleep; its own time is the wall time less
 * what the meter's causes gained meanwhile, and the way into the kernel and back. That lies
 * outside of all hooks and was measured before: calibrate.rs.
 *
 * Three mechanisms, of which the loader takes the first that this kernel allows: fentry/fexit and
 * kprobe/kretprobe on handle_mm_fault; else the exceptions' tracepoints to the software event
 * of a minor or major fault, which fires when the fault has been handled.
 */
#include "meters.h"

static __always_inline int fault_begins(void)
{
	struct cpu *cpu = this_cpu();
	struct ts_meter *m;
	struct thread *t;
	__u64 now;

	if (!cpu->map)
		return 0;
	now = bpf_ktime_get_ns(); /* first, and at the end last: a fault is short */
	t = thread_of(bpf_get_current_task_btf());
	m = t ? meter_at(t->map, t->slot) : NULL;
	if (!m || passed_over(m))
		return 0;
	t->fault_mark = total_ns(m);
	t->fault_since = now;
	return 0;
}

static __always_inline int fault_ends(void)
{
	struct cpu *cpu = this_cpu();
	struct ts_meter *m;
	struct thread *t;
	__u64 wall, elsewhere;

	if (!cpu->map)
		return 0;
	t = thread_of(bpf_get_current_task_btf());
	if (!t || !t->fault_since)
		return 0;
	m = meter_at(t->map, t->slot);
	if (!m)
		return 0;
	elsewhere = total_ns(m) - t->fault_mark;
	wall = bpf_ktime_get_ns() - t->fault_since;
	t->fault_since = 0;
	wall = wall > elsewhere ? wall - elsewhere : 0;
	charge(m, TS_FAULT, wall + *(volatile __u64 *)&unseen.fault_ns);
	return 0;
}

/*
 * Memory that the thread has to take back before it gets some: in a cgroup over memory.high, or
 * where memory is short. A wait inside of it is the same cause (cause_of_block).
 */
static __always_inline int reclaim_begins(void)
{
	struct ts_meter *m;
	struct thread *t;

	if (!this_cpu()->map)
		return 0;
	t = thread_of(bpf_get_current_task_btf());
	m = t ? meter_at(t->map, t->slot) : NULL;
	if (!m || passed_over(m))
		return 0;
	t->reclaim_mark = total_ns(m);
	t->reclaim_since = bpf_ktime_get_ns();
	return 0;
}

static __always_inline int reclaim_ends(void)
{
	__u64 wall, elsewhere;
	struct ts_meter *m;
	struct thread *t;

	if (!this_cpu()->map)
		return 0;
	t = thread_of(bpf_get_current_task_btf());
	if (!t || !t->reclaim_since)
		return 0;
	m = meter_at(t->map, t->slot);
	if (!m)
		return 0;
	wall = bpf_ktime_get_ns() - t->reclaim_since;
	elsewhere = total_ns(m) - t->reclaim_mark;
	t->reclaim_since = 0;
	charge(m, TS_RECLAIM, wall > elsewhere ? wall - elsewhere : 0);
	return 0;
}

SEC("tp_btf/mm_vmscan_memcg_reclaim_begin")
int BPF_PROG(on_memcg_reclaim_begin)
{
	return reclaim_begins();
}

SEC("tp_btf/mm_vmscan_memcg_reclaim_end")
int BPF_PROG(on_memcg_reclaim_end)
{
	return reclaim_ends();
}

SEC("tp_btf/mm_vmscan_direct_reclaim_begin")
int BPF_PROG(on_direct_reclaim_begin)
{
	return reclaim_begins();
}

SEC("tp_btf/mm_vmscan_direct_reclaim_end")
int BPF_PROG(on_direct_reclaim_end)
{
	return reclaim_ends();
}

SEC("fentry/handle_mm_fault")
int BPF_PROG(on_fault_fentry)
{
	return fault_begins();
}

SEC("fexit/handle_mm_fault")
int BPF_PROG(on_fault_fexit)
{
	return fault_ends();
}

SEC("kprobe/handle_mm_fault")
int on_fault_kprobe(void *ctx)
{
	return fault_begins();
}

SEC("kretprobe/handle_mm_fault")
int on_fault_kretprobe(void *ctx)
{
	return fault_ends();
}

/* Attached to page_fault_user and page_fault_kernel. */
SEC("raw_tp")
int on_fault_exception(void *ctx)
{
	return fault_begins();
}

/* Attached to PERF_COUNT_SW_PAGE_FAULTS_MIN and _MAJ, one event in each fault, on every CPU. */
SEC("perf_event")
int on_fault_event(void *ctx)
{
	return fault_ends();
}
