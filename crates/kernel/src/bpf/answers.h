/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Answers and their rows. An answer may take several sends, so the row of the latest lies with the
 * socket until something shows that it was the last: a receive, the end of the connection, or two
 * seconds in which nothing came (the recorder has an iterator look for those). Its end is then when
 * TCP had passed on the last byte, if it kept some back.
 */
#ifndef TAILSCOPE_ANSWERS_H
#define TAILSCOPE_ANSWERS_H

#include "requests.h"
#include "rings.h"

/* Rows that are finished outside of their thread, perhaps in an interrupt: the rings of the CPUs
 * have one producer. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, LATE_ROWS_BYTES);
} late_rows SEC(".maps");

/* Room for 15 shares, the most that the verifier sees after the mask. */
#define LATE_ROW_BYTES (TS_KERNEL_ROW_MAX + sizeof(struct ts_share))

SEC(".bss.late") struct late late = {};

/* Adds the request's share of a cause to its row, if it had any. */
static __always_inline void note_share(struct request *r, const struct ts_meter *m, int cause)
{
	__u32 n = m->totals.n[cause] - r->begin.n[cause];
	struct ts_share *share = &r->share[r->shares & CAUSES_MASK];

	if (!n) /* then it got no time either */
		return;
	share->ns = m->totals.ns[cause] - r->begin.ns[cause];
	share->n = n;
	share->who = 0;
	if (TS_BLAMED_CAUSES & 1u << cause)
		share->who = blamed_in(&m->recent[cause], m->totals.n[cause], n);
	r->shares++;
	r->causes |= 1u << cause;
}

/* The row so far, with the causes up to this send. */
static __always_inline void note_answer(struct request *r, const struct ts_meter *m, __u64 now)
{
	const __u64 *pairs = (const __u64 *)m->totals.n, *pairs_begin = (__u64 *)r->begin.n;
	__u64 self = shown_ids();
	__u32 begun = m->begun - r->begun, spans = m->spans - r->spans;

	settle_turn_here();
	r->shares = 0;
	r->causes = 0;
#pragma unroll
	for (int i = 0; i < TS_CAUSES / 2; i++) { /* most causes struck no request */
		if (likely(pairs[i] == pairs_begin[i]))
			continue;
		note_share(r, m, 2 * i);
		note_share(r, m, 2 * i + 1);
	}
	if (TS_CAUSES % 2)
		note_share(r, m, TS_CAUSES - 1);
	r->ended = now;
	r->pid = self >> 32;
	r->tid = self;
	r->cpu = bpf_get_smp_processor_id();
	r->others = begun > spans ? begun : spans;
	r->answers++;
}

/* The same where another thread sends than received: what the request did since the receive, or since
 * its thread's last send, is not known. */
static __always_inline void note_answer_elsewhere(struct request *r, __u64 now)
{
	struct special *more = special(r);
	__u64 self = shown_ids();

	r->elsewhere = 1;
	if (r->answered) {
		more->unknown_ns += now - r->ended;
	} else {
		more->unknown_ns = now - r->since - r->queue_ns - more->accept_ns;
		r->others = 0;
		r->shares = 0;
		r->causes = 0;
		r->pid = self >> 32;
		r->tid = self;
	}
	r->ended = now;
	r->cpu = bpf_get_smp_processor_id();
	r->answers++;
}

/* Copies what few requests have behind their shares. */
static __noinline int copy_special(struct ts_row *row, struct ts_request *more,
				   const struct request *r, __u64 tcp_ns)
{
	row->flags = TS_ROW_HAS_REQUEST;
	__builtin_memset(more, 0, sizeof(*more));
	if (r->is_special) {
		more->accept_ns = r->special.accept_ns;
		more->unknown_ns = r->special.unknown_ns;
		more->blocked_ns = r->special.blocked_ns;
		more->family = r->special.peer.family;
		more->port = r->special.peer.port;
		__builtin_memcpy(more->address, r->special.peer.address, sizeof(more->address));
	}
	more->others = r->others;
	more->tcp_ns = tcp_ns;
	more->tcp_why = tcp_ns ? r->held : TS_HELD_NOT;
	return 0;
}

