/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which processes are watched. `struct process` is what a recorder keeps of each. */
#ifndef TAILSCOPE_WATCHED_H
#define TAILSCOPE_WATCHED_H

#include "watched_table.h"
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_PROCESSES);
	__type(key, __u32); /* tgid */
	__type(value, struct process);
} processes SEC(".maps");

SEC(".bss.watched") struct watched_table watched = {};

/* One load, for hooks that every process runs through: a few that are not watched pass. */
static __always_inline bool may_be_watched(__u32 tgid)
{
	return watched.count[tgid & (WATCHED_BUCKETS - 1)];
}

static __always_inline bool is_watched(__u32 tgid)
{
	__u32 bucket = tgid & (WATCHED_BUCKETS - 1);

	if (!watched.count[bucket])
		return false;
	if (watched.last[bucket] == tgid)
		return true;
	if (!bpf_map_lookup_elem(&processes, &tgid))
		return false;
	watched.last[bucket] = tgid;
	return true;
}

/* Watches a process that has just begun; false: no more can be watched. What an earlier one of that
 * number left is written over. */
static __always_inline bool watch(__u32 tgid, const struct process *fresh)
{
	if (bpf_map_update_elem(&processes, &tgid, fresh, BPF_NOEXIST))
		return !bpf_map_update_elem(&processes, &tgid, fresh, BPF_EXIST);
	__sync_fetch_and_add(&watched.count[tgid & (WATCHED_BUCKETS - 1)], 1);
	return true;
}

/* Whether it was watched so far. */
static __always_inline bool unwatch(__u32 tgid)
{
	__u32 bucket = tgid & (WATCHED_BUCKETS - 1);

	if (bpf_map_delete_elem(&processes, &tgid))
		return false;
	if (watched.last[bucket] == tgid)
		watched.last[bucket] = 0;
	__sync_fetch_and_add(&watched.count[bucket], -1);
	return true;
}

#endif
