/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Spans of programs that were never prepared for it: from one probe to another, or from a
 * function's entry to its return. Probes are USDT notes and symbols (uprobes); the loader
 * attaches each with a cookie that says which source it belongs to and which of its arguments
 * are wanted.
 *
 * Open spans lie on a stack of their thread, those of all sources on one. Which begin belongs
 * to an end, and which begins will never see theirs (longjmp, an exception, an error), the stack
 * pointer tells: a frame at or below that of a new begin of the same source has been left.
 *
 * A probe is attached to its file, for all processes, and the programs check whether the thread is
 * watched. So children that a server forks later need no further work.
 *
 * Uprobes can be preempted, unlike tracepoints. So the meter is read as the SDK reads it, again
 * if something came in between.
 */
#include "meters.h"
#include "open_spans.h"
#include "probe_rows.h"
#include "sched.h"
#include "texts.h"
#include <bpf/usdt.bpf.h>

/* --- what a probe says ----------------------------------------------------------------------- */

enum probe_kind {
	IS_USDT,
	IS_UPROBE,
};

/* An argument: of the note, or of the function by the calling convention. */
static __always_inline bool argument(struct pt_regs *ctx, enum probe_kind kind, __u32 number,
				     __u64 *value)
{
	if (kind == IS_USDT) {
		long got = 0;

		if (bpf_usdt_arg(ctx, number, &got))
			return false;
		*value = got;
	} else {
		/* All of them: the context may only be read at places that are constants. */
		__u64 registers[8] = {
		    PT_REGS_PARM1(ctx), PT_REGS_PARM2(ctx), PT_REGS_PARM3(ctx),
		    PT_REGS_PARM4(ctx), PT_REGS_PARM5(ctx), PT_REGS_PARM6(ctx),
		};

		*value = registers[number & 7];
	}
	return true;
}

static __always_inline __u32 source_of(__u64 cookie)
{
	return cookie & (MAX_SOURCES - 1);
}

/* Takes what the cookie asks for into the span. Argument numbers in it are plus one. */
static __always_inline void take_arguments(struct pt_regs *ctx, enum probe_kind kind,
					   struct open_span *span, __u64 cookie)
{
	__u32 id = cookie >> COOKIE_ID & 0xff, name = cookie >> COOKIE_NAME & 0xff;
	__u64 value;

	if (id && argument(ctx, kind, id - 1, &value)) {
		span->id = value;
		span->flags |= TS_ROW_HAS_ID;
	}
	if (name && argument(ctx, kind, name - 1, &value))
		span->text = number_of((const void *)value);
}

/* Whether the span that began here before read this meter when it was as it is now: of most no cause
 * strikes, and there is nothing to read. Maps of the SDK come and go, ours stay. */
static __always_inline bool has_totals(const struct open_span *span, const struct cpu *cpu,
				       __u32 seq)
{
	return span->seq == seq && span->slot == cpu->slot && span->map == cpu->map &&
	       span->map < FIRST_SDK_MAP;
}

static __always_inline int begin_span(struct pt_regs *ctx, enum probe_kind kind, __u64 cookie)
{
	__u64 sp = PT_REGS_SP(ctx), ip = PT_REGS_IP(ctx);
	struct cpu *cpu = this_cpu();
	struct ts_meter *m = current_meter(cpu);
	__u32 source = source_of(cookie), at;
	struct open_spans *s;
	struct open_span *span;

	if (!m)
		return 0;
	s = make_open_spans_here(cpu);
	if (!s) {
		__sync_fetch_and_add(&lost.threads, 1);
		return 0;
	}
	if (s->depth)
		drop_left(s, source, sp, ip);
	if (s->depth >= OPEN_SPANS)
		close_gaps(s);
	at = s->depth;
	if (at >= OPEN_SPANS) {
		s->beyond[source]++;
		__sync_fetch_and_add(&lost.depth, 1);
		return 0;
	}
	s->beyond[source] = 0;
	span = &s->span[bounded(at)];
	span->sp = sp;
	span->ip = ip;
	span->text = 0;
	span->flags = 0;
	span->begin = 0;
	s->source[bounded(at)] = source + 1;
	s->depth = at + 1;
	if (sampling()) {
		if (!chosen(config.sample))
			return 0;
		__sync_fetch_and_add(&m->open, 1);
	}
	take_arguments(ctx, kind, span, cookie);
	for (int i = 0; i < 4; i++) { /* again, if an interrupt or a switch came in between */
		__u32 seq = *(volatile __u32 *)&m->seq;

		barrier();
		if (!has_totals(span, cpu, seq)) {
			span->map = cpu->map;
			span->slot = cpu->slot;
			span->seq = seq;
			span->totals = m->totals;
		}
		span->begin = bpf_ktime_get_ns();
		barrier();
		if (*(volatile __u32 *)&m->seq == seq)
			break;
	}
	return 0;
}

