/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A look at what was received: how many requests came together, and whether requests can overlap on
 * the connection. Only at the first bytes of a connection and at one receive in PEEK_EVERY of a
 * thread. Nothing of the bytes is kept.
 *
 * Text protocols only (HTTP/1, Redis, memcached) and PostgreSQL's: a pipelined request of another
 * counts as one with those it came with, and nothing tells.
 */
#ifndef TAILSCOPE_PEEK_H
#define TAILSCOPE_PEEK_H

#include "requests.h"

#define PEEK_EVERY 16	/* a power of two */
#define PEEK_BYTES 1024 /* a power of two */
#define PEEK_MASK (PEEK_BYTES - 1)

struct peeked {
	__u8 bytes[PEEK_BYTES + 8];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct peeked);
} peeked SEC(".maps");

/* Memory of a program: struct iovec. */
struct piece {
	__u64 at;
	__u64 length;
};

/* Where the bytes are that the system call of this thread has received or sent: in one piece, or in
 * as many as lie in a vector. Both 0: not known. */
struct places {
	__u64 at;
	__u64 vector;
	__u64 pieces;
};

static __always_inline void find_places(struct places *p)
{
	struct pt_regs___task *regs =
	    (struct pt_regs___task *)bpf_task_pt_regs(bpf_get_current_task_btf());
	long nr = SYSCALL_NR(regs);
	__u64 at = SYSCALL_ARG1(regs), pieces = SYSCALL_ARG2(regs);
	struct piece vector = {};
	__u8 kind = 0;

	if (nr >= 0 && nr < SYSCALLS)
		kind = config.syscall_kind[nr];
	/* io_uring receives in any call, and the bits of this kind say something else. */
	if ((kind & KIND_MASK) == KIND_POLL)
		kind = 0;
	barrier_var(at); /* the verifier wants each register's load apart from those of the stack */
	barrier_var(pieces);
	p->at = kind & KIND_BUFFER ? at : 0;
	p->vector = p->pieces = 0;
	if (kind & KIND_VECTOR) {
		p->vector = at;
		p->pieces = pieces;
	} else if (kind & KIND_MESSAGE) { /* struct msghdr: a pointer and a length before it */
		bpf_probe_read_user(&vector, sizeof(vector), (void *)(at + 16));
		p->vector = vector.at;
		p->pieces = vector.length;
	}
}

/* Where the system call of this thread has put the first of what it received; 0: not known. */
static __always_inline __u64 received_at(void)
{
	struct places p;
	__u64 at = 0;

	find_places(&p);
	if (p.at || !p.vector)
		return p.at;
	return bpf_probe_read_user(&at, sizeof(at), (void *)p.vector) ? 0 : at;
}

static __always_inline __u32 four(const struct peeked *p, __u32 at)
{
	const __u8 *b = &p->bytes[at & PEEK_MASK];

	return b[0] | b[1] << 8 | b[2] << 16 | (__u32)b[3] << 24;
}

#define FOUR(a, b, c, d) ((__u32)(a) | (b) << 8 | (c) << 16 | (__u32)(d) << 24)

static __always_inline bool is_http(__u32 word)
{
	return word == FOUR('G', 'E', 'T', ' ') || word == FOUR('P', 'O', 'S', 'T') ||
	       word == FOUR('P', 'U', 'T', ' ') || word == FOUR('H', 'E', 'A', 'D') ||
	       word == FOUR('D', 'E', 'L', 'E') || word == FOUR('P', 'A', 'T', 'C') ||
	       word == FOUR('O', 'P', 'T', 'I');
}

static __always_inline bool is_memcached(__u32 word)
{
	__u32 meta = word & 0xffffff;

	return word == FOUR('g', 'e', 't', ' ') || word == FOUR('g', 'e', 't', 's') ||
	       word == FOUR('s', 'e', 't', ' ') || word == FOUR('a', 'd', 'd', ' ') ||
	       word == FOUR('c', 'a', 's', ' ') || word == FOUR('g', 'a', 't', ' ') ||
	       word == FOUR('i', 'n', 'c', 'r') || word == FOUR('d', 'e', 'c', 'r') ||
	       word == FOUR('d', 'e', 'l', 'e') || word == FOUR('t', 'o', 'u', 'c') ||
	       word == FOUR('a', 'p', 'p', 'e') || word == FOUR('p', 'r', 'e', 'p') ||
	       word == FOUR('r', 'e', 'p', 'l') || meta == FOUR('m', 'g', ' ', 0) ||
	       meta == FOUR('m', 's', ' ', 0) || meta == FOUR('m', 'd', ' ', 0);
}

/* What a search through the bytes has found so far. */
struct search {
	const struct peeked *in;
	__u32 length;
	__u32 first; /* four bytes */
	__u32 at;
	__u32 count;
};