/* Copies the row, with the time that TCP added; returns its length. */
static __always_inline __u64 copy_row(struct ts_row *row, const struct request *r, __u64 tcp_ns,
				      __u16 kept)
{
	struct ts_share *share = (struct ts_share *)(row + 1);
	__u32 shares = r->shares;

	__builtin_memset(row, 0, sizeof(*row));
	row->begin = r->since;
	row->wall = r->ended - r->since + tcp_ns;
	row->pid = r->pid;
	row->tid = r->tid;
	row->causes = r->causes;
	row->cpu = r->cpu;
	row->queue_ns = r->queue_ns;
	row->kept = kept;
	for (int i = 0; i < TS_CAUSES; i++) {
		if ((__u32)i >= shares)
			break;
		share[i] = r->share[i];
	}
	if (likely(!tcp_ns && !r->is_special && !r->others))
		return sizeof(*row) + (shares & CAUSES_MASK) * sizeof(*share);
	copy_special(row, (struct ts_request *)(share + (shares & CAUSES_MASK)), r, tcp_ns);
	return sizeof(*row) + (shares & CAUSES_MASK) * sizeof(*share) + sizeof(struct ts_request);
}

static __always_inline __u64 tcp_time(const struct request *r)
{
	return r->held && r->sent > r->ended ? r->sent - r->ended : 0;
}

/* Writes the row of an answer that is over. In the context of a task only. */
static __always_inline void finish(struct request *r)
{
	__u32 cpu = bpf_get_smp_processor_id();
	__u64 tcp_ns = tcp_time(r), head;
	struct ts_ring *ring;
	struct ts_row *row;
	__u16 kept;

	if (unlikely(r->protocol == PROTOCOL_TLS))
		__sync_fetch_and_add(&uncovered.encrypted, 1);
	if (likely(keeps(SOCKET_SOURCE, r->ended - r->since + tcp_ns, &kept))) {
		ring = bpf_map_lookup_elem(&rows, &cpu);
		row = ring ? next_row(ring, &head) : NULL;
		if (likely(row))
			publish(ring, head + copy_row(row, r, tcp_ns, kept));
		else
			__sync_fetch_and_add(&lost.rows, 1);
	}
	r->answers++; /* for one who is just copying it */
	barrier();
	forget(r);
}

/* The same for the ways that few receives and sends go. */
static __noinline int finish_rarely(struct request *r)
{
	finish(r);
	return 0;
}

/* The same from anywhere; false if there was no room. */
static __noinline int finish_late(struct request *r)
{
	struct ts_row *row;
	__u64 tcp_ns;
	__u16 answers, kept;

	if (!r)
		return 0;
	answers = *(volatile __u16 *)&r->answers;
	if (!*(volatile __u64 *)&r->since)
		return 1; /* its thread has just written it */
	tcp_ns = tcp_time(r);
	if (keeps(SOCKET_SOURCE, r->ended - r->since + tcp_ns, &kept)) {
		row = bpf_ringbuf_reserve(&late_rows, LATE_ROW_BYTES, 0);
		if (!row)
			return 0;
		copy_row(row, r, tcp_ns, kept);
		if (*(volatile __u16 *)&r->answers != answers) {
			bpf_ringbuf_discard(row, 0); /* its thread has just gone on */
			return 1;
		}
		bpf_ringbuf_submit(row, BPF_RB_NO_WAKEUP);
	}
	forget(r);
	return 1;
}

/* Learns when TCP passed on what it kept back, as long as nothing else has been sent here. */
static __always_inline void note_sent(struct request *r, struct sock *sk, __u64 now)
{
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);

	if (!tcp || r->sent)
		return;
	r->sent = passed_on_at(tcp, now);
}

/* Finishes the answer on this socket if its latest send is long ago. */
static __always_inline void finish_answer(struct sock *sk, struct request *r)
{
	struct tcp_sock *tcp;

	if (!r || !r->answered || r->ended > *(volatile __u64 *)&late.before)
		return;
	if (r->held) {
		tcp = bpf_skc_to_tcp_sock(sk);
		/* What still waits for the receiver is no whole answer. */
		if (tcp && !all_passed_on(tcp) && late.before != ~0ull)
			return;
		note_sent(r, sk, bpf_ktime_get_ns());
	}
	if (finish_late(r))
		r->late = 1;
	else
		late.left++;
}

/* For each socket that has a state. */
SEC("iter/bpf_sk_storage_map")
int finish_answers(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	/* Read once: Linux 6.1 takes another reading for one that may be NULL. */
	struct sock *sk = ctx->sk;

	if (sk && ctx->value)
		finish_answer(sk, request_of(sk));
	return 0;
}

/* The same where the kernel refuses that iterator, as some hardened ones do: for each socket that a
 * watched process has open. An answer is not finished while its socket is only on its way from one
 * process to another. */
SEC("iter/task_file")
int finish_answers_of_files(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct socket *socket;

	if (!task || !file || !may_be_watched(task->tgid))
		return 0;
	socket = bpf_sock_from_file(file);
	if (socket && socket->sk)
		finish_answer(socket->sk, request_of(socket->sk));
	return 0;
}

#endif
