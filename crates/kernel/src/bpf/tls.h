/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a library for TLS has decrypted, for the source of spans `request`: what the kernel receives
 * is encrypted, so the names of such requests are in the first bytes that the program gets from
 * SSL_read (OpenSSL, BoringSSL). Of HTTP/2 the frames are followed there, and in what the program
 * gives to SSL_write.
 *
 * Which connection they came on, the library does not say. It is the one that the same thread has
 * received on last: the library receives when it is asked for bytes and has none left.
 */
#ifndef TAILSCOPE_TLS_H
#define TAILSCOPE_TLS_H

#include "flows.h"

/* The library's object of a connection of HTTP/2. */
struct tls_key {
	__u64 ssl;
	__u32 tgid;
	__u32 reserved;
};

struct tls_connection {
	__u64 socket;
	struct frames received;
	struct frames sends;
	__u64 framed; /* it is HTTP/2 for sure */
};

/* The loader makes it small where nobody asks. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, struct tls_key);
	__type(value, struct tls_connection);
} tls_connections SEC(".maps");

/* Whether what programs write is seen. */
SEC(".bss.tls_writes") __u32 tls_writes = 0;

SEC("uprobe")
int on_uprobe_tls_begin(struct pt_regs *ctx)
{
	struct slice_thread *s;
	struct ts_meter *m;

	s = slice_thread_here(&m);
	if (!s)
		return 0;
	s->ssl = PT_REGS_PARM1(ctx);
	s->plain = PT_REGS_PARM2(ctx);
	s->plain_length = bpf_get_attach_cookie(ctx) ? PT_REGS_PARM4(ctx) : 0;
	s->received_before = s->received;
	s->received = s->sent_on = 0;
	return 0;
}

/* How many bytes the call that ends has decrypted, or taken. */
static __always_inline __u32 plain_bytes(struct pt_regs *ctx, const struct slice_thread *s)
{
	__s32 returned = PT_REGS_RC(ctx);
	__u64 length = 0;

	if (returned <= 0 || !s->plain_length)
		return returned < 0 ? 0 : returned;
	if (bpf_probe_read_user(&length, sizeof(length), (void *)s->plain_length))
		return 0;
	return length < 1u << 31 ? length : 0;
}

static __always_inline struct tls_key tls_key(const struct slice_thread *s)
{
	struct tls_key key = {.ssl = s->ssl};

	key.tgid = bpf_get_current_pid_tgid() >> 32;
	return key;
}

/* The connection of this call, if it may be HTTP/2. */
static __noinline struct tls_connection *tls_connection(const struct slice_thread *s)
{
	struct tls_key key;

	if (!s)
		return NULL;
	key = tls_key(s);
	return bpf_map_lookup_elem(&tls_connections, &key);
}

/* The library uses its object for another connection. */
static __noinline int forget_tls_connection(const struct slice_thread *s)
{
	struct tls_key key;

	if (!s)
		return 0;
	key = tls_key(s);
	return bpf_map_delete_elem(&tls_connections, &key);
}

/* Whether the object is used for another connection than before. Where the thread has received on
 * another one before the call, that may have been for something else; then the bytes decide. */
static __always_inline bool is_used_again(const struct tls_connection *c, __u64 inside,
					  __u64 before, __u32 first)
{
	if (inside)
		return inside != c->socket;
	if (!before || before == c->socket || c->received.left || c->received.have)
		return false;
	return first & 0xff; /* no frame begins so: a preface, or another protocol */
}

/* One of which nothing is known yet: the stack has no room for it. */
SEC(".rodata.tls") const struct tls_connection new_connection = {};

