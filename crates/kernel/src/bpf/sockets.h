/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Requests of unmodified servers: a span from a receive (or from the moment when its data was
 * ready) to the end of the next send on the same socket. The state of a request lives with its
 * socket, so a thread may have any number open, and it is gone when the socket is.
 *
 * From the tracepoints sock_recv_length and sock_send_length (Linux >= 6.3) and sk_data_ready
 * (>= 6.4), else from the return of each protocol's own functions (fexit) and the function that
 * sk_data_ready is in: the same moments, but TCP, UDP and Unix sockets only.
 */
#include "meters.h"
#include "rings.h"
#include "sched.h"

/* Rounded up, so that the verifier can follow an index by its mask: Linux 6.1 forgets a bound
 * when the compiler moves the register aside. */
#define CAUSES_MASK 15

struct reading {
	__u64 at;
	__u64 ns[CAUSES_MASK + 1];
	__u32 n[CAUSES_MASK + 1];
};

struct request {
	__u32 map; /* the meter of the thread that last received here */
	__u32 slot;
	__u64 ready; /* since when data is waiting; 0: none is */
	__u64 queue_ns;
	bool selected;
	struct reading begin; /* at == 0: no span is open */
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct request);
} requests SEC(".maps");

/* What a CPU remembers of the requests that it passes over under --sample. */
struct sampler {
	__u64 passed; /* the socket of the last: its pieces are passed over too */
	__u32 skip;   /* how many are still to pass before one is selected */
} __attribute__((aligned(64)));

SEC(".bss.samplers") struct sampler samplers[MAX_CPUS] = {};

static __always_inline struct sampler *this_sampler(void)
{
	return &samplers[bpf_get_smp_processor_id() & (MAX_CPUS - 1)];
}

static __always_inline void read_meter(struct reading *r, const struct ts_meter *m, __u64 now)
{
	r->at = now;
	__builtin_memcpy(r->ns, m->totals.ns, sizeof(m->totals.ns));
	__builtin_memcpy(r->n, m->totals.n, sizeof(m->totals.n));
}

static __always_inline bool is_reader(const struct request *r, const struct cpu *cpu)
{
	return r->map == cpu->map && r->slot == cpu->slot;
}

static __always_inline void close_span(struct request *r)
{
	r->begin.at = 0;
	if (r->selected) {
		struct ts_meter *m = meter_at(r->map, r->slot);

		r->selected = false;
		if (m && m->open)
			__sync_fetch_and_add(&m->open, -1);
	}
}

/* Decides whether the request that this thread receives is metered. */
static __always_inline bool select(struct sampler *s, __u64 socket)
{
	if (!config.skip_range) {
		if (chosen(config.sample))
			return true;
	} else if (!s->skip) {
		s->skip = bpf_get_prandom_u32() % config.skip_range;
		return true;
	} else {
		s->skip--;
	}
	s->passed = socket;
	return false;
}

