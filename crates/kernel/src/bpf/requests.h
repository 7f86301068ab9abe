/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The state of the request that is open on a socket. It lives with its socket, so a thread may have
 * any number open, and it is gone when the socket is.
 *
 *   handshake ends ... accept ... data is ready ... receive ... send ... send | receive, close
 *                                                   `begin`     `row`  `row`   the row is written
 *
 * Only sockets on which this process is the server have requests: connections that it opened itself
 * are passed over.
 *
 * A receive creates the state, and so does the connect of a socket that already has a port. Where a
 * watched process listens, two more hooks create it: the end of a handshake (`ready..send` only),
 * and the first data of a Unix connection. All other hooks only look it up.
 */
#ifndef TAILSCOPE_REQUESTS_H
#define TAILSCOPE_REQUESTS_H

#include "interpreter.h"
#include "meters.h"
#include "tcp.h"

/* Rounded up, so that the verifier can follow an index by its mask: Linux 6.1 forgets a bound
 * when the compiler moves the register aside. */
#define CAUSES_MASK 15
_Static_assert(TS_CAUSES <= CAUSES_MASK, "a row's number of shares is masked too");

/* What the first bytes of a connection show; 0: nobody has looked. */
enum protocol {
	PROTOCOL_OTHER = 1,
	PROTOCOL_HTTP2, /* requests overlap on it */
	PROTOCOL_TLS,
};

/* What the causes of a meter had come to at a begin. Counts come first: if a cause's count did not
 * change, an answer never reads its time. */
struct reading {
	__u32 n[CAUSES_MASK + 1];
	__u64 ns[CAUSES_MASK + 1];
};

/* What few requests have. */
struct special {
	__u64 accept_ns; /* these three as in struct ts_request */
	__u64 unknown_ns;
	__u64 blocked_ns;
	struct peer peer; /* family == 0: the queue is not put down to anybody */
};

/*
 * Another CPU's cache may have had it in between, and the kernel's own work has taken its place in
 * this one's, so a request costs by the lines that it touches. The kernel puts a socket's storage 8
 * bytes after a line's begin. The first line is all that is looked at when data becomes ready; a row
 * of two causes is all in the second.
 */
struct request {
	__u32 map; /* the meter of the thread that last received here */
	__u32 slot;
	__u64 ready; /* since when data is waiting; 0: none is */
	union {
		__u64 established; /* end of the handshake, until the first receive */
		__u64 received;	   /* when the first receive of the open request returned */
	};
	__u64 since;	 /* the begin of the open request; 0: none is open */
	__u8 is_client;	 /* this process opened the connection: nothing else counts */
	__u8 unaccepted; /* data was ready before the connection was accepted */
	__u8 counted;	 /* among those that its meter has open */
	__u8 answered;	 /* the request has a row so far */
	__u8 late;	 /* its row was written; a further send goes on with the answer */
	__u8 protocol;	 /* enum protocol of the connection */
	__u8 is_special; /* `special` holds for this request */
	__u8 elsewhere;	 /* another thread than received it has sent */
	__u8 held;	 /* enum ts_held: why TCP kept the end of the answer back */
	__u8 shares;
	__u16 answers;	/* counts writes of the row, for those who copy it */
	__u32 shortest; /* the fewest bytes of a request, by the looks so far; 0: not known */
	__u32 begun;	/* the meter's count of requests at the begin, */
	__u32 spans;	/* and of answered ones */

	/* The row. */
	__u64 ended; /* when the latest send ended */
	__u64 queue_ns;
	__u32 pid;
	__u32 tid;
	__u16 causes;
	__u16 cpu;
	__u32 others; /* requests that its thread began or answered while it was open */
	struct ts_share share[CAUSES_MASK + 1];
	__u64 sent; /* where TCP keeps data back: when it had passed it on; 0: not known */

	__u64 reserved[3];
	struct reading begin; /* its counts are a line, and its times are two */
	struct special special;
};
_Static_assert((__builtin_offsetof(struct request, begin) + 8) % 64 == 0, "see above");

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct request);
} requests SEC(".maps");

/* Ports on which a watched process listens, in any network namespace: a connection to another's
 * socket of that number gets a state that nobody uses. */
SEC(".bss.listens") __u8 listens[1 << 16] = {};

/* Addresses of Unix sockets on which a watched process listens. Accepted sockets share the
 * listener's (net/unix/af_unix.c). */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, __u64);
	__type(value, __u8);
} unix_listens SEC(".maps");

SEC(".bss.unix_count") __u32 unix_count = 0;

