/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * On top of the thread: interrupts and softirqs, each less what nested in it (VarMRI's shadow
 * stack). A level is pushed before its clock is read and popped after, so that an interrupt
 * between the two makes the level look shorter, never longer.
 *
 * No switch can happen between entry and exit, so both see the same thread: where nobody who
 * is watched runs or waits for the CPU, both return at once.
 */
#include "meters.h"
#include "run_history.h"

static __always_inline int push(void)
{
	struct cpu *cpu = this_cpu();
	__u64 d = cpu->depth;

	if (!cpu->map && !this_awaited()->since)
		return 0;
	cpu->depth = d + 1;
	if (d >= NESTING)
		return 0;
	if (sampling() && cpu->map && !this_awaited()->since) {
		struct ts_meter *m = meter_at(cpu->map, cpu->slot);

		cpu->start[d] = 0;
		if (!m || passed_over(m))
			return 0;
	}
	cpu->nested[d] = 0;
	cpu->start[d] = bpf_ktime_get_ns();
	return 0;
}

/* `unseen`: what the level took outside of its two hooks. */
static __always_inline int pop(__u32 cause, __u16 who, __u64 unseen)
{
	struct cpu *cpu = this_cpu();
	struct awaited *a = this_awaited();
	__u64 d = cpu->depth, now, start, nested, whole, own;
	struct ts_meter *m;

	if (cpu->data)
		cpu->data = 0;
	if (!cpu->map && !a->since)
		return 0;
	if (!d) { /* this level began before its thread was watched, or before one waited */
		if (!cpu->map)
			interrupted_at_first(a, cause, who, bpf_ktime_get_ns());
		return 0;
	}
	/* One value from here on: from the one before it the compiler would work out an address
	 * whose bound verifiers (seen in Linux 6.1 and 6.12) can't follow. */
	d--;
	barrier_var(d);
	if (d >= NESTING) {
		cpu->depth = d;
		__sync_fetch_and_add(&lost.nesting, 1);
		return 0;
	}
	now = bpf_ktime_get_ns();
	start = cpu->start[d];
	nested = cpu->nested[d];
	barrier(); /* an interrupt from here on takes this level's place */
	cpu->depth = d;
	if (!start)
		return 0;
	whole = now - start + unseen;
	own = whole > nested ? whole - nested : 0;
	if (d && d <= NESTING)
		cpu->nested[d - 1] += whole;
	if (unlikely(a->since))
		interrupted(a, cause, who, now, whole, own, !d);
	if (!cpu->map)
		return 0;
	m = meter_at(cpu->map, cpu->slot);
	if (!m)
		return 0;
	charge_to(m, cause, own, who);
	if (cause == TS_SOFTIRQ_NET && !d) {
		cpu->delivery = start;
		cpu->delivered = now;
		cpu->delivery_ns = own;
	}
	return 0;
}

static __always_inline __u64 unseen_of_irq(void)
{
	return *(volatile __u64 *)&unseen.irq_ns;
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(on_softirq_entry, unsigned int vector)
{
	if (!this_cpu()->map)
		this_run_history()->softirqs[kind_of_softirq(vector)]++;
	return push();
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(on_softirq_exit, unsigned int vector)
{
	/* Each by its own: the cause is then a constant. */
	switch (kind_of_softirq(vector)) {
	case SOFTIRQ_NET:
		return pop(TS_SOFTIRQ_NET, WHO_SOFTIRQ | (vector & 0xf), 0);
	case SOFTIRQ_TIMER:
		return pop(TS_SOFTIRQ_TIMER, WHO_SOFTIRQ | (vector & 0xf), 0);
	default:
		return pop(TS_SOFTIRQ_OTHER, WHO_SOFTIRQ | (vector & 0xf), 0);
	}
}

/* For all kinds of hard interrupt: the loader attaches them to irq_handler_* and to each vector
 * that this machine has (irq_vectors/…, x86). The first argument of each tells which it is. */
SEC("raw_tp")
int on_irq_entry(void *ctx)
{
	return push();
}

SEC("raw_tp")
int on_irq_exit(struct bpf_raw_tracepoint_args *ctx)
{
	__u64 irq = ctx->args[0];

	return pop(TS_IRQ, irq < WHO_VECTOR - WHO_IRQ ? WHO_IRQ | irq : WHO_NOBODY,
		   unseen_of_irq());
}

SEC("raw_tp")
int on_vector_exit(struct bpf_raw_tracepoint_args *ctx)
{
	return pop(TS_IRQ, WHO_VECTOR | (ctx->args[0] & 0xff), unseen_of_irq());
}