static __always_inline int data_ready(struct sock *sk)
{
	struct request *r = bpf_sk_storage_get(&requests, sk, 0, 0);

	if (r && !r->ready && r->map)
		r->ready = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/sk_data_ready")
int BPF_PROG(on_data_ready, struct sock *sk)
{
	return data_ready(sk);
}

SEC("fentry/sock_def_readable")
int BPF_PROG(on_readable, struct sock *sk)
{
	return data_ready(sk);
}

static __always_inline void give_back(struct reading *r, __u32 cause, __u64 ns)
{
	if (ns) {
		r->ns[cause & CAUSES_MASK] -= ns;
		r->n[cause & CAUSES_MASK]--;
	}
}

/*
 * Moves the begin back to when the data was ready. The thread's times off the CPU since then
 * count with their causes; for the rest it was on the CPU with other work, and that, with the
 * interrupts in it, is `queue`. A wait that began more than AWAYS switches ago counts as queue.
 */
static __always_inline void begin_when_ready(struct request *r, __u64 now)
{
	struct thread *t = thread_of(bpf_get_current_task_btf());
	__u64 ready = r->ready, off = 0;

	r->begin.at = ready;
	for (int i = 1; t && i <= AWAYS; i++) {
		struct away *a = &t->last[(t->aways - i) & (AWAYS - 1)];
		__u64 from, wait, throttled, deferred;

		if (a->in <= ready)
			break;
		from = a->out > ready ? a->out : ready;
		if (a->woken > from) {
			give_back(&r->begin, a->blocked, a->woken - from);
			off += a->woken - from;
			from = a->woken;
		}
		wait = a->in - from;
		throttled = a->throttled < wait ? a->throttled : wait;
		deferred = a->deferred < wait - throttled ? a->deferred : wait - throttled;
		give_back(&r->begin, TS_THROTTLED, throttled);
		give_back(&r->begin, a->softirqs, deferred);
		give_back(&r->begin, a->waited, wait - throttled - deferred);
		off += wait;
	}
	r->queue_ns = now - ready > off ? now - ready - off : 0;
}

static __always_inline int receive(struct sock *sk, int length, int flags)
{
	struct cpu *cpu = this_cpu();
	struct sampler *s = this_sampler();
	struct request *r = NULL;
	struct ts_meter *m;
	bool selected = false;
	__u64 now;

	if (flags & 2 /* MSG_PEEK */)
		return 0;
	m = current_meter(cpu);
	if (!m)
		return 0;
	if (length <= 0) { /* nothing there, or the peer is gone */
		if (length == 0 && (r = bpf_sk_storage_get(&requests, sk, 0, 0))) {
			r->ready = 0;
			close_span(r);
		}
		return 0;
	}
	if (sampling()) {
		if (s->passed == (__u64)sk) {
			selected = false;
		} else {
			if (m->open)
				r = bpf_sk_storage_get(&requests, sk, 0, 0);
			selected = (r && r->begin.at) || select(s, (__u64)sk);
		}
		if (!selected && !config.from_ready)
			return 0;
	}
	if (!r)
		r = bpf_sk_storage_get(&requests, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!r) {
		__sync_fetch_and_add(&lost.sockets, 1);
		return 0;
	}
	if (!is_reader(r, cpu)) { /* another thread than last time */
		close_span(r);
		r->map = cpu->map;
		r->slot = cpu->slot;
	}
	if (r->begin.at || (sampling() && !selected)) {
		r->ready = 0; /* the rest of a request that came in pieces, or one passed over */
		return 0;
	}
	now = bpf_ktime_get_ns();
	read_meter(&r->begin, m, now);
	r->queue_ns = 0;
	if (sampling()) {
		r->selected = true;
		__sync_fetch_and_add(&m->open, 1);
	}
	if (config.from_ready && r->ready)
		begin_when_ready(r, now);
	r->ready = 0;
	return 0;
}

SEC("tp_btf/sock_recv_length")
int BPF_PROG(on_receive, struct sock *sk, int length, int flags)
{
	return receive(sk, length, flags);
}

#define ON_RECEIVE(family)                                                                 \
	SEC("fexit/" #family "_recvmsg")                                                   \
	int BPF_PROG(on_##family##_receive, struct socket *socket, struct msghdr *message, \
		     unsigned long size, int flags, int length)                            \
	{                                                                                  \
		return receive(socket->sk, length, flags);                                 \
	}

ON_RECEIVE(inet)
ON_RECEIVE(inet6)
ON_RECEIVE(unix_stream)

static __always_inline void write_row(const struct request *r, const struct ts_meter *m, __u64 now,
				      __u16 kept)
{
	__u32 cpu = bpf_get_smp_processor_id(), causes = 0, shares = 0;
	struct ts_ring *ring = bpf_map_lookup_elem(&rows, &cpu);
	__u64 self = shown_ids(), head;
	struct ts_share *share;
	struct ts_row *row;

	if (!ring)
		return;
	row = next_row(ring, &head);
	if (!row) {
		__sync_fetch_and_add(&lost.rows, 1);
		return;
	}
	share = (struct ts_share *)(row + 1);
#pragma unroll
	for (int i = 0; i < TS_CAUSES; i++) {
		__u64 ns = m->totals.ns[i] - r->begin.ns[i];
		__u32 n = m->totals.n[i] - r->begin.n[i];

		if (!ns && !n)
			continue;
		share[shares & 15].ns = ns;
		share[shares & 15].n = n;
		share[shares & 15].who = 0;
		if (TS_CULPRIT_CAUSES & 1u << i)
			share[shares & 15].who =
			    culprit_of(&m->recent[TS_RECENT(i)], m->totals.n[i], n);
		shares++;
		causes |= 1u << i;
	}
	row->begin = r->begin.at;
	row->wall = now - r->begin.at;
	row->pid = self >> 32;
	row->tid = self;
	row->causes = causes;
	row->cpu = cpu;
	row->name = row->flags = 0;
	row->queue_ns = r->queue_ns;
	row->kept = kept;
	publish(ring, head + sizeof(*row) + shares * sizeof(*share));
}

static __always_inline int send(struct sock *sk, int length)
{
	struct cpu *cpu = this_cpu();
	struct ts_meter *m;
	struct request *r;
	__u64 now;
	__u32 seq;
	__u16 kept;

	if (length <= 0)
		return 0;
	m = current_meter(cpu);
	if (!m)
		return 0;
	if (sampling()) {
		struct sampler *s = this_sampler();

		if (s->passed == (__u64)sk)
			s->passed = 0;
		if (!m->open)
			return 0;
	}
	/* First the clock, which waits for all that is still being fetched from memory. */
	seq = *(volatile __u32 *)&m->seq;
	now = bpf_ktime_get_ns();
	r = bpf_sk_storage_get(&requests, sk, 0, 0);
	if (!r || !r->begin.at)
		return 0;
	/* Answered by another thread than received it: its meter has another history. */
	if (is_reader(r, cpu)) {
		if (*(volatile __u32 *)&m->seq != seq)
			now = bpf_ktime_get_ns(); /* what came in between is part of it */
		m->spans++;
		if (keeps(SOCKET_SOURCE, now - r->begin.at, &kept))
			write_row(r, m, now, kept);
	}
	close_span(r);
	return 0;
}

SEC("tp_btf/sock_send_length")
int BPF_PROG(on_send, struct sock *sk, int length, int flags)
{
	return send(sk, length);
}

#define ON_SEND(family)                                                                 \
	SEC("fexit/" #family "_sendmsg")                                                \
	int BPF_PROG(on_##family##_send, struct socket *socket, struct msghdr *message, \
		     unsigned long size, int length)                                    \
	{                                                                               \
		return send(socket->sk, length);                                        \
	}

ON_SEND(inet)
ON_SEND(inet6)
ON_SEND(unix_stream)

/* A connection that ends with a request unanswered gives back its selection. */
#define TCP_CLOSE 7

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(on_socket_state, struct sock *sk, int from, int to)
{
	struct request *r;

	if (to != TCP_CLOSE)
		return 0;
	r = bpf_sk_storage_get(&requests, sk, 0, 0);
	if (r)
		close_span(r);
	return 0;
}