#define AF_UNIX 1
#define AF_INET 2
#define AF_INET6 10
#define AF_VSOCK 40
#define IPPROTO_UDP 17

static __always_inline struct request *request_of(struct sock *sk)
{
	return bpf_sk_storage_get(&requests, sk, 0, 0);
}

/* Remembers the address that a Unix socket shares with its listener; false if it has none, as one
 * that connected and an end of a socketpair. */
static __noinline int listens_unix(struct sock *sk)
{
	struct unix_sock *local = bpf_skc_to_unix_sock(sk);
	__u64 address = local ? (__u64)local->addr : 0;
	__u8 yes = 1;

	if (!address)
		return 0;
	if (!bpf_map_lookup_elem(&unix_listens, &address) &&
	    !bpf_map_update_elem(&unix_listens, &address, &yes, BPF_ANY))
		__sync_fetch_and_add(&unix_count, 1);
	return 1;
}

/* Whether this is an end of a Unix connection to such a listener. Any process may run here. */
static __noinline int came_in_unix(struct sock *sk)
{
	struct unix_sock *local = bpf_skc_to_unix_sock(sk);
	__u64 address = local ? (__u64)local->addr : 0;

	return address && bpf_map_lookup_elem(&unix_listens, &address);
}

/* Whether requests may come in on this socket of the current process. */
static __always_inline bool serves(struct sock *sk)
{
	struct tcp_sock *tcp;

	switch (sk->__sk_common.skc_family) {
	case AF_UNIX:
		return listens_unix(sk);
	case AF_INET:
	case AF_INET6:
		tcp = bpf_skc_to_tcp_sock(sk);
		if (tcp)
			return !tcp_connected(sk, tcp);
		return sk->sk_protocol != IPPROTO_UDP ||
		       BPF_CORE_READ_BITFIELD(sk, sk_userlocks) & SOCK_BINDPORT_LOCK;
	case AF_VSOCK:
		return true;
	default: /* netlink and the like: the kernel's own */
		return false;
	}
}

static __always_inline struct request *new_request(struct sock *sk)
{
	struct request *r = bpf_sk_storage_get(&requests, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);

	if (!r)
		__sync_fetch_and_add(&lost.sockets, 1);
	return r;
}

static __always_inline void read_meter(struct reading *r, const struct ts_meter *m)
{
	__builtin_memcpy(r->ns, m->totals.ns, sizeof(m->totals.ns));
	__builtin_memcpy(r->n, m->totals.n, sizeof(m->totals.n));
}

static __always_inline bool is_reader(const struct request *r, const struct cpu *cpu)
{
	return r->map == cpu->map && r->slot == cpu->slot;
}

/* The thread that runs here, whose meter `m` is, has answered the request. */
static __always_inline void discount_here(struct request *r, struct ts_meter *m)
{
	if (!r->counted)
		return;
	r->counted = 0;
	if (requests_open(m) > 0)
		m->answered++;
}

/* The request no longer is one of those that its thread has open. That may run elsewhere. */
static __noinline int discount_open(struct request *r)
{
	struct ts_meter *m;

	r->counted = 0;
	m = meter_at(r->map, r->slot);
	if (!m)
		return 0;
	if (!sampling()) {
		if (requests_open(m) > 0)
			__sync_fetch_and_add(&m->gone, 1);
	} else if (m->open) {
		__sync_fetch_and_add(&m->open, -1);
	}
	return 0;
}

static __always_inline void discount(struct request *r)
{
	if (unlikely(r->counted))
		discount_open(r);
}

/* What is said of this request beside its row. */
static __always_inline struct special *special(struct request *r)
{
	if (!r->is_special)
		__builtin_memset(&r->special, 0, sizeof(r->special));
	r->is_special = 1;
	return &r->special;
}

/* Forgets the open request. */
static __always_inline void forget(struct request *r)
{
	r->since = 0;
	r->answered = 0;
	r->held = TS_HELD_NOT;
	discount(r);
}

/* Forgets one that gets no answer any more, and counts it. */
static __always_inline void give_up(struct request *r)
{
	if (r->since && !r->answered)
		__sync_fetch_and_add(&uncovered.unanswered, 1);
	forget(r);
}

static __always_inline void peer_of(struct peer *peer, struct sock *sk)
{
	peer->family = sk->__sk_common.skc_family;
	peer->port = sk->__sk_common.skc_dport;
	__builtin_memset(peer->address, 0, sizeof(peer->address));
	if (peer->family == AF_INET)
		*(__u32 *)peer->address = sk->__sk_common.skc_daddr;
	else if (peer->family == AF_INET6)
		bpf_core_read(peer->address, 16, &sk->__sk_common.skc_v6_daddr);
}

