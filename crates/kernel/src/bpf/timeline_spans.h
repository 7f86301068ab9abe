/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Spans of programs that were never prepared for it, as probes.h has them for the recorder: from one
 * probe to another, or from a function's entry to its return. Here each probe is an event, and which
 * begin an end belongs to finds whoever reads them.
 */
#ifndef TAILSCOPE_TIMELINE_SPANS_H
#define TAILSCOPE_TIMELINE_SPANS_H

#include "timeline_rings.h"
#include <bpf/usdt.bpf.h>

/* Between entry and return the return address is taken from the stack on x86. */
#if defined(__TARGET_ARCH_x86)
#define RETURN_ADDRESS 8
#else
#define RETURN_ADDRESS 0
#endif

static __always_inline int span(__u8 kind, __u8 flags, __u64 cookie, __u64 frame, __u64 place)
{
	if (watched_here())
		write(kind, flags, cookie & 0xff, self(), frame, frame >> 32, place);
	return 0;
}

SEC("usdt")
int on_usdt_begin(struct pt_regs *ctx)
{
	return span(TL_SPAN_IN, 0, bpf_usdt_cookie(ctx), PT_REGS_SP(ctx), PT_REGS_IP(ctx));
}

SEC("usdt")
int on_usdt_end(struct pt_regs *ctx)
{
	return span(TL_SPAN_OUT, 0, bpf_usdt_cookie(ctx), PT_REGS_SP(ctx), PT_REGS_IP(ctx));
}

SEC("uprobe")
int on_uprobe_begin(struct pt_regs *ctx)
{
	return span(TL_SPAN_IN, 0, bpf_get_attach_cookie(ctx), PT_REGS_SP(ctx), PT_REGS_IP(ctx));
}

SEC("uprobe")
int on_uprobe_end(struct pt_regs *ctx)
{
	return span(TL_SPAN_OUT, 0, bpf_get_attach_cookie(ctx), PT_REGS_SP(ctx), PT_REGS_IP(ctx));
}

SEC("uretprobe")
int on_uprobe_return(struct pt_regs *ctx)
{
	__u64 frame = PT_REGS_SP(ctx) - RETURN_ADDRESS;

	return span(TL_SPAN_OUT, 1, bpf_get_attach_cookie(ctx), frame, PT_REGS_IP(ctx));
}

#endif
