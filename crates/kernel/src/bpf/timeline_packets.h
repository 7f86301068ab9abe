/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * From packet to packet: what the stack takes from a device, TCP's look at it, the receives and sends
 * of the watched, those of their clients on this machine, and what a device takes.
 */
#ifndef TAILSCOPE_TIMELINE_PACKETS_H
#define TAILSCOPE_TIMELINE_PACKETS_H

#include "tcp.h"
#include "timeline_rings.h"
#include <bpf/bpf_endian.h>

/* Processes that received from a watched one, by the low bits of their id. */
SEC(".bss.clients") __u8 clients[WATCHED_BUCKETS] = {};

SEC("tp_btf/netif_receive_skb")
int BPF_PROG(on_packet, struct sk_buff *skb)
{
	write(TL_PACKET_IN, 0, 0, self(), skb->len, 0, 0);
	return 0;
}

/* Its header, and how many bytes of data follow it. */
static __always_inline bool header_of(const struct sk_buff *skb, struct tcp_header *h, __u32 *bytes)
{
	unsigned char *at = skb->head + skb->transport_header;
	/* Verifiers that take these for pointers allow their difference, in 64 bits, and no more. */
	__u64 before = at - skb->data;

	barrier_var(before);
	if (bpf_probe_read_kernel(h, sizeof(*h), at))
		return false;
	before += (h->offset >> 4) * 4;
	*bytes = skb->len > before ? skb->len - before : 0;
	return true;
}

static __always_inline __u16 short_of(__u32 bytes)
{
	return bytes < 0xffff ? bytes : 0xffff;
}

/*
 * Connections of the watched, by their two ports, which are the same pair at either end: so a client
 * on this machine is known, and its receives are written too. Others' connections with such a pair
 * are written with them, and nobody looks at those.
 */
SEC(".bss.served") __u8 served[1 << 16] = {};

#define IPPROTO_TCP 6

/* Where clients are left out, only the watched end counts: its own port. */
static __always_inline __u16 ports_of(const struct sock *sk)
{
	__u16 own = sk->__sk_common.skc_num;

	return config.clients ? own ^ bpf_ntohs(sk->__sk_common.skc_dport) : own;
}

/* A connection whose packets are of no interest. */
static __always_inline bool left_out(const struct sock *sk)
{
	return !config.clients && !served[ports_of(sk)];
}

/* For each packet of an established connection, before it is looked at. */
SEC("tp_btf/tcp_probe")
int BPF_PROG(on_tcp, struct sock *sk, struct sk_buff *skb)
{
	struct tcp_header h;
	__u32 bytes;
	__u64 now;

	if (left_out(sk))
		return 0;
	now = bpf_ktime_get_ns();
	/* The stack has taken the headers off: its data begins at the TCP header. */
	if (header_of(skb, &h, &bytes))
		write_at(now, TL_TCP_IN, 0, short_of(bytes), self(), name_of(sk),
			 bpf_ntohl(h.seq) + bytes, bpf_ntohl(h.ack_seq));
	return 0;
}

SEC("tp_btf/sk_data_ready")
int BPF_PROG(on_ready, struct sock *sk)
{
	if (sk->sk_protocol == IPPROTO_TCP && left_out(sk))
		return 0;
	write(TL_READY, 0, 0, self(), name_of(sk), 0, 0);
	return 0;
}

SEC("tp_btf/sock_recv_length")
int BPF_PROG(on_receive, struct sock *sk, int length, int flags)
{
	__u64 ids = ids_here(), now;
	bool ours = is_watched(ids >> 32);
	struct tcp_sock *tcp;
	__u8 flags_of = 0, *client;

	if (flags & 2 /* MSG_PEEK */ || length <= 0 || (!ours && !config.clients))
		return 0;
	now = bpf_ktime_get_ns();
	tcp = bpf_skc_to_tcp_sock(sk);
	if (tcp) {
		__u16 ports = ports_of(sk);

		if (!served[ports]) {
			if (!ours)
				return 0;
			served[ports] = 1;
		}
	} else if (!ours) {
		return 0;
	}
	client = &clients[ids >> 32 & (WATCHED_BUCKETS - 1)];
	if (!ours && !*client)
		*client = 1;
	if (tcp)
		flags_of = tcp_connected(sk, tcp) ? 3 : 1;
	write_at(now, ours ? TL_RECEIVE : TL_TAKEN, flags_of, 0, ids, name_of(sk),
		 tcp ? tcp->copied_seq : 0, length);
	return 0;
}

/* Events have the numbers that tcp_held gives. */
_Static_assert((int)TL_HELD_NAGLE == (int)TS_HELD_NAGLE && (int)TL_HELD_CORK == (int)TS_HELD_CORK &&
		   (int)TL_HELD_WINDOW == (int)TS_HELD_WINDOW &&
		   (int)TL_HELD_CONGESTION == (int)TS_HELD_CONGESTION &&
		   (int)TL_HELD_OTHER == (int)TS_HELD_OTHER,
	       "enum tl_held and enum ts_held are the same");

SEC("tp_btf/sock_send_length")
int BPF_PROG(on_send, struct sock *sk, int length, int flags)
{
	__u64 ids = ids_here(), now;
	struct tcp_sock *tcp;

	if (length <= 0 || !is_watched(ids >> 32))
		return 0;
	now = bpf_ktime_get_ns();
	tcp = bpf_skc_to_tcp_sock(sk);
	write_at(now, TL_SEND, !!tcp, tcp ? tcp_held(tcp) : 0, ids, name_of(sk),
		 tcp ? tcp->write_seq : 0, length);
	return 0;
}

/* States in which what stands for a socket is less than one (include/net/tcp_states.h). */
#define TCP_TIME_WAIT 6
#define TCP_NEW_SYN_RECV 12

/* Packets with data only: nobody waits for an acknowledgement to leave. */
SEC("tp_btf/net_dev_start_xmit")
int BPF_PROG(on_transmit, struct sk_buff *skb, void *device)
{
	struct sock *sk = skb->sk;
	__u32 bytes, tid, since = 0;
	struct tcp_header h;
	struct here *cpu;
	__u64 now;

	if (!sk || sk->__sk_common.skc_state == TCP_TIME_WAIT ||
	    sk->__sk_common.skc_state == TCP_NEW_SYN_RECV || sk->sk_protocol != IPPROTO_TCP ||
	    left_out(sk))
		return 0;
	now = bpf_ktime_get_ns();
	if (!header_of(skb, &h, &bytes) || !bytes)
		return 0;
	tid = self();
	cpu = here();
	if (cpu->sends == tid)
		since = now - cpu->sends_at;
	write_at(now, TL_TRANSMIT, 0, short_of(bytes), tid, name_of(sk), bpf_ntohl(h.seq) + bytes,
		 since);
	return 0;
}

#endif
