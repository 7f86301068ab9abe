/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the source of spans `request` remembers of a socket of a watched process, and how the recorder
 * first hears of it.
 */
#ifndef TAILSCOPE_FLOW_H
#define TAILSCOPE_FLOW_H

#include "datagrams.h"
#include "frames.h"
#include "slices.h"

/* Without names the first bytes only say whether it is TLS, which begins there, or after a word or two
 * (PostgreSQL, SMTP). */
#define PROTOCOL_LOOKS 4

struct flow {
	__u64 cookie; /* 0: the recorder does not know of this socket yet */
	__u64 ready;  /* since when data is waiting; 0: none is */
	__u8 role;    /* enum sl_role */
	__u8 fresh;   /* the next receive may begin a request: nothing was received since a send */
	__u8 decided; /* `role` is known */
	__u8 held;    /* enum ts_held: why TCP kept back the end of the latest send */
	__u8 encrypted; /* with TLS: the bytes say nothing of requests */
	__u8 framed;	/* it is HTTP/2: requests are streams */
	__u8 lost;	/* the latest entry of it found no room */
	__u8 begun;	/* requests whose first bytes were looked at, up to PROTOCOL_LOOKS */
	union {
		__u64 sent;	   /* when it had passed that on; 0: not known yet */
		__u64 established; /* end of the handshake, until the first receive */
	};
	__u8 unaccepted; /* data was ready before the connection was accepted */
	__u8 is_udp;	 /* a server's: each datagram is a request */
	__u8 quic;	 /* datagrams that began a connection of QUIC, up to QUIC_PROVES */
	__u32 shortest;	 /* the fewest bytes of a request, by the looks so far; 0: not known */
	struct frames received;
	struct frames sends;
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct flow);
} flows SEC(".maps");

#define ECONNRESET 104

struct unix_sock___peer {
	struct sock *peer;
} CORE;

static __always_inline struct flow *flow_of(struct sock *sk)
{
	return bpf_sk_storage_get(&flows, sk, 0, 0);
}

static __always_inline struct flow *new_flow(struct sock *sk)
{
	struct flow *f = bpf_sk_storage_get(&flows, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);

	if (!f) {
		__sync_fetch_and_add(&lost.sockets, 1);
		return NULL;
	}
	f->fresh = 1;
	return f;
}

/* The peer of a Unix socket, if it has one. */
static __always_inline struct sock *unix_peer(struct sock *sk)
{
	struct unix_sock *local = bpf_skc_to_unix_sock(sk);

	return local ? BPF_CORE_READ((struct unix_sock___peer *)local, peer) : NULL;
}

/*
 * Which end of a UDP socket this is. On one whose port the program chose requests come in, unless its first
 * use is a send: a DNS resolver chooses the ports from which it asks. Of a socket that is older than the
 * recording, the kernel shows whether something has come in: it keeps the rest of a page for what comes
 * next (net/ipv4/udp.c, udp_rmem_release).
 */
static __always_inline int udp_role(struct sock *sk)
{
	bool is_bound = BPF_CORE_READ_BITFIELD(sk, sk_userlocks) & SOCK_BINDPORT_LOCK;

	return is_bound && sk->sk_forward_alloc ? SL_SERVER : SL_CLIENT;
}

/* Which end of a connection this socket of the current process is. */
static __noinline int role_of(struct sock *sk)
{
	struct tcp_sock *tcp;
	struct sock *peer;

	switch (sk->__sk_common.skc_family) {
	case AF_UNIX:
		if (listens_unix(sk))
			return SL_SERVER;
		peer = unix_peer(sk);
		if (peer && BPF_CORE_READ((struct unix_sock *)peer, addr))
			return SL_CLIENT;
		return SL_INTERNAL;
	case AF_INET:
	case AF_INET6:
		tcp = bpf_skc_to_tcp_sock(sk);
		if (tcp)
			return tcp_connected(sk, tcp) ? SL_CLIENT : SL_SERVER;
		if (sk->sk_protocol != IPPROTO_UDP)
			return SL_SERVER;
		return udp_role(sk);
	case AF_VSOCK:
		return SL_SERVER;
	default: /* netlink and the like: the kernel's own */
		return SL_OTHER;
	}
}

/* Writes an entry of a socket. */
static __always_inline void write_of(struct flow *f, struct sl_entry *e, struct slice_thread *s,
				     const struct ts_meter *m, const struct socket_text *extra)
{
	bool after_loss = f->lost;

	settle_turn_here();
	if (unlikely(after_loss))
		e->detail |= SL_AFTER_LOSS;
	if (unlikely(write_entry(e, s, m, extra)))
		f->lost = 1;
	else if (unlikely(after_loss))
		f->lost = 0; /* of two threads' losses at once, one may stay unsaid */
}

/* Introduces a socket to the recorder. If that is lost, the next entry tries again. */
static __noinline int introduce(struct sock *sk, struct flow *f, struct slice_thread *s,
				const struct ts_meter *m)
{
	struct sl_entry e = {.kind = SL_SOCKET, .extra = sizeof(struct sl_socket)};
	union {
		struct sl_socket socket;
		struct socket_text text;
	} said = {};
	struct peer peer = {};

	if (!f || !s || !m)
		return 0;
	if (!f->decided) {
		f->role = role_of(sk);
		f->is_udp = f->role == SL_SERVER && sk->sk_protocol == IPPROTO_UDP;
		f->decided = 1;
	}
	f->cookie = bpf_get_socket_cookie(sk);
	e.at = bpf_ktime_get_ns();
	e.socket = f->cookie;
	e.detail = f->role;
	peer_of(&peer, sk);
	__builtin_memcpy(said.socket.address, peer.address, sizeof(peer.address));
	said.socket.port = peer.port;
	said.socket.family = peer.family;
	said.socket.protocol = sk->sk_protocol;
	said.socket.local_port = sk->__sk_common.skc_num;
	if (peer.family == AF_INET)
		*(__u32 *)said.socket.local_address = sk->__sk_common.skc_rcv_saddr;
	else if (peer.family == AF_INET6)
		bpf_core_read(said.socket.local_address, 16, &sk->__sk_common.skc_v6_rcv_saddr);
	if (peer.family == AF_UNIX) {
		said.socket.own = (__u64)sk;
		said.socket.peer = (__u64)unix_peer(sk);
	}
	write_of(f, &e, s, m, &said.text);
	if (unlikely(f->lost))
		f->cookie = f->ready = 0;
	return 0;
}

/* The thread that runs here, and its meter; NULL: it is not followed. */
static __always_inline struct slice_thread *slice_thread_here(struct ts_meter **m)
{
	struct cpu *cpu = this_cpu();
	struct slice_thread *s;

	*m = current_meter(cpu);
	if (!*m)
		return NULL;
	s = slice_thread_at(cpu->map, cpu->slot, *m);
	if (s && unlikely(!s->pid))
		s->pid = shown_pid(bpf_get_current_task_btf());
	return s;
}

/* The state of a socket that the recorder knows; NULL: nothing is to be said of it. */
static __always_inline struct flow *known_flow(struct sock *sk, struct slice_thread *s,
					       const struct ts_meter *m)
{
	struct flow *f = flow_of(sk);

	if (unlikely(!f))
		f = new_flow(sk);
	if (!f)
		return NULL;
	if (unlikely(!f->cookie))
		introduce(sk, f, s, m);
	return !f->cookie || f->role == SL_OTHER ? NULL : f;
}

#endif
