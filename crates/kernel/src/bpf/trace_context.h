/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The `traceparent` header of an HTTP/1 request (W3C Trace Context), where it lies within the first
 * TRACE_WITHIN bytes of a receive. Only its value leaves this program, and nothing else of the
 * headers.
 *
 * The search is that of Horspool ("Practical fast searching in strings", 1980): it looks at one
 * byte in about ten.
 */
#ifndef TAILSCOPE_TRACE_CONTEXT_H
#define TAILSCOPE_TRACE_CONTEXT_H

#include "peek.h"
#include "slice_ring.h"

#define TRACE_WITHIN 2048 /* a power of two */
#define TRACE_MASK (TRACE_WITHIN - 1)
#define TRACE_BLANKS 4 /* blanks before the value: at most this many */

struct headers {
	__u8 bytes[TRACE_WITHIN + SL_TEXT];
	__u64 busy; /* a thread that came out of SSL_read may be preempted while it searches */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct headers);
} trace_headers SEC(".maps");

struct trace_search {
	const struct headers *in;
	__u32 length;
	__u32 at;    /* where the needle's last byte may lie */
	__u32 found; /* where the value begins; 0: not found yet */
};

/* A letter in lower case; other bytes that matter here stay apart. */
static __always_inline __u8 lower(__u8 c)
{
	return c >= 'A' && c <= 'Z' ? c | 0x20 : c;
}

#define TRACE_NEEDLE "\ntraceparent:"
#define TRACE_NEEDLE_BYTES 13

/* How far the needle may move if this byte lies under its end. */
static __always_inline __u32 shift_of(__u8 c)
{
	switch (lower(c)) {
	case 't':
		return 1;
	case 'n':
		return 2;
	case 'e':
		return 3;
	case 'r':
		return 4;
	case 'a':
		return 5;
	case 'p':
		return 6;
	case 'c':
		return 8;
	case '\n':
		return 12;
	default:
		return TRACE_NEEDLE_BYTES;
	}
}

static long look_for_trace(__u32 number, struct trace_search *s)
{
	const char needle[] = TRACE_NEEDLE;
	__u32 at = s->at;
	__u8 last;

	if (at >= s->length)
		return 1;
	last = s->in->bytes[at & TRACE_MASK];
	if (last == ':') {
#pragma unroll
		for (int i = 0; i < TRACE_NEEDLE_BYTES - 1; i++)
			if (lower(s->in->bytes[(at - TRACE_NEEDLE_BYTES + 1 + i) & TRACE_MASK]) !=
			    needle[i])
				goto next;
		s->found = at + 1;
		return 1;
	}
next:
	s->at = at + shift_of(last);
	return 0;
}

/* Looks for the header in what lies at `from`, and writes an entry with its value. `received` is the
 * entry that says that it came in. */
static __noinline int find_trace(const struct sl_entry *received, struct slice_thread *t,
				 const struct ts_meter *m, __u64 from)
{
	struct trace_search s = {.at = TRACE_NEEDLE_BYTES - 1};
	struct sl_entry e = {.kind = SL_TRACE, .extra = SL_TRACE_BYTES};
	struct socket_text value = {};
	struct headers *in;
	__u32 zero = 0, length;

	if (!received || !t || !m || !from)
		return 0;
	in = bpf_map_lookup_elem(&trace_headers, &zero);
	if (!in || __sync_lock_test_and_set(&in->busy, 1))
		return 0;
	length = received->length < TRACE_MASK ? received->length : TRACE_MASK;
	barrier_var(length); /* Linux 6.1 takes a bound only from a mask */
	length &= TRACE_MASK;
	if (bpf_probe_read_user(in->bytes, length, (void *)from))
		goto done;
	s.in = in;
	s.length = length;
	bpf_loop(TRACE_WITHIN, look_for_trace, &s, 0);
	if (!s.found)
		goto done;
	for (int i = 0; i < TRACE_BLANKS && in->bytes[s.found & TRACE_MASK] == ' '; i++)
		s.found++;
	if (s.found + SL_TRACE_BYTES > length)
		goto done;
	bpf_probe_read_kernel(value.bytes, SL_TRACE_BYTES, &in->bytes[s.found & TRACE_MASK]);
	e.at = received->at;
	e.socket = received->socket;
	e.detail = received->detail;
	write_entry(&e, t, m, &value);
done:
	*(volatile __u64 *)&in->busy = 0;
	return 0;
}

#endif
