/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Who ran instead, and who held the lock: threads by name, each name with a number that fits into
 * an episode. A name rather than a thread, so that ten thousand short-lived compilers are one.
 *
 * The table is plain memory, searched without a helper call: a switch must stay cheap. A name may
 * stand in few places, one after the other; where those are taken, it goes without, and that is
 * counted. Nothing is ever removed. The table has 1,024 places, of which 8 can hold a certain name.
 * The recorder resolves each number once (../blame.rs); the ledger holds the name.
 */
#ifndef TAILSCOPE_BLAME_H
#define TAILSCOPE_BLAME_H

#include "meters.h"

SEC(".bss.blamed") struct blamed blamed[MAX_BLAMED] = {};

/* The number of a name, in words: the thread's and its process's. */
__noinline int number_of_name(__u64 a, __u64 b, __u64 c, __u64 d)
{
	__u64 mixed = (a ^ b * 0x9e3779b97f4a7c15 ^ c * 0xc2b2ae3d27d4eb4f) + d;
	__u32 first = mixed * 0x9e3779b97f4a7c15 >> 40;

	for (__u32 i = 0; i < BLAMED_PROBES; i++) {
		__u32 place = (first + i) & (MAX_BLAMED - 1);
		struct blamed *known = &blamed[place];
		__u64 *comm = (__u64 *)known->comm, *process = (__u64 *)known->process;
		__u32 state = *(volatile __u32 *)&known->state;

		if (state == BLAMED_FREE &&
		    __sync_val_compare_and_swap(&known->state, BLAMED_FREE, BLAMED_BUSY) ==
			BLAMED_FREE) {
			comm[0] = a;
			comm[1] = b;
			process[0] = c;
			process[1] = d;
			__sync_lock_test_and_set(&known->state, BLAMED_READY); /* and a barrier */
			return WHO_THREAD + place;
		}
		if (state == BLAMED_READY && comm[0] == a && comm[1] == b && process[0] == c &&
		    process[1] == d)
			return WHO_THREAD + place;
	}
	__sync_fetch_and_add(&lost.blamed, 1);
	return WHO_OTHER;
}

/* `how` is 0 or BLAMED_HAD_TURN. */
static __always_inline __u16 number_of_task(struct task_struct *task, __u64 how)
{
	struct task_struct *leader = task->group_leader;

	if (!task->pid)
		return WHO_IDLE;
	return number_of_name(*(__u64 *)&task->comm[0], *(__u64 *)&task->comm[8],
			      *(__u64 *)&leader->comm[0], *(__u64 *)&leader->comm[8] | how << 56);
}

static __always_inline __u16 number_of_thread(struct task_struct *task)
{
	return number_of_task(task, 0);
}

#endif
