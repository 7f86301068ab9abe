/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the timeline's programs and their loader (Rust, generated from here) must agree on. */
#ifndef TAILSCOPE_TIMELINE_H
#define TAILSCOPE_TIMELINE_H

#include <linux/types.h>

#define TL_MAX_CPUS 1024
#define TL_MAX_SDK 1024 /* processes */

/*
 * The remainder of a division by the number of chunks, without a division: the fraction of
 * number / chunks is a product, and the remainder is that fraction times chunks (Lemire, Kaser and
 * Kurz: Faster remainder by direct computation, 2019). Exact for numbers below 2^50.
 */
#define TL_CHUNKS_BITS 7
#define TL_FRACTION_BITS (64 - TL_CHUNKS_BITS)

/* What user space decides before loading. */
struct tl_config {
	/* A CPU's ring is `chunks` chunks of 1 << chunk_shift events each. */
	__u64 chunks;	  /* at most 1 << TL_CHUNKS_BITS, less one */
	__u64 chunk_mask; /* events of a chunk, less one */
	__u64 reciprocal; /* 1 / chunks in units of 1 / 2^TL_FRACTION_BITS, rounded up */
	__u32 chunk_shift;
	__u32 follow_children;
	__u32
	    clients; /* their ends of connections are followed too, where they are on this machine */
};

/* What could not be followed. */
struct tl_lost {
	__u64 processes;       /* a child could not be followed: the table is full */
	__u32 refused_process; /* the latest whose SDK could not reach us, and why */
	__u32 refused_errno;
};

/* A probe of the JVM, as its cookie says it: enum tl_jvm, then bits. */
#define TL_COOKIE_WHAT 0xff
#define TL_COOKIE_END 0x100
/* One more than the number of the argument that is the name; its length is the next argument. */
#define TL_COOKIE_NAME 16

#endif
