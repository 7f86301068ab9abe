/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a library for TLS has decrypted, for the source of spans `request`: what the kernel receives
 * is encrypted, so the names of such requests are in the first bytes that the program gets from
 * SSL_read (OpenSSL, BoringSSL).
 *
 * Which connection they came on, the library does not say. It is the one that the same thread has
 * received on last: the library receives when it is asked for bytes and has none left.
 */
#ifndef TAILSCOPE_TLS_H
#define TAILSCOPE_TLS_H

#include "flows.h"

SEC("uprobe")
int on_uprobe_tls_read(struct pt_regs *ctx)
{
	struct slice_thread *s;
	struct ts_meter *m;

	s = slice_thread_here(&m);
	if (!s)
		return 0;
	s->plain = PT_REGS_PARM2(ctx);
	s->plain_length = bpf_get_attach_cookie(ctx) ? PT_REGS_PARM4(ctx) : 0;
	return 0;
}

/* How many bytes the call that ends has decrypted. */
static __always_inline __u32 decrypted(struct pt_regs *ctx, const struct slice_thread *s)
{
	__s32 returned = PT_REGS_RC(ctx);
	__u64 length = 0;

	if (returned <= 0 || !s->plain_length)
		return returned < 0 ? 0 : returned;
	if (bpf_probe_read_user(&length, sizeof(length), (void *)s->plain_length))
		return 0;
	return length < 1u << 31 ? length : 0;
}

SEC("uprobe")
int on_uprobe_tls_return(struct pt_regs *ctx)
{
	struct sl_entry e = {.kind = SL_PLAIN};
	struct socket_text text = {};
	struct slice_thread *s;
	struct ts_meter *m;
	__u64 at;

	s = slice_thread_here(&m);
	if (!s || !s->plain)
		return 0;
	at = s->plain;
	s->plain = 0;
	e.socket = s->received;
	s->received = 0; /* what it lacks of a record comes with another receive */
	e.length = e.socket ? decrypted(ctx, s) : 0;
	if (!e.length)
		return 0;
	e.extra = copy_text(&text, at, e.length);
	e.at = bpf_ktime_get_ns();
	write_entry(&e, s, m, e.extra ? &text : NULL);
	if (config.traces && is_http(*(__u32 *)text.bytes))
		find_trace(&e, s, m, at);
	return 0;
}

#endif
