/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Where watched processes listen, and how connections begin and end: from the tracepoint
 * inet_sock_set_state, and for sockets that were open before from an iterator over files.
 */
#include "answers.h"
#include "socket_state.h"

/* The handshake of a connection that somebody is to accept has ended. */
static __always_inline void connection_begins(struct sock *sk)
{
	struct request *r;

	if (!config.from_ready || !listens[sk->__sk_common.skc_num])
		return;
	r = new_request(sk);
	if (r)
		r->established = bpf_ktime_get_ns();
}

/* This side sends no more: from a task, in shutdown or close, which passes on all that is held. */
static __always_inline void sending_ends(struct sock *sk)
{
	struct request *r = request_of(sk);

	if (!r || !r->answered)
		return;
	if (r->held && !r->sent)
		r->sent = bpf_ktime_get_ns();
	finish(r);
}

/* The connection is gone, often in an interrupt. */
static __always_inline void connection_ends(struct sock *sk)
{
	struct request *r = request_of(sk);

	if (!r)
		return;
	if (r->answered && !finish_late(r))
		__sync_fetch_and_add(&lost.rows, 1);
	give_up(r);
}

static __always_inline int socket_state(struct sock *sk, int from, int to)
{
	struct tcp_sock *tcp;
	struct request *r;

	switch (to) {
	case TCP_ESTABLISHED:
		if (from == TCP_SYN_RECV)
			connection_begins(sk);
		break;
	case TCP_SYN_SENT: /* one that has a port already does not look like a client's */
		tcp = this_cpu()->map ? bpf_skc_to_tcp_sock(sk) : NULL;
		if (tcp && tcp->inet_conn.icsk_bind_hash) {
			r = new_request(sk);
			if (r)
				r->is_client = 1;
		}
		break;
	case TCP_LISTEN:
		if (this_cpu()->map)
			listens[sk->__sk_common.skc_num] = 1;
		break;
	case TCP_FIN_WAIT1:
	case TCP_LAST_ACK:
		sending_ends(sk);
		break;
	case TCP_CLOSE:
		connection_ends(sk);
		break;
	}
	return 0;
}

ON_SOCKET_STATE(on_socket_state, socket_state)

/* Read once for each process that is to be watched: learns where it listens. */
SEC("iter/task_file")
int take_in_listeners(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct socket *socket;
	struct sock *sk;
	__u32 tgid;

	if (!task || !file || !may_be_watched(task->tgid))
		return 0;
	tgid = task->tgid;
	if (!bpf_map_lookup_elem(&processes, &tgid))
		return 0;
	socket = bpf_sock_from_file(file);
	sk = socket ? socket->sk : NULL;
	if (!sk || sk->__sk_common.skc_state != TCP_LISTEN)
		return 0;
	if (sk->__sk_common.skc_family == AF_UNIX)
		listens_unix(sk);
	else
		listens[sk->__sk_common.skc_num] = 1;
	return 0;
}
