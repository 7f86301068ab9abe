/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The kernel's types that only the timeline reads, cut down like those of types.h. */
#ifndef TAILSCOPE_TIMELINE_TYPES_H
#define TAILSCOPE_TIMELINE_TYPES_H

#include "types.h"

/* On the wire, so not relocated. */
struct tcp_header {
	__u16 source;
	__u16 dest;
	__u32 seq;
	__u32 ack_seq;
	__u8 offset; /* of the data, in words, in the upper half */
	__u8 bits;
};

struct request {
	unsigned int __data_len;
} CORE;

#endif