/*
 * Remembers what the thread was busy with, for those that queue behind it: in place of the shorter
 * ones before it, and where there is no shorter one and no room, in place of the shortest.
 */
static __noinline int remember_served(struct thread *t, struct sock *sk, __u64 begin, __u64 end)
{
	struct served *s;

	if (!t || !sk)
		return 0;
	t->served_until = this_cpu()->served_until = end;
	for (int i = 0; i < SERVED; i++) {
		s = &t->served[i];
		if (s->end && s->begin != begin && s->end - s->begin > end - begin &&
		    i < SERVED - 1)
			continue;
		s->begin = begin;
		s->end = end;
		peer_of(&s->peer, sk);
		for (int j = 1; j < SERVED; j++)
			if (j > i)
				t->served[j].end = 0;
		return 0;
	}
	return 0;
}

/* Puts the queue since `from` down to the request that kept the thread busy for most of it. */
static __noinline int blame_queue(struct request *r, const struct thread *t, __u64 from)
{
	const struct served *most = NULL;
	struct special *more;
	__u64 longest = 0;

	if (!r || !t)
		return 0;
	for (int i = 0; i < SERVED; i++) {
		const struct served *s = &t->served[i];
		__u64 begin = s->begin > from ? s->begin : from;

		if (s->end <= begin || s->end - begin <= longest)
			continue;
		longest = s->end - begin;
		most = s;
	}
	if (!most || 2 * longest < r->queue_ns)
		return 0;
	more = special(r);
	more->peer = most->peer;
	more->blocked_ns = most->end - most->begin;
	return 0;
}

/* Counts one more of a cause to what comes after this reading. */
static __always_inline void give_back(struct reading *r, __u32 cause, __u64 ns)
{
	if (ns) {
		r->ns[cause & CAUSES_MASK] -= ns;
		r->n[cause & CAUSES_MASK]--;
	}
}

/* Blocked until somebody gives it something to do, and nothing was: a wait of the thread's, not of
 * the request that came meanwhile. */
static __always_inline bool was_idle(const struct off_cpu *a, __u64 from)
{
	return a->idle && a->out <= from &&
	       (a->blocked == TS_LOCK || a->blocked == TS_NETWORK || a->blocked == TS_SLEEP);
}

/*
 * Moves the begin back to `from`, when the data was ready or the handshake ended. The thread's times
 * off the CPU since then count with their causes; for the rest it was on the CPU with other work, or
 * waited to be given this one: that, with the interrupts in it, is `queue`, or `accept` for a
 * connection that was not accepted when its data came. A wait that began more than OFF_CPU_INTERVALS switches
 * ago counts likewise. Of a thread that has had its CPU since then, nothing has to be known.
 */
static __always_inline void begin_earlier(struct request *r, const struct cpu *cpu, __u64 from,
					  bool unaccepted, __u64 now)
{
	struct thread *t = NULL;
	__u64 off = 0, rest;

	r->since = from;
	if (unlikely(cpu->in > from || cpu->served_until > from))
		t = thread_of(bpf_get_current_task_btf());
	for (int i = 1; t && i <= OFF_CPU_INTERVALS; i++) {
		struct off_cpu *a = &t->last[(t->off_cpu_count - i) & (OFF_CPU_INTERVALS - 1)];
		__u64 since, wait, throttled, interrupted;

		if (a->in <= from)
			break;
		since = a->out > from ? a->out : from;
		if (a->woken > since) {
			if (!was_idle(a, from)) {
				give_back(&r->begin, a->blocked, a->woken - since);
				off += a->woken - since;
			}
			since = a->woken;
		}
		wait = a->in - since;
		throttled = a->throttled < wait ? a->throttled : wait;
		interrupted = wait - throttled;
		if (a->interrupted < interrupted)
			interrupted = a->interrupted;
		give_back(&r->begin, TS_THROTTLED, throttled);
		give_back(&r->begin, a->interrupts, interrupted);
		give_back(&r->begin, a->waited, wait - throttled - interrupted);
		off += wait;
	}
	rest = now - from > off ? now - from - off : 0;
	if (unlikely(unaccepted)) {
		special(r)->accept_ns = rest;
	} else {
		r->queue_ns = rest;
		if (unlikely(rest >= BLAMED_FROM_NS && cpu->served_until > from))
			blame_queue(r, t, from);
	}
}

#endif
