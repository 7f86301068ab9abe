/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a TCP socket says of itself: which side opened it, and why it keeps data back. */
#ifndef TAILSCOPE_TCP_H
#define TAILSCOPE_TCP_H

#include "types.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <tailscope_abi.h>

/* States of a socket (include/net/tcp_states.h). */
#define TCP_ESTABLISHED 1
#define TCP_SYN_SENT 2
#define TCP_SYN_RECV 3
#define TCP_FIN_WAIT1 4
#define TCP_CLOSE 7
#define TCP_CLOSE_WAIT 8
#define TCP_LAST_ACK 9
#define TCP_LISTEN 10

#define SOCK_BINDPORT_LOCK 8 /* the program bound a port (include/net/sock.h) */

/*
 * Whether this end opened the connection. The kernel marks a port that connect chose, so that
 * nobody else may bind it (net/ipv4/inet_hashtables.c, __inet_hash_connect). What accept gives has
 * the port of the listening socket, and not its lock (net/core/sock.c, sk_clone_lock).
 *
 * A program can also bind port 0 before it connects, as Tcl does. Such a socket has neither mark. What
 * accept gives has the backlog of the listening socket, too. That may be 0, but hardly at a port that
 * the kernel chooses by default.
 */
#define CHOSEN_PORT 32768

static __always_inline bool tcp_connected(struct sock *sk, struct tcp_sock *tcp)
{
	struct inet_bind_bucket *port = tcp->inet_conn.icsk_bind_hash;

	if (port && port->fastreuse == -1)
		return true;
	if (BPF_CORE_READ_BITFIELD(sk, sk_userlocks) & SOCK_BINDPORT_LOCK)
		return true;
	return !sk->sk_max_ack_backlog && sk->__sk_common.skc_num >= CHOSEN_PORT;
}

/* Whether TCP has passed on all data of this socket. */
static __always_inline bool all_passed_on(const struct tcp_sock *tcp)
{
	return tcp->snd_nxt == tcp->write_seq;
}

/*
 * When this socket's last data left; `now`, if some has not. If the other side has not acknowledged
 * it all, an ACK that left since then counts for it.
 */
static __always_inline __u64 passed_on_at(const struct tcp_sock *tcp, __u64 now)
{
	__u64 acknowledged = tcp->rack.mstamp * 1000;

	if (!all_passed_on(tcp))
		return now;
	return tcp->snd_una == tcp->write_seq && acknowledged ? acknowledged : tcp->tcp_wstamp_ns;
}

/* What keeps back the bytes that are not sent, as net/ipv4/tcp_output.c decides it. */
static __always_inline __u16 tcp_held(struct tcp_sock *tcp)
{
	__u32 unsent = tcp->write_seq - tcp->snd_nxt;
	__u8 nonagle;

	if (likely((__s32)unsent <= 0))
		return TS_HELD_NOT;
	if ((__s32)(tcp->write_seq - (tcp->snd_una + tcp->snd_wnd)) > 0)
		return TS_HELD_WINDOW;
	if (tcp->packets_out >= tcp->snd_cwnd)
		return TS_HELD_CONGESTION;
	nonagle = BPF_CORE_READ_BITFIELD(tcp, nonagle);
	if (unsent < tcp->mss_cache) {
		if (nonagle & 2 /* TCP_NAGLE_CORK */)
			return TS_HELD_CORK;
		if (!(nonagle & 1 /* TCP_NAGLE_OFF */) && tcp->packets_out)
			return TS_HELD_NAGLE;
	}
	return TS_HELD_OTHER;
}

#endif
