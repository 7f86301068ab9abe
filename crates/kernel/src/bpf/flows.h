/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Receives and sends on sockets of watched servers, for the source of spans `request`. What a socket
 * has to remember lives with it: when its data was ready, and which end of a connection it is.
 *
 * The hooks are those of sockets.h. Only one of the two families is loaded.
 */
#ifndef TAILSCOPE_FLOWS_H
#define TAILSCOPE_FLOWS_H

#include "delivery.h"
#include "flow.h"
#include "passed_on.h"
#include "socket_state.h"
#include "trace_context.h"

/* This side sends no more, or the other one has reset the connection. */
static __always_inline void flow_ends(struct sock *sk)
{
	struct flow *f = flow_of(sk);
	struct sl_entry e = {.kind = SL_CLOSE};
	struct slice_thread *s;
	struct ts_meter *m;

	if (!f || !f->cookie || this_cpu()->depth)
		return;
	s = slice_thread_here(&m);
	if (!s)
		return;
	if (unlikely(f->held))
		tell_passed_on(sk, f, s, m);
	e.at = bpf_ktime_get_ns();
	e.socket = f->cookie;
	e.detail = f->role;
	f->lost |= f->received.lost | f->sends.lost;
	write_of(f, &e, s, m, NULL);
}

/* Whether requests that came together are counted at this receive: at one in each PEEK_EVERY, which
 * is drawn at random. */
static __always_inline bool is_counted(struct slice_cpu *cpu)
{
	__u32 place = cpu->received++ % PEEK_EVERY;

	if (!place)
		cpu->drawn = bpf_get_prandom_u32() % PEEK_EVERY;
	return place == cpu->drawn;
}

/* Counts requests that came together with the one that this receive brought. */
static __always_inline void count_together(struct flow *f, __u32 length, bool fresh)
{
	__u32 one;

	if (!is_counted(this_slice_cpu()) || (fresh && is_one_request(length, f->shortest)))
		return;
	one = count_pipelined(length, fresh);
	if (fresh)
		note_shortest(&f->shortest, one);
}

/* Whether a call on this socket is worth the look for frames of HTTP/2. */
static __always_inline bool may_be_framed(const struct flow *f)
{
	if (f->framed)
		return true;
	if (f->role == SL_SERVER)
		return (f->fresh || f->received.seen) && f->received.looked < FRAMES_LOOKS &&
		       !f->encrypted;
	return f->role == SL_CLIENT && f->sends.looked < FRAMES_LOOKS;
}

/* Whether the call was on a connection of HTTP/2. Its frames have been reported then. */
static __always_inline bool takes_frames(struct flow *f, struct slice_thread *s,
					 const struct ts_meter *m, struct sl_entry *e)
{
	bool receives = e->kind == SL_RECEIVE;
	struct frames *in = receives ? &f->received : &f->sends;

	if (!f->framed && f->role == (receives ? SL_SERVER : SL_CLIENT) &&
	    look_for_frames(in, s, m, e->length, true)) {
		f->framed = in->followed = 1;
		if (in->left) /* the preface: nothing went before it */
			f->received.followed = f->sends.followed = 1;
	}
	if (!f->framed)
		return false;
	e->kind = receives ? SL_STREAM_RECEIVE : SL_STREAM_SEND;
	tell_frames(in, s, m, e);
	return true;
}

/* Remembers up to where data has been received. */
static __always_inline void note_end(struct flow *f, struct sock *sk)
{
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);

	if (tcp)
		f->received.end = tcp->copied_seq;
}

/* Reports a receive, with its first bytes where it may begin a request. */
static __always_inline int tell_receive(struct flow *f, struct slice_thread *s,
					const struct ts_meter *m, struct sl_entry *e)
{
	struct socket_text text = {};
	bool fresh, asked;
	__u32 length;

	if (!f || !s || !m || !e)
		return 0;
	fresh = f->fresh;
	length = e->length;
	asked = f->role == SL_SERVER && length;
	if (asked) {
		if (fresh && config.names)
			e->extra = first_bytes(&text, length);
		else if (fresh && (f->begun < PROTOCOL_LOOKS || config.traces)) {
			e->extra = protocol_bytes(&text, length);
			f->begun += f->begun < PROTOCOL_LOOKS;
		}
		if (fresh && !f->is_udp && protocol_of(*(__u32 *)text.bytes) == PROTOCOL_TLS)
			f->encrypted = 1;
		/* MySQL reads its header first, which does not say what is asked. */
		if (length > SL_PROTOCOL_BYTES)
			f->fresh = f->is_udp;
	}
	write_of(f, e, s, m, e->extra ? &text : NULL);
	if (!asked || f->encrypted)
		return 0;
	if (config.traces && fresh && is_http(*(__u32 *)text.bytes))
		find_trace(e, s, m, received_at());
	count_together(f, length, fresh);
	return 0;
}

