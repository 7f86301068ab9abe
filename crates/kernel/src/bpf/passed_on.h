/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* When TCP passed on what it had kept back of an answer, for the source of spans `request`. */
#ifndef TAILSCOPE_PASSED_ON_H
#define TAILSCOPE_PASSED_ON_H

#include "flow.h"
#include "tcp.h"

/* Learns when TCP passed on what it kept back, as long as nothing else has been sent here. */
static __always_inline void note_passed_on(struct flow *f, struct sock *sk, __u64 now)
{
	struct tcp_sock *tcp = f->sent ? NULL : bpf_skc_to_tcp_sock(sk);

	if (tcp)
		f->sent = passed_on_at(tcp, now);
}

/* Tells when the end of the latest answer had left, which was after its send, as far as noted. */
static __noinline int write_passed_on(struct flow *f, struct slice_thread *s,
				      const struct ts_meter *m, __u64 now)
{
	struct sl_entry e = {.kind = SL_PASSED_ON, .at = now};

	if (!f || !s || !m)
		return 0;
	e.since = f->sent;
	e.socket = f->cookie;
	f->held = TS_HELD_NOT;
	write_of(f, &e, s, m, NULL);
	return 0;
}

static __always_inline void tell_passed_on(struct sock *sk, struct flow *f, struct slice_thread *s,
					   const struct ts_meter *m)
{
	__u64 now = bpf_ktime_get_ns();

	note_passed_on(f, sk, now);
	write_passed_on(f, s, m, now);
}

/* Whether what TCP had kept back here had left when that many bytes were sent, or left then. */
static __always_inline bool had_passed_on(const struct flow *f, const struct tcp_sock *tcp,
					  int length)
{
	return unlikely(f->held) && tcp && (__s32)(tcp->write_seq - length - tcp->snd_nxt) <= 0;
}

#endif
