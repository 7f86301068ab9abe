/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Requests of unmodified servers: a span from a receive (or from the moment when its data was ready)
 * to the end of the last send on the same socket before the next receive.
 *
 * From the tracepoints sock_recv_length and sock_send_length (Linux >= 6.3) and sk_data_ready
 * (>= 6.4), else from the return of each protocol's own functions (fexit) and the function that
 * sk_data_ready is in: the same moments, but TCP, UDP and Unix sockets only.
 */
#include "answers.h"
#include "delivery.h"
#include "peek.h"
#include "sched.h"

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

/* A connection on a Unix socket whose first data comes before anybody has received on it. */
static __noinline int first_data(struct sock *sk)
{
	struct request *r = came_in_unix(sk) ? new_request(sk) : NULL;

	if (!r)
		return 0;
	r->ready = r->established = bpf_ktime_get_ns();
	r->unaccepted = !sk->sk_socket;
	return 0;
}

static __always_inline int data_ready(struct sock *sk)
{
	struct request *r;

	this_cpu()->data = this_cpu()->depth + 1;
	note_taken(sk);
	r = request_of(sk);
	if (unlikely(!r)) {
		if (unix_count && sk->__sk_common.skc_family == AF_UNIX)
			first_data(sk);
		return 0;
	}
	if (r->ready || r->is_client)
		return 0;
	r->ready = bpf_ktime_get_ns();
	if (unlikely(r->established) && !sk->sk_socket)
		r->unaccepted = 1;
	if (unlikely(r->held))
		note_sent(r, sk, r->ready);
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

/* A request begins with this receive, at `now`. Its meter has been read. */
static __always_inline void begin_request(struct request *r, struct ts_meter *m,
					  const struct cpu *cpu, __u64 now)
{
	__u64 from = r->ready;
	bool unaccepted = r->unaccepted;

	r->since = now;
	r->begun = ++m->begun;
	r->spans = m->spans;
	r->counted = 1;
	r->late = 0;
	if (unlikely(sampling())) /* else `begun` counts it */
		__sync_fetch_and_add(&m->open, 1);
	r->queue_ns = 0;
	r->is_special = r->elsewhere = 0;
	if (unlikely(unaccepted))
		from = r->established;
	r->received = now;
	if (config.from_ready && from && from < now)
		begin_earlier(r, cpu, from, unaccepted, now);
}

/* Another thread receives the rest of a request that came in pieces. It has waited for this one since
 * the begin. */
static __noinline int move_request(struct request *r, struct ts_meter *m)
{
	__u64 now = bpf_ktime_get_ns();

	read_meter(&r->begin, m);
	r->queue_ns = now - r->since - (r->is_special ? r->special.accept_ns : 0);
	r->begun = m->begun;
	r->spans = m->spans;
	r->counted = 1;
	if (sampling())
		__sync_fetch_and_add(&m->open, 1);
	else
		__sync_fetch_and_add(&m->gone, -1);
	return 0;
}

/* A receive that brought nothing: nothing was there, or the peer has ended its side. */
static __always_inline void receive_nothing(struct sock *sk, int length)
{
	struct request *r = length == 0 ? request_of(sk) : NULL;

	if (!r)
		return;
	r->ready = 0;
	if (r->answered)
		finish_rarely(r);
	else
		give_up(r);
}

static __always_inline int receive(struct sock *sk, int length, int flags)
{
	struct cpu *cpu = this_cpu();
	struct request *r = NULL;
	bool selected = true, moves = false, counts;
	struct ts_meter *m;
	__u64 now;
	__u32 seq;

	if (flags & 2 /* MSG_PEEK */)
		return 0;
	m = current_meter(cpu);
	if (!m)
		return 0;
	if (unlikely(length <= 0)) {
		receive_nothing(sk, length);
		return 0;
	}
	if (unlikely(sampling())) {
		struct sampler *s = this_sampler();

		if (m->open)
			r = request_of(sk);
		if (r && r->answered)
			finish_rarely(r);
		if (s->passed == (__u64)sk)
			selected = false;
		else
			selected = (r && r->since) || select(s, (__u64)sk);
		if (!selected && !config.from_ready)
			return 0;
	}
	/* First the clock, which waits for all that is still being fetched from memory. */
	seq = *(volatile __u32 *)&m->seq;
	now = bpf_ktime_get_ns();
	if (!r)
		r = request_of(sk);
	if (unlikely(!r)) {
		r = serves(sk) ? new_request(sk) : NULL;
		if (!r)
			return 0;
	}
	if (unlikely(r->is_client))
		return 0;
	if (likely(r->answered))
		finish(r);
	if (unlikely(r->protocol == PROTOCOL_HTTP2)) {
		__sync_fetch_and_add(&uncovered.multiplexed, 1);
		return 0;
	}
	if (unlikely(!is_reader(r, cpu))) { /* another thread than last time */
		moves = r->since;
		discount(r);
		r->map = cpu->map;
		r->slot = cpu->slot;
	}
	/* Else it is the rest of a request that came in pieces, or one passed over. */
	if (unlikely(moves)) {
		move_request(r, m);
	} else if (likely(!r->since && selected)) {
		if (unlikely(*(volatile __u32 *)&m->seq != seq))
			now = bpf_ktime_get_ns(); /* what came in between is no part of it */
		read_meter(&r->begin, m);
		begin_request(r, m, cpu, now);
	} else if (r->since && sk->sk_protocol == IPPROTO_UDP) {
		/* a datagram is a whole one */
		__sync_fetch_and_add(&uncovered.pipelined, 1);
	}
	r->ready = 0;
	r->unaccepted = 0;
	counts = !(m->begun % PEEK_EVERY) && !is_one_request(length, r->shortest);
	if (unlikely(!r->protocol || counts))
		peek(r, length, counts);
	fetch_next_row();
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

/* A send on a socket without an open request: part of an answer whose row is written? */
static __always_inline void send_later(struct request *r, __u64 now)
{
	if (!r->late)
		return;
	r->late = 0;
	if (now - r->ended > CONTINUED_FROM_NS)
		__sync_fetch_and_add(&uncovered.continued, 1);
}

static __always_inline int send(struct sock *sk, int length)
{
	struct cpu *cpu = this_cpu();
	struct tcp_sock *tcp;
	struct ts_meter *m;
	struct request *r;
	__u64 now;
	__u32 seq;

	if (length <= 0)
		return 0;
	m = current_meter(cpu);
	if (!m)
		return 0;
	if (unlikely(sampling())) {
		struct sampler *s = this_sampler();

		if (s->passed == (__u64)sk)
			s->passed = 0;
		if (!m->open)
			return 0;
	}
	seq = *(volatile __u32 *)&m->seq; /* the clock first, as in `receive` */
	now = bpf_ktime_get_ns();
	r = request_of(sk);
	if (!r)
		return 0;
	if (unlikely(!r->since)) {
		send_later(r, now);
		return 0;
	}
	tcp = bpf_skc_to_tcp_sock(sk);
	if (likely(is_reader(r, cpu) && !r->elsewhere)) {
		if (*(volatile __u32 *)&m->seq != seq)
			now = bpf_ktime_get_ns(); /* what came in between is part of it */
		cpu->left_out = 0;
		/* The verifier does not know what it reads back from there: see add_share. */
		if (tcp && all_passed_on(tcp))
			cpu->left_out =
			    delivery_after(&r->begin, m, tcp->tcp_wstamp_ns, now, ports_there(sk));
		/* A further send is later than the delivery, which then is part of the request. */
		leave_out(&r->begin, cpu);
		note_answer(r, m, now - cpu->left_out);
		take_back(&r->begin, cpu);
	} else {
		note_answer_elsewhere(r, now);
	}
	if (likely(!r->answered)) {
		r->answered = 1;
		m->spans++;
		if (sampling()) /* then it stays among those for which the thread is metered */
			;
		else if (is_reader(r, cpu))
			discount_here(r, m);
		else
			discount(r);
	}
	if (unlikely(now - r->received >= BLAMED_FROM_NS && config.from_ready))
		remember_served(thread_of(bpf_get_current_task_btf()), sk, r->received, now);
	if (likely(tcp)) {
		r->held = tcp_held(tcp);
		if (unlikely(r->held))
			r->sent = 0;
	} else { /* nothing tells the end of such a connection */
		finish_rarely(r);
		r->late = 1;
	}
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