static __always_inline int slice_receive(struct sock *sk, int length, int flags)
{
	struct sl_entry e = {.kind = SL_RECEIVE};
	struct slice_thread *s;
	struct ts_meter *m;
	struct flow *f;
	bool unaccepted;

	if (flags & 0x2002 /* MSG_PEEK, MSG_ERRQUEUE */)
		return 0;
	if (unlikely(length < 0)) {
		if (length == -ECONNRESET)
			flow_ends(sk);
		return 0;
	}
	s = slice_thread_here(&m);
	f = s ? known_flow(sk, s, m) : NULL;
	if (!f)
		return 0;
	this_slice_cpu()->data = 0;
	if (unlikely(f->held))
		tell_passed_on(sk, f, s, m);
	e.at = bpf_ktime_get_ns();
	e.since = unlikely(f->is_udp) ? take_datagram(sk) : f->ready;
	e.socket = f->cookie;
	e.length = length;
	e.detail = f->role;
	f->ready = 0;
	if (config.tls && length)
		s->received = f->role == SL_SERVER ? f->cookie : NO_SERVERS;
	unaccepted = f->unaccepted;
	f->unaccepted = 0;
	if (length && may_be_framed(f)) {
		note_end(f, sk);
		if (takes_frames(f, s, m, &e))
			return 0;
	}
	if (unlikely(unaccepted))
		e.detail |= SL_UNACCEPTED;
	if (unlikely(f->is_udp))
		e.detail |= f->quic >= QUIC_PROVES ? SL_DATAGRAM | SL_QUIC : SL_DATAGRAM;
	return tell_receive(f, s, m, &e);
}

static __always_inline int slice_send(struct sock *sk, int length)
{
	struct sl_entry e = {.kind = SL_SEND};
	struct slice_thread *s;
	struct tcp_sock *tcp = NULL;
	struct ts_meter *m;
	struct flow *f;
	struct cpu *cpu = this_cpu();

	if (length <= 0)
		return 0;
	s = slice_thread_here(&m);
	f = s ? known_flow(sk, s, m) : NULL;
	if (!f)
		return 0;
	this_slice_cpu()->data = 0;
	f->fresh = 1;
	e.at = bpf_ktime_get_ns();
	e.socket = f->cookie;
	e.length = length;
	cpu->left_out = 0;
	if (f->role == SL_SERVER) {
		tcp = bpf_skc_to_tcp_sock(sk);
		e.since = tcp ? tcp_held(tcp) : TS_HELD_NOT;
		/* The verifier does not know what it reads back from there: see add_share. */
		if (tcp && all_passed_on(tcp))
			cpu->left_out =
			    delivery_after(&s->seen, m, tcp->tcp_wstamp_ns, e.at, ports_there(sk));
	}
	e.at -= cpu->left_out;
	e.detail = f->role | (f->is_udp ? SL_DATAGRAM : 0);
	if (config.tls) {
		s->sent_on = f->cookie;
		s->sent_held = e.since;
	}
	leave_out(&s->seen, cpu);
	if (f->role == SL_SERVER) {
		if (had_passed_on(f, tcp, length))
			write_passed_on(f, s, m, e.at);
		f->held = e.since;
		f->sent = 0;
	}
	if (!may_be_framed(f) || !takes_frames(f, s, m, &e))
		write_of(f, &e, s, m, NULL);
	leave_to_next(&s->seen, m, cpu);
	return 0;
}

/* Whether what comes in is frames, or may turn out to be: that is known once it has been received. */
static __always_inline bool shows_when(const struct flow *f)
{
	return f->framed || !f->cookie || (f->role == SL_SERVER && may_be_framed(f));
}

/* Remembers up to where data has come in, and when. Data that arrives together takes one place. */
static __noinline int note_arrival(struct flow *f, struct sock *sk)
{
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);
	struct frames *in = &f->received;
	__u32 last = (in->arrivals - 1) & (ARRIVALS - 1);
	__u64 now = bpf_ktime_get_ns();

	if (!tcp)
		return 0;
	if (!in->arrivals || now - in->arrived[last] >= ARRIVAL_NS) {
		last = in->arrivals++ & (ARRIVALS - 1);
		in->arrived[last] = now;
	}
	in->until[last] = tcp->rcv_nxt;
	return 0;
}

