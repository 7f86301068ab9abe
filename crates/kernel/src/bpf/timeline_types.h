/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The kernel's types that only the timeline reads, cut down like those of types.h. */
#ifndef TAILSCOPE_TIMELINE_TYPES_H
#define TAILSCOPE_TIMELINE_TYPES_H

#include "types.h"

struct sock_common {
	__u16 skc_dport; /* as on the wire */
	__u16 skc_num;
	volatile unsigned char skc_state;
} CORE;

struct sock {
	struct sock_common __sk_common;
	__u16 sk_protocol;
} CORE;

struct sk_buff {
	struct sock *sk;
	unsigned int len;
	__u16 transport_header;
	unsigned char *head;
	unsigned char *data;
} CORE;

struct inet_bind_bucket {
	signed char fastreuse;
} CORE;

struct inet_connection_sock {
	struct inet_bind_bucket *icsk_bind_hash;
} CORE;

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	__u32 snd_wnd;
	__u32 mss_cache;
	__u32 snd_cwnd;
	__u32 copied_seq;
	__u32 write_seq;
	__u8 nonagle : 4;
	__u32 snd_nxt;
	__u32 snd_una;
	__u32 packets_out;
} CORE;

/* On the wire, so not relocated. */
struct tcp_header {
	__u16 source;
	__u16 dest;
	__u32 seq;
	__u32 ack_seq;
	__u8 offset; /* of the data, in words, in the upper half */
	__u8 bits;
};

struct request {
	unsigned int __data_len;
} CORE;

#endif
