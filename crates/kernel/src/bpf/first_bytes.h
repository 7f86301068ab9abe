/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the source of spans `request` reads of a receive: the first bytes, for a name, and how many
 * requests came together.
 */
#ifndef TAILSCOPE_FIRST_BYTES_H
#define TAILSCOPE_FIRST_BYTES_H

#include <tailscope_slice.h>
#include "peek.h"

struct socket_text {
	__u8 bytes[SL_TEXT];
};

/* The first of the `length` bytes at this address of the program. Returns how many were read. */
static __noinline int copy_text(struct socket_text *text, __u64 at, __u32 length)
{
	if (!text || !at || !length)
		return 0;
	if (length >= SL_TEXT)
		return bpf_probe_read_user(text->bytes, SL_TEXT, (void *)at) ? 0 : SL_TEXT;
	barrier_var(length); /* Linux 6.1 takes a bound only from a mask */
	length &= SL_TEXT - 1;
	if (bpf_probe_read_user(text->bytes, length, (void *)at))
		return 0;
	return length;
}

/* The first bytes of what this thread has just received. Returns how many. */
static __always_inline int first_bytes(struct socket_text *text, __u32 length)
{
	return copy_text(text, received_at(), length);
}

/* The same where nobody wants names: only those that say that the connection can't be followed. */
static __always_inline int protocol_bytes(struct socket_text *text, __u32 length)
{
	__u32 first;

	if (first_bytes(text, length < SL_PROTOCOL_BYTES ? length : SL_PROTOCOL_BYTES) <
	    SL_PROTOCOL_BYTES)
		return 0;
	first = *(__u32 *)text->bytes;
	return protocol_of(first) == PROTOCOL_OTHER ? 0 : SL_PROTOCOL_BYTES;
}

/*
 * Counts requests that came together with another, at one receive in PEEK_EVERY, drawn at random: a
 * server's receives come in patterns. `fresh`: the first of them begins a row. Returns what one of
 * them takes, in bytes; 0: not known.
 */
static __noinline int count_pipelined(__u32 length, bool fresh)
{
	struct peeked *p;
	__u32 zero = 0, more, read, first, one;

	p = bpf_map_lookup_elem(&peeked, &zero);
	read = p ? copy_received(p, length) : 0;
	if (!p || !read)
		return 0;
	more = more_requests(p, read);
	one = read / (more + 1);
	first = four(p, 0);
	if (more && length > read) /* the rest is like it */
		more = (__u64)more * length / read;
	if (!fresh && (is_http(first) || is_memcached(first) || (first & 0xff) == '*'))
		more++;
	if (more)
		__sync_fetch_and_add(&uncovered.pipelined, more * PEEK_EVERY);
	return one;
}

#endif