/* Ends the span at this place of the stack. */
static __always_inline void end_at(struct pt_regs *ctx, enum probe_kind kind, struct open_spans *s,
				   __u32 at, struct ts_meter *m, __u64 cookie)
{
	struct cpu *cpu = this_cpu();
	struct open_span *span;
	__u64 now;
	__u16 kept;

	/* Through memory: what the verifier has learnt of it in a loop it forgets, and follows one
	 * way from here on rather than one for each round. */
	*(volatile __u32 *)&s->ending = at;
	at = *(volatile __u32 *)&s->ending;
	if (at >= OPEN_SPANS)
		return;
	span = &s->span[bounded(at)];
	if (span->begin) {
		if (span->map != cpu->map || span->slot != cpu->slot) {
			abandon(s, at); /* begun under another meter, which has another history */
		} else {
			m->spans++;
			now = bpf_ktime_get_ns();
			if (keeps(source_of(cookie), now - span->begin, &kept)) {
				if (cookie >> COOKIE_ID)
					take_arguments(ctx, kind, span, cookie);
				write_probe_row(s, span, m, now, source_of(cookie), kept);
			}
			deselect(span);
		}
	}
	s->source[bounded(at)] = 0;
	if (at + 1 == s->depth && (!at || s->source[bounded(at - 1)]))
		s->depth = at; /* as most do */
	else
		trim(s);
}

/*
 * The end of a pair of probes: of the latest begin in this very frame, else of the latest. Spans
 * of the source on top of that were left by a longjmp.
 */
static __always_inline int end_span(struct pt_regs *ctx, enum probe_kind kind, __u64 cookie)
{
	struct cpu *cpu = this_cpu();
	struct ts_meter *m = current_meter(cpu);
	__u32 source = source_of(cookie), latest = OPEN_SPANS, found = OPEN_SPANS;
	__u64 sp = PT_REGS_SP(ctx);
	struct open_spans *s;

	if (!m)
		return 0;
	s = open_spans_here(cpu);
	if (!s)
		return 0;
	for (__u32 i = 1; i <= OPEN_SPANS; i++) {
		__u32 at = s->depth - i;

		if (at >= OPEN_SPANS)
			break;
		if (s->source[bounded(at)] != source + 1)
			continue;
		if (latest == OPEN_SPANS)
			latest = at;
		if (s->span[bounded(at)].sp == sp) {
			found = at;
			break;
		}
	}
	if (found == OPEN_SPANS) {
		if (s->beyond[source]) { /* the begin of this one found no room */
			s->beyond[source]--;
			return 0;
		}
		found = latest;
	} else if (found != latest) {
		for (__u32 i = 0; i < OPEN_SPANS; i++)
			if (i > found && i < s->depth && s->source[bounded(i)] == source + 1)
				abandon(s, i);
	}
	end_at(ctx, kind, s, found, m, cookie);
	return 0;
}

/* Between entry and return the return address is taken from the stack on x86. */
#if defined(__TARGET_ARCH_x86)
#define RETURN_ADDRESS 8
#else
#define RETURN_ADDRESS 0
#endif

/* The return belongs to the entry in the same frame, and to no other. */
static __always_inline int return_span(struct pt_regs *ctx, __u64 cookie)
{
	struct cpu *cpu = this_cpu();
	struct ts_meter *m = current_meter(cpu);
	__u64 sp = PT_REGS_SP(ctx) - RETURN_ADDRESS;
	__u32 source = source_of(cookie), found = OPEN_SPANS;
	struct open_spans *s;

	if (!m)
		return 0;
	s = open_spans_here(cpu);
	if (!s)
		return 0;
	for (__u32 i = 1; i <= OPEN_SPANS; i++) {
		__u32 at = s->depth - i;

		if (at >= OPEN_SPANS)
			break;
		if (s->source[bounded(at)] != source + 1)
			continue;
		if (s->span[bounded(at)].sp == sp) {
			found = at;
			break;
		}
		if (s->span[bounded(at)].sp > sp)
			break;
		abandon(s, at);
	}
	end_at(ctx, IS_UPROBE, s, found, m, cookie);
	return 0;
}

SEC("usdt")
int on_usdt_begin(struct pt_regs *ctx)
{
	return begin_span(ctx, IS_USDT, bpf_usdt_cookie(ctx));
}

SEC("usdt")
int on_usdt_end(struct pt_regs *ctx)
{
	return end_span(ctx, IS_USDT, bpf_usdt_cookie(ctx));
}

SEC("uprobe")
int on_uprobe_begin(struct pt_regs *ctx)
{
	return begin_span(ctx, IS_UPROBE, bpf_get_attach_cookie(ctx));
}

SEC("uprobe")
int on_uprobe_end(struct pt_regs *ctx)
{
	return end_span(ctx, IS_UPROBE, bpf_get_attach_cookie(ctx));
}

SEC("uretprobe")
int on_uprobe_return(struct pt_regs *ctx)
{
	return return_span(ctx, bpf_get_attach_cookie(ctx));
}

/* The spans that were open in the program before will not end. A thread that was not its process's
 * first bears that one's number from here on. */
static __always_inline void renew(struct open_spans *s, struct task_struct *task)
{
	if (!s)
		return;
	abandon_all(s);
	own(s, task);
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(on_exec_in_span, struct task_struct *task)
{
	struct thread *t;

	if (!may_be_watched(task->tgid))
		return 0;
	t = thread_of(task);
	if (t)
		renew(open_spans_at(t->map, t->slot), task);
	renew(bpf_task_storage_get(&open_spans, task, 0, 0), task);
	return 0;
}