/* Whether a request of the same protocol begins at this place, if a line does. */
static long look_at_line(__u32 place, struct search *s)
{
	__u32 at = (place + 4) & PEEK_MASK, word;

	if (place + 4 >= s->length)
		return 1;
	if (s->in->bytes[(at - 1) & PEEK_MASK] != '\n')
		return 0;
	word = four(s->in, at);
	if ((s->first & 0xff) == '*')
		s->count += (word & 0xff) == '*';
	else if (is_http(s->first))
		s->count += is_http(word);
	else
		s->count += is_memcached(word);
	return 0;
}

#define POSTGRES_MESSAGES 64

/* PostgreSQL: a type, and a length with itself. A request is a query or ends with a Sync. */
static long look_at_message(__u32 number, struct search *s)
{
	__u32 at = s->at & PEEK_MASK, size;
	__u8 type;

	if (s->at + 5 > s->length)
		return 1;
	type = s->in->bytes[at];
	size = __builtin_bswap32(four(s->in, at + 1));
	if (type < 'A' || type > 'z' || size < 4 || size > PEEK_BYTES) {
		s->count = 0;
		return 1;
	}
	if (type == 'Q' || type == 'S')
		s->count++;
	s->at += size + 1;
	return 0;
}

/* Requests after the first. */
static __always_inline __u32 more_requests(const struct peeked *p, __u32 length)
{
	struct search s = {.in = p, .length = length, .first = four(p, 0)};

	if (is_http(s.first) || is_memcached(s.first) || (s.first & 0xff) == '*') {
		bpf_loop(PEEK_BYTES - 4, look_at_line, &s, 0);
		return s.count;
	}
	if (!p->bytes[1]) { /* the highest byte of a length */
		bpf_loop(POSTGRES_MESSAGES, look_at_message, &s, 0);
		return s.count ? s.count - 1 : 0;
	}
	return 0;
}

/* By its first four bytes. */
static __always_inline __u8 protocol_of(__u32 first)
{
	if (first == FOUR('P', 'R', 'I', ' '))
		return PROTOCOL_HTTP2;
	/* A handshake's or data's record of any version of TLS. */
	if (((first & 0xff) == 0x16 || (first & 0xff) == 0x17) && (first >> 8 & 0xff) == 3)
		return PROTOCOL_TLS;
	return PROTOCOL_OTHER;
}

/* Copies the beginning of the `length` bytes that this thread has just received; returns how much. */
static __always_inline __u32 copy_received(struct peeked *p, __u32 length)
{
	__u64 at = received_at();
	__u32 read = length < PEEK_MASK ? length : PEEK_MASK;

	if (!at || read < 4)
		return 0;
	*(__u32 *)p->bytes = 0;
	barrier_var(read); /* Linux 6.1 takes a bound only from a mask */
	read &= PEEK_MASK;
	return bpf_probe_read_user(p->bytes, read, (void *)at) ? 0 : read;
}

/*
 * Whether a receive needs no look: what takes at least as much as one request, and less than two, is
 * taken for one. Only a look shows how much one takes: a short receive may be several that are shorter
 * still. Several requests are missed if they are together as long as one of those looked at.
 */
static __always_inline bool is_one_request(__u32 length, __u32 shortest)
{
	return length >= shortest && length < 2 * shortest;
}

/* Remembers what a look has shown of the bytes that one request takes; 0: nothing. */
static __always_inline void note_shortest(__u32 *shortest, __u32 one)
{
	if (one && (!*shortest || one < *shortest))
		*shortest = one;
}

/* Looks at the `length` bytes that this thread has just received. `counts`: for all of PEEK_EVERY. */
static __noinline int peek(struct request *r, __u32 length, bool counts)
{
	struct peeked *p;
	__u32 zero = 0, more, read;

	if (!r)
		return 0;
	p = bpf_map_lookup_elem(&peeked, &zero);
	read = p ? copy_received(p, length) : 0;
	if (!p || !read)
		return 0;
	if (!r->protocol) {
		r->protocol = protocol_of(four(p, 0));
		if (r->protocol == PROTOCOL_HTTP2) {
			forget(r);
			__sync_fetch_and_add(&uncovered.multiplexed, 1);
			return 0;
		}
	}
	if (r->protocol != PROTOCOL_OTHER)
		return 0;
	more = more_requests(p, read);
	note_shortest(&r->shortest, read / (more + 1));
	if (!more || !counts)
		return 0;
	if (length > read) /* the rest is like it */
		more = (__u64)more * length / read;
	__sync_fetch_and_add(&uncovered.pipelined, more * PEEK_EVERY);
	return 0;
}

#endif
