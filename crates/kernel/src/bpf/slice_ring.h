/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The entries of the source of spans `request` (tailscope_slice.h): one ring for each CPU, in
 * memory that the recorder maps. Programs write them in a task's context, and few can be preempted, so a
 * ring has one producer. If one comes in between all the same, it finds `busy` set and counts a loss.
 *
 * What an entry knows of its thread lies beside the thread's meter, by the same slot: programs in
 * the scheduler can make no storage of a task's.
 */
#ifndef TAILSCOPE_SLICE_RING_H
#define TAILSCOPE_SLICE_RING_H

#include <tailscope_slice.h>
#include "first_bytes.h"
#include "requests.h"
#include "rings.h"

/* The largest entry fits where a row does. */
_Static_assert(SL_ENTRY_MAX <= TS_KERNEL_ROW_MAX, "both are read from rings of the same kind");
_Static_assert(TS_CAUSES == 14,
	       "SL_ENTRY_MAX has room for 14, and write_entry takes them in pairs");

struct rings slice_rings SEC(".maps");

/* Where the bytes of a call are, and how far they have been looked at for frames (frames.h). */
struct walk {
	__u64 given;  /* they lie here, whatever the system call says; 0: they do not */
	__u64 vector; /* struct iovec of the next piece, */
	__u64 pieces; /* and the number of those left */
	__u64 at;     /* the rest of this piece; 0: it can't be read */
	__u64 piece;
	__u64 rest;  /* of the whole */
	__u64 now;   /* what the entries have in common: */
	__u64 since; /* as in struct sl_entry, of the whole call, */
	__u64 ready; /* and of this frame */
	__u64 socket;
	__u32 last; /* the stream that was reported last */
	__u8 kind;  /* 0: nothing is reported */
	__u8 role;
	__u8 detail; /* enum sl_frame */
	__u8 broken;
};

#define ARRIVALS 8	/* a power of two */
#define ARRIVAL_NS 3000 /* of data that arrives together */

/* One direction of a connection of HTTP/2. */
struct frames {
	__u32 left;	/* of the payload of the frame that goes on */
	__u32 stream;	/* whose data that is; 0: it is something else */
	__u32 block;	/* of headers, which are still to be reported */
	__u8 before;	/* the number of bytes before those */
	__u8 padded;	/* and the first says how many of the last are none */
	__u8 cut;	/* the headers go on behind `block` */
	__u8 part[16];	/* the frame's header that goes on, */
	__u8 have;	/* and how much of it has come */
	__u8 followed;	/* it is known where frames begin */
	__u8 looked;	/* how often in vain */
	__u8 seen;	/* headers of frames so far; wraps */
	__u8 has_begun; /* a frame of headers was among those that were looked at */
	__u8 lost;	/* the latest entry found no room */
	__u32 told;	/* pieces of headers so far */
	__u32 end;	/* up to where data has been received, and likewise: */
	__u32 arrivals; /* what came in last, in turn: */
	__u32 until[ARRIVALS];
	__u64 arrived[ARRIVALS]; /* when; 0: nothing yet */
};

#define NO_SERVERS (~0ULL) /* a socket on which no requests come in */

/* A thread as the entries so far have left it. */
struct slice_thread {
	__u32 tid; /* whose: a slot is used again */
	__u32 pid;
	__u32 number;	/* entries so far */
	__u32 blocked;	/* the cause for which it waits, plus one; 0: it does not */
	__u64 woken;	/* when that wait ended; 0: it goes on */
	__u32 by_timer; /* and a timer has ended it */
	__u32 shares;	/* of the entry that is written now */
	__u32 causes;
	__u64 received;	 /* the socket whose latest receive nobody was seen to decrypt; 0: none */
	__u64 ssl;	 /* in SSL_read or SSL_write: its object, */
	__u64 sent_on;	 /* and the socket on which the thread has sent since its begin */
	__u64 sent_held; /* whether TCP kept back the end of that: enum ts_held */
	__u64 received_before; /* as `received`, when the call began */
	__u64
	    plain; /* where SSL_read puts what it decrypts, while it runs, or SSL_write finds it */
	__u64 plain_length; /* and where its length; 0: it returns that */
	struct walk walk;
	struct socket_text text; /* of a frame: the stack has no room for it */
	struct reading seen;	 /* its meter at the latest entry */
};

