/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The hazard word of a replica: what keeps its processes from answering right now. One cache line,
 * in memory that the kernel's programs write and a proxy reads, so that asking is a few loads.
 *
 * Each kind has one writer at a time. A writer sets `since` first and the bit in `mask` after it.
 */
#ifndef TAILSCOPE_HAZARD_H
#define TAILSCOPE_HAZARD_H

#include <linux/types.h>

/* The number of a kind is its bit in `mask`, and its place in `since`. */
enum ts_hazard_kind {
	TS_HAZARD_COLLECTION = 0, /* the JVM collects, with all threads stopped */
	TS_HAZARD_SAFEPOINT = 1,  /* another VM operation, with all threads stopped */
	TS_HAZARD_STOPPED = 2,	  /* by a signal, a debugger or the cgroup freezer */
	TS_HAZARD_GONE = 3,	  /* no process of the replica is left */
	TS_HAZARD_THROTTLED = 4,  /* the CPU quota of its cgroup is used up */
	/* A thread waits for a CPU, and since then none of its process got one. No bit: the reader
	 * compares the time. */
	TS_HAZARD_RUNQUEUE = 5,
	TS_HAZARD_KINDS = 6,
};

/* Times are CLOCK_MONOTONIC in ns. */
struct ts_hazard {
	__u32 mask;
	__u32
	    incarnation; /* grows when the replica's first process is found, or executes a program */
	__u32 processes; /* that are watched for it */
	__u32 spare;
	__u64 since[TS_HAZARD_KINDS];
};

/* How long a thread waits for a CPU before that is a hazard: beyond the slices of a busy CPU. */
#define TS_HAZARD_WAIT_NS 4000000ull

/* A hazard began or ended, for whoever waits for it. */
struct ts_hazard_change {
	__u64 at;
	__u64 since; /* where it ends: when it began */
	__u32 slot;
	__u32 pid;
	__u8 kind;
	__u8 ends;
	__u8 pad[6];
};

#endif