/* Remembers the connection if these bytes can be the begin of HTTP/2, or of one of its frames. */
static __noinline struct tls_connection *
new_tls_connection(const struct slice_thread *s, __u64 socket, const struct socket_text *text)
{
	struct tls_connection *c;
	__u32 first = *(const __u32 *)text->bytes;
	struct tls_key key = tls_key(s);

	if (protocol_of(first) != PROTOCOL_HTTP2 &&
	    ((first & 0xff) || first >> 24 >= FRAME_CONTINUATION))
		return NULL;
	bpf_map_update_elem(&tls_connections, &key, &new_connection, BPF_ANY);
	c = bpf_map_lookup_elem(&tls_connections, &key);
	if (c)
		c->socket = socket;
	return c;
}

/* Whether it is HTTP/2. The frames at `at` have been reported then. */
static __always_inline bool tells_decrypted(struct tls_connection *c, struct slice_thread *s,
					    const struct ts_meter *m, struct sl_entry *e, __u64 at)
{
	s->walk.given = at;
	if (!c->framed && look_for_frames(&c->received, s, m, e->length, true)) {
		c->framed = c->received.followed = 1;
		if (c->received.left && tls_writes) /* the preface, and all that is sent is seen */
			c->sends.followed = 1;
		e->kind = SL_FRAMED;
		e->socket = c->socket;
		e->extra = 0;
		write_entry(e, s, m, NULL);
	}
	if (c->framed) {
		e->kind = SL_STREAM_RECEIVE;
		e->socket = c->socket;
		e->detail = SL_SERVER;
		tell_frames(&c->received, s, m, e);
	}
	s->walk.given = 0;
	return c->framed;
}

SEC("uprobe")
int on_uprobe_tls_read(struct pt_regs *ctx)
{
	struct sl_entry e = {.kind = SL_PLAIN};
	struct socket_text text = {};
	struct tls_connection *c;
	struct slice_thread *s;
	struct ts_meter *m;
	__u64 at, inside;

	s = slice_thread_here(&m);
	if (!s || !s->plain)
		return 0;
	at = s->plain;
	inside = s->received;
	s->plain = s->received = 0; /* what it lacks of a record comes with another receive */
	c = tls_connection(s);
	e.socket = inside ? inside : s->received_before;
	if (!e.socket && !c)
		return 0;
	e.length = plain_bytes(ctx, s);
	if (!e.length)
		return 0;
	e.extra = copy_text(&text, at, e.length);
	e.at = bpf_ktime_get_ns();
	if (c && is_used_again(c, inside, s->received_before, *(__u32 *)text.bytes)) {
		forget_tls_connection(s);
		c = NULL;
	}
	if (!c && e.socket && e.socket != NO_SERVERS && e.extra >= FRAME_HEADER)
		c = new_tls_connection(s, e.socket, &text);
	if (c && tells_decrypted(c, s, m, &e, at))
		return 0;
	if (!e.socket || e.socket == NO_SERVERS)
		return 0;
	write_entry(&e, s, m, e.extra ? &text : NULL);
	if (config.traces && is_http(*(__u32 *)text.bytes))
		find_trace(&e, s, m, at);
	return 0;
}

SEC("uprobe")
int on_uprobe_tls_write(struct pt_regs *ctx)
{
	struct sl_entry e = {.kind = SL_STREAM_SEND, .detail = SL_SERVER};
	struct tls_connection *c;
	struct slice_thread *s;
	struct ts_meter *m;
	__u64 at;

	tls_writes = 1;
	s = slice_thread_here(&m);
	if (!s || !s->plain)
		return 0;
	at = s->plain;
	s->plain = 0;
	s->received = s->received_before; /* the begin took it for a read */
	c = tls_connection(s);
	if (!c || !c->framed)
		return 0;
	e.length = plain_bytes(ctx, s);
	if (!e.length)
		return 0;
	if (s->sent_on && s->sent_on != c->socket) {
		forget_tls_connection(s);
		return 0;
	}
	e.at = bpf_ktime_get_ns();
	e.socket = c->socket;
	e.since = s->sent_on ? s->sent_held : SL_NOT_SENT;
	s->walk.given = at;
	tell_frames(&c->sends, s, m, &e);
	s->walk.given = 0;
	return 0;
}

#endif
