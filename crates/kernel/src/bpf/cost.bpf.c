/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a hook costs: programs that do nothing, count in a map, or write into a ring, for each way in
 * which an observer attaches; and programs that count how often a hook is hit. For `tailscope cost`. */
#include "types.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#define THREADS 1024
#define SYSCALLS 1024 /* a power of two above every system call's number */
#define RING_BYTES (512 * 1024)
#define COUNTED_TOGETHER 32

/* As scripts count: a number for each thread, kept by CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, THREADS);
	__type(key, __u32);
	__type(value, __u64);
} by_thread SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, RING_BYTES);
} ring SEC(".maps");

struct row {
	__u64 at;
	__u64 thread;
	__u64 words[6];
};

static __always_inline int count_in_map(void)
{
	__u32 tid = (__u32)bpf_get_current_pid_tgid();
	__u64 *n = bpf_map_lookup_elem(&by_thread, &tid), one = 1;

	if (n)
		*n += 1;
	else
		bpf_map_update_elem(&by_thread, &tid, &one, BPF_ANY);
	return 0;
}

/* Without a wake-up: what a reader costs is counted by itself. */
static __always_inline int write_to_ring(void)
{
	struct row *row = bpf_ringbuf_reserve(&ring, sizeof(*row), 0);

	if (!row)
		return 0;
	row->at = bpf_ktime_get_ns();
	row->thread = bpf_get_current_pid_tgid();
	bpf_ringbuf_submit(row, BPF_RB_NO_WAKEUP);
	return 0;
}

#define THREE(section, name)                     \
	SEC(section) int name##_empty(void *ctx) \
	{                                        \
		return 0;                        \
	}                                        \
	SEC(section) int name##_map(void *ctx)   \
	{                                        \
		return count_in_map();           \
	}                                        \
	SEC(section) int name##_ring(void *ctx)  \
	{                                        \
		return write_to_ring();          \
	}

THREE("raw_tp", raw)
THREE("tp", tracepoint)
THREE("uprobe", probe)
THREE("kprobe", kprobe)
THREE("fentry/__set_task_comm", fentry)
THREE("perf_event", profile)

/* Whose hits count: processes, by the numbers of the initial namespace. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, THREADS);
	__type(key, __u32);
	__type(value, __u32);
} counted SEC(".maps");

/* [0]: hits of those processes, [1]: of everybody. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u64);
} hits SEC(".maps");

/* Hits of those processes by the system call's number. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SYSCALLS);
	__type(key, __u32);
	__type(value, __u64);
} calls SEC(".maps");

/* Hits of those processes by the tracepoint's place in the list that is counted together. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTED_TOGETHER);
	__type(key, __u32);
	__type(value, __u64);
} hits_of SEC(".maps");

static __always_inline void add(void *map, __u32 key)
{
	__u64 *n = bpf_map_lookup_elem(map, &key);

	if (n)
		*n += 1;
}

static __always_inline bool count_hit(void)
{
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;

	add(&hits, 1);
	if (!bpf_map_lookup_elem(&counted, &tgid))
		return false;
	add(&hits, 0);
	return true;
}

/* A program for each place: one that is attached several times can't tell by which it runs before
 * Linux 6.10. */
#define COUNT_AT(place)                                \
	SEC("raw_tp") int count_raw_##place(void *ctx) \
	{                                              \
		if (count_hit())                       \
			add(&hits_of, place);          \
		return 0;                              \
	}
#define COUNT_AT_8(a, b, c, d, e, f, g, h) \
	COUNT_AT(a)                        \
	COUNT_AT(b)                        \
	COUNT_AT(c)                        \
	COUNT_AT(d)                        \
	COUNT_AT(e)                        \
	COUNT_AT(f)                        \
	COUNT_AT(g)                        \
	COUNT_AT(h)

COUNT_AT_8(0, 1, 2, 3, 4, 5, 6, 7)
COUNT_AT_8(8, 9, 10, 11, 12, 13, 14, 15)
COUNT_AT_8(16, 17, 18, 19, 20, 21, 22, 23)
COUNT_AT_8(24, 25, 26, 27, 28, 29, 30, 31)

SEC("uprobe") int count_probe(void *ctx)
{
	count_hit();
	return 0;
}

SEC("kprobe") int count_kprobe(void *ctx)
{
	count_hit();
	return 0;
}

/* raw_syscalls:sys_enter has the registers and the number. */
SEC("raw_tp") int count_syscall(struct bpf_raw_tracepoint_args *ctx)
{
	if (count_hit())
		add(&calls, ctx->args[1] & (SYSCALLS - 1));
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
