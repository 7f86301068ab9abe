/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What programs and their loader (Rust, generated from here) must agree on to watch processes. */
#ifndef TAILSCOPE_WATCHED_TABLE_H
#define TAILSCOPE_WATCHED_TABLE_H

#include <linux/types.h>

#define MAX_PROCESSES 4096
#define WATCHED_BUCKETS 16384 /* a power of two */

/* By the low bits of processes' ids. */
struct watched_table {
	__u32 count
	    [WATCHED_BUCKETS]; /* how many of them are watched: 0 rules out nearly all others */
	/* The one that was last found in the table of processes: most buckets have one, and to look it up
	 * there is a call. It goes with its process. */
	__u32 last[WATCHED_BUCKETS];
};

#endif