/* The first data of a connection on a Unix socket comes before anybody has received on it. */
static __noinline int first_unix_data(struct sock *sk)
{
	struct flow *f = came_in_unix(sk) ? new_flow(sk) : NULL;

	if (!f)
		return 0;
	f->role = SL_SERVER;
	f->decided = 1;
	f->ready = bpf_ktime_get_ns();
	f->unaccepted = !sk->sk_socket;
	return 0;
}

static __always_inline int slice_ready(struct sock *sk)
{
	struct flow *f = flow_of(sk);

	this_slice_cpu()->data = this_cpu()->data = this_cpu()->depth + 1;
	note_taken(sk);
	if (unlikely(!f) && unix_count && sk->__sk_common.skc_family == AF_UNIX)
		first_unix_data(sk);
	if (f && unlikely(f->is_udp))
		note_datagram(sk, f->quic < QUIC_PROVES ? &f->quic : NULL);
	else if (f && shows_when(f))
		note_arrival(f, sk);
	if (!f || f->ready)
		return 0;
	f->ready = bpf_ktime_get_ns();
	if (unlikely(!f->cookie) && !sk->sk_socket) { /* else it was used */
		f->unaccepted = 1;
		f->ready = f->established ?: f->ready;
	}
	if (unlikely(f->held))
		note_passed_on(f, sk, f->ready);
	return 0;
}

SEC("tp_btf/sock_recv_length")
int BPF_PROG(on_slice_receive, struct sock *sk, int length, int flags)
{
	return slice_receive(sk, length, flags);
}

SEC("tp_btf/sock_send_length")
int BPF_PROG(on_slice_send, struct sock *sk, int length, int flags)
{
	return slice_send(sk, length);
}

SEC("tp_btf/sk_data_ready")
int BPF_PROG(on_slice_data_ready, struct sock *sk)
{
	return slice_ready(sk);
}

SEC("fentry/sock_def_readable")
int BPF_PROG(on_slice_readable, struct sock *sk)
{
	return slice_ready(sk);
}

#define ON_SLICES(family)                                                                        \
	SEC("fexit/" #family "_recvmsg")                                                         \
	int BPF_PROG(on_slice_##family##_receive, struct socket *socket, struct msghdr *message, \
		     unsigned long size, int flags, int length)                                  \
	{                                                                                        \
		return slice_receive(socket->sk, length, flags);                                 \
	}                                                                                        \
	SEC("fexit/" #family "_sendmsg")                                                         \
	int BPF_PROG(on_slice_##family##_send, struct socket *socket, struct msghdr *message,    \
		     unsigned long size, int length)                                             \
	{                                                                                        \
		return slice_send(socket->sk, length);                                           \
	}

ON_SLICES(inet)
ON_SLICES(inet6)
ON_SLICES(unix_stream)

/* The handshake of a connection that somebody is to accept has ended: its first data may come before
 * anybody has received on it. */
static __always_inline void flow_begins(struct sock *sk)
{
	struct flow *f = listens[sk->__sk_common.skc_num] ? new_flow(sk) : NULL;

	if (!f)
		return;
	f->role = SL_SERVER;
	f->decided = 1;
	f->established = bpf_ktime_get_ns();
}

static __always_inline int slice_socket_state(struct sock *sk, int from, int to)
{
	struct tcp_sock *tcp;
	struct flow *f;

	switch (to) {
	case TCP_ESTABLISHED:
		if (from == TCP_SYN_RECV)
			flow_begins(sk);
		break;
	case TCP_SYN_SENT: /* one that has a port already does not look like a client's */
		tcp = this_cpu()->map ? bpf_skc_to_tcp_sock(sk) : NULL;
		if (tcp && tcp->inet_conn.icsk_bind_hash) {
			f = new_flow(sk);
			if (f) {
				f->role = SL_CLIENT;
				f->decided = 1;
			}
		}
		break;
	case TCP_LISTEN:
		if (this_cpu()->map)
			listens[sk->__sk_common.skc_num] = 1;
		break;
	case TCP_FIN_WAIT1:
	case TCP_LAST_ACK:
		flow_ends(sk);
		break;
	case TCP_CLOSE: /* closed with data that nobody has received */
		if (from == TCP_ESTABLISHED || from == TCP_CLOSE_WAIT)
			flow_ends(sk);
		break;
	}
	return 0;
}

ON_SOCKET_STATE(on_slice_socket_state, slice_socket_state)

#endif