/* By the slot of the recorder's own meters. The loader makes it small where nobody asks. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, OWN_SLOTS);
	__type(key, __u32);
	__type(value, struct slice_thread);
} slice_threads SEC(".maps");

/* A thread's, whose meter `m` is; NULL: the meter is an SDK's. */
static __always_inline struct slice_thread *slice_thread_at(__u32 map, __u32 slot,
							    const struct ts_meter *m)
{
	__u32 at = (map - FIRST_OWN_MAP) * TS_METERS + slot;
	struct slice_thread *s;

	if (map < FIRST_OWN_MAP || map >= FIRST_SDK_MAP)
		return NULL;
	s = bpf_map_lookup_elem(&slice_threads, &at);
	if (s && unlikely(s->tid != m->kernel_tid)) {
		s->tid = m->kernel_tid;
		s->pid = 0;
		s->number = 0;
		s->blocked = 0;
		s->woken = s->by_timer = 0;
		s->received = s->plain = s->walk.given = 0;
		read_meter(&s->seen, m);
	}
	return s;
}

static __always_inline __u32 shares_so_far(const struct slice_thread *s)
{
	return *(const volatile __u32 *)&s->shares & CAUSES_MASK;
}

/*
 * Appends the share of a cause, if it had any since the entry before.
 *
 * The shares are counted in a map and not in a variable: what the verifier reads back from there it
 * does not know, so all paths look alike to it. With a variable it follows each set of causes by
 * itself, and Linux 6.1 gives up after a million instructions.
 */
static __always_inline void add_share(struct sl_entry *e, struct slice_thread *s,
				      const struct ts_meter *m, int cause)
{
	__u32 n = m->totals.n[cause] - s->seen.n[cause];
	struct ts_share *share;

	if (!n)
		return;
	share = (struct ts_share *)(e + 1) + shares_so_far(s);
	s->shares++;
	s->causes |= 1u << cause;
	share->ns = m->totals.ns[cause] - s->seen.ns[cause];
	share->n = n;
	share->who = 0;
	share->reserved = 0;
	if (TS_BLAMED_CAUSES & 1u << cause)
		share->who = blamed_in(&m->recent[cause], m->totals.n[cause], n);
	s->seen.ns[cause] = m->totals.ns[cause];
	s->seen.n[cause] = m->totals.n[cause];
}

/* Copies what is to be said of an entry behind its shares. */
static __always_inline void copy_extra(struct sl_entry *e, const struct slice_thread *s,
				       const struct socket_text *extra, __u32 length)
{
	__u64 *to = (__u64 *)((struct ts_share *)(e + 1) + shares_so_far(s));

#pragma unroll
	for (int i = 0; i < SL_TEXT / 8; i++)
		to[i] = ((const __u64 *)extra->bytes)[i];
	e->extra = length;
}

/* Not inlined: its stack is not to add to that of write_entry, which lies deep already. */
static __noinline int fetch_next_entry(struct ts_ring *ring)
{
	if (ring)
		fetch_row(ring, config.names ? 3 : 2);
	return 0;
}

/*
 * Writes an entry that is like `model`, with the shares of its thread. Of `extra`, the first
 * model->extra bytes count; NULL: there is nothing more to say. Returns whether it was lost. It is not
 * static, so the verifier follows it once, and not again for each caller.
 */
__noinline int write_entry(const struct sl_entry *model, struct slice_thread *s,
			   const struct ts_meter *m, const struct socket_text *extra)
{
	__u32 cpu = bpf_get_smp_processor_id();
	const __u64 *pairs, *seen;
	struct ts_ring *ring;
	struct sl_entry *e;
	__u64 head;
	int is_lost = 0;

	if (!model || !s || !m)
		return 0;
	s->number++;
	ring = bpf_map_lookup_elem(&slice_rings, &cpu);
	if (!ring)
		return 0;
	if (__sync_lock_test_and_set(&ring->busy, 1)) {
		__sync_fetch_and_add(&lost.slices, 1);
		return 1;
	}
	e = (struct sl_entry *)next_row(ring, &head);
	if (!e) {
		__sync_fetch_and_add(&lost.slices, 1);
		is_lost = 1;
		goto done;
	}
	*e = *model;
	e->pid = s->pid;
	e->tid = s->tid;
	e->number = s->number;
	e->cpu = cpu;
	s->shares = 0;
	s->causes = 0;
	pairs = (const __u64 *)m->totals.n;
	seen = (const __u64 *)s->seen.n;
#pragma unroll
	for (int i = 0; i < TS_CAUSES / 2; i++) {
		if (likely(pairs[i] == seen[i]))
			continue;
		add_share(e, s, m, 2 * i);
		add_share(e, s, m, 2 * i + 1);
	}
	e->causes = s->causes;
	head += sizeof(*e) + shares_so_far(s) * sizeof(struct ts_share);
	if (extra) {
		copy_extra(e, s, extra, model->extra);
		head += SL_TEXT;
	}
	publish(ring, head);
	fetch_next_entry(ring);
done:
	*(volatile __u64 *)&ring->busy = 0;
	return is_lost;
}

#endif
