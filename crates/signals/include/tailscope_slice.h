/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What threads of watched servers do, as the kernel's programs write it for the source of spans
 * `request`: receives, sends, waits and wake-ups. The recorder puts requests together from it.
 *
 * An entry lies in a ring of a CPU (struct ts_ring). For each bit of `causes`, lowest first, a
 * struct ts_share follows: what the thread's meter grew by since the thread's entry before. After
 * the shares come `extra` bytes.
 */
#ifndef TAILSCOPE_SLICE_H
#define TAILSCOPE_SLICE_H

#include <linux/types.h>

/* What happened. `at` is when, `pid` and `tid` are the thread's. */
enum sl_kind {
	SL_SOCKET = 1,	/* first use of a socket; extra: struct sl_socket */
	SL_RECEIVE = 2, /* since: its data was ready, 0: not known; extra: the first bytes */
	SL_SEND = 3,	/* a send has returned; since: enum ts_held, of its end */
	SL_CLOSE = 4,	/* this side of the connection sends no more */
	/* the thread leaves its CPU; detail: why, enum ts_cause; since: the futex that it waits for,
	 * or for how long it waits for sockets at the most, in ns, 0: not known; length: enum sl_wait */
	SL_BLOCK = 5,
	/* and has one again; since: its wake-up, detail: as when it left, length: 1 if a timer woke it */
	SL_RUN = 6,
	SL_WAKE = 7, /* wakes the thread `length`, which waits; detail: enum ts_cause */
	/* the request that was just received here belongs to a trace; extra: SL_TRACE_BYTES of its
	 * traceparent header's value */
	SL_TRACE = 8,
	/* TCP had kept back the end of the latest send here; since: until when, 0: nothing shows it */
	SL_PASSED_ON = 9,
	/* what was received on the socket last has been decrypted; extra: the first bytes */
	SL_PLAIN = 10,
	/*
	 * A frame of HTTP/2 was received: headers, data, or the end of a stream. length: the stream;
	 * detail: enum sl_role and enum sl_frame; since: as of SL_RECEIVE, which is left out on such
	 * connections; extra: the headers, as they are compressed
	 */
	SL_STREAM_RECEIVE = 11,
	SL_STREAM_SEND = 12, /* the same of a send; since: as of SL_SEND */
	SL_HEADERS = 13, /* extra: more of the headers of the entry before; detail: enum sl_frame */
	/* where frames begin on this connection is not known; detail: SL_BEGINS for a receive */
	SL_UNFRAMED = 14,
	SL_FRAMED =
	    15, /* what TLS decrypts on this socket is HTTP/2: SL_RECEIVE says nothing of requests */
	/* makes the thread `length` of its own process, whose first entry is SL_RUN, of TS_PREEMPTED */
	SL_SPAWN = 16,
};

/* What a frame of HTTP/2 is; beside enum sl_role. */
enum sl_frame {
	SL_BEGINS = 0x04, /* headers: of a request, of an answer, or those that end one */
	SL_ENDS = 0x08,	  /* nothing more comes on the stream this way */
	SL_RESETS = 0x10, /* the stream is broken off, both ways */
	SL_MORE = 0x20,	  /* an entry SL_HEADERS follows */
	SL_CUT = 0x40,	  /* the headers go on, and the rest is not reported */
};
#define SL_ROLE_MASK 0x03
/* In `detail` of an entry of a socket: one before it of this socket was lost. */
#define SL_AFTER_LOSS 0x80
/* In `detail` of SL_RECEIVE: its data was ready before the connection was accepted. */
#define SL_UNACCEPTED 0x40
/* In `detail` of SL_RECEIVE and SL_SEND: on a socket of UDP on which requests come in. */
#define SL_DATAGRAM 0x20
/* Likewise of SL_RECEIVE: what comes in there is QUIC. */
#define SL_QUIC 0x10
/* SL_STREAM_SEND, in place of enum ts_held: TLS has encrypted it, and it is still to be sent. */
#define SL_NOT_SENT 255

/* In which call a thread waits for a socket. */
enum sl_wait {
	SL_POLLS = 0, /* for several sockets, or it is not known */
	SL_SENDS = 1,
	SL_RECEIVES = 2,
};

/* Which end of a connection a socket is. */
enum sl_role {
	SL_OTHER = 0,	 /* not a connection between two programs */
	SL_SERVER = 1,	 /* accepted: requests come in here */
	SL_CLIENT = 2,	 /* this process connected it: to another server */
	SL_INTERNAL = 3, /* one end of a pair that this process made (socketpair) */
};

struct sl_entry {
	__u64 at;     /* CLOCK_MONOTONIC, ns */
	__u64 since;  /* see enum sl_kind */
	__u64 socket; /* its cookie; 0: none */
	__u32 pid;
	__u32 tid;
	__u32 length; /* bytes received or sent, at most 2^31; or a thread */
	__u32 number; /* of this entry among its thread's; a gap shows a loss */
	__u16 causes;
	__u16 cpu;
	__u16 extra;
	__u8 kind;
	__u8 detail; /* of sockets: enum sl_role, and SL_AFTER_LOSS */
};

/* The most bytes of a request that are looked at for its name. Without names,
 * SL_PROTOCOL_BYTES show whether the connection can be followed. They are sent only if it can't. */
#define SL_TEXT 64
#define SL_PROTOCOL_BYTES 4
/* The most bytes of the headers of a request over HTTP/2, and of those in one entry. Behind them are
 * four bytes that number such entries of a connection. */
#define SL_HEADERS_MOST 4096
#define SL_HEADERS_PART 60
/* The version, trace id, parent id and flags of W3C Trace Context, with a dash between. */
#define SL_TRACE_BYTES 55

struct sl_socket {
	__u8 address[16]; /* of the peer: network order; the first four bytes for IPv4 */
	__u16 port;	  /* network order */
	__u16 family;
	__u32 protocol;		/* IPPROTO_… */
	__u64 own;		/* Unix: this socket's number, */
	__u64 peer;		/* and its peer's */
	__u8 local_address[16]; /* of this end, as `address` */
	__u16 local_port;	/* in this machine's order */
	__u8 reserved[6];
};

#define SL_ENTRY_MAX (sizeof(struct sl_entry) + 14 * 16 /* shares */ + SL_TEXT)

#endif
