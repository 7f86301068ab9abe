/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A hook on every change of a socket's state that is never skipped.
 *
 * The kernel skips a program that is running on that CPU already. A system call (connect, close)
 * changes the state of a socket that its task owns, and a timer's interrupt in the midst of it can
 * acknowledge for hundreds of connections at once, whose states change in that interrupt. So there
 * are two programs. Where one is interrupted, the other one sees what is changed in the interrupt:
 * the first takes the sockets that no task owns, the second those that a task owns and what the first
 * was skipped for. Packets leave an owned socket alone (net/ipv4/tcp_ipv4.c, tcp_v4_rcv).
 */
#ifndef TAILSCOPE_SOCKET_STATE_H
#define TAILSCOPE_SOCKET_STATE_H

#include "meters.h"

/* Takes a change for the first program; whether it is its. */
static __always_inline bool takes_state(struct sock *sk, int to)
{
	struct cpu *cpu = this_cpu();

	if (sk->sk_lock.owned)
		return false;
	cpu->changed = (__u64)sk;
	cpu->changed_to = to;
	return true;
}

/* Whether the second program is to take a change. */
static __always_inline bool leaves_state(struct sock *sk, int to)
{
	struct cpu *cpu = this_cpu();
	bool taken = cpu->changed == (__u64)sk && cpu->changed_to == to;

	cpu->changed = 0; /* it is about this change, or was left by one that this program missed */
	return sk->sk_lock.owned || !taken;
}

/* They are attached in this order, and run in it. */
#define ON_SOCKET_STATE(name, function)                                   \
	SEC("tp_btf/inet_sock_set_state")                                 \
	int BPF_PROG(name, struct sock *sk, int from, int to)             \
	{                                                                 \
		return takes_state(sk, to) ? function(sk, from, to) : 0;  \
	}                                                                 \
	SEC("tp_btf/inet_sock_set_state")                                 \
	int BPF_PROG(name##_rest, struct sock *sk, int from, int to)      \
	{                                                                 \
		return leaves_state(sk, to) ? function(sk, from, to) : 0; \
	}

#endif
