/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Turns: an interpreter has a lock by which one of its threads runs at a time (CPython's GIL). Where
 * that lies, the recorder finds out (crates/record/src/interpreters.rs). A thread that waits there
 * waits for a lock, but it is in the midst of something, as on the way to a CPU; and who gives its turn
 * away hands no work over.
 *
 * A thread waits for its turn with a timeout, after which it asks for it and waits on (5 ms in
 * CPython). Threads may have the turn for moments in between. To blame is who had it for the longest.
 */
#ifndef TAILSCOPE_INTERPRETER_H
#define TAILSCOPE_INTERPRETER_H

#include "blame.h"
#include "futex.h"
#include "meters.h"

/* The most episodes of one wait. */
#define MOST_ASKED 0x8000
/* The low half of `first` is the number of an episode. */
#define TURN_UNSETTLED 0x10000u

static __always_inline struct process *process_of(struct task_struct *task)
{
	__u32 tgid = task->tgid;

	return bpf_map_lookup_elem(&processes, &tgid);
}

/* A thread gives its turn away. It has had it since it was blocked last, as far as is known. */
static __always_inline void note_turn(struct process *process, struct turn this)
{
	struct turn *turn = process->turn;

#pragma unroll
	for (int i = 0; i < TURNS; i++) {
		if (turn[i].end && turn[i].end - turn[i].begin > this.end - this.begin)
			continue;
		turn[i] = this;
		if (i + 1 < TURNS)
			turn[i + 1].end = 0;
		return;
	}
#pragma unroll
	for (int i = 1; i < TURNS; i++)
		turn[i - 1] = turn[i];
	turn[TURNS - 1] = this;
}

/* Who had the turn for the longest since then. */
static __always_inline __u16 had_turn(const struct process *process, __u64 since)
{
	__u64 longest = 0;
	__u16 who = WHO_NOBODY;

#pragma unroll
	for (int i = 0; i < TURNS; i++) {
		const struct turn *turn = &process->turn[i];
		__u64 begin = turn->begin < since ? since : turn->begin;

		if (!turn->end)
			break;
		if (turn->end > begin && turn->end - begin > longest) {
			longest = turn->end - begin;
			who = turn->who;
		}
	}
	return who;
}

/* The thread has its turn now. Its waits that ended by a timeout get the thread to blame. */
static __noinline int settle_turn(struct task_struct *task, struct thread *t, struct ts_meter *m)
{
	struct process *process = process_of(task);
	struct ts_episode *e = m->recent[TS_LOCK].episode;
	__u16 who = process ? had_turn(process, t->turn.since) : WHO_NOBODY;
	__u16 first = t->turn.first;

#pragma unroll
	for (int i = 0; i < TS_EPISODES; i++)
		if ((__u16)(e[i].n - first) < MOST_ASKED)
			e[i].who = who;
	t->turn.first = 0;
	return 0;
}

/* The same before the running thread's causes are reported. */
static __always_inline void settle_turn_here(void)
{
	struct cpu *cpu = this_cpu();
	struct task_struct *task;
	struct ts_meter *m;
	struct thread *t;

	if (likely(!cpu->turn))
		return;
	cpu->turn = 0;
	task = bpf_get_current_task_btf();
	t = thread_of(task);
	m = t ? meter_at(t->map, t->slot) : NULL;
	if (m && t->turn.first)
		settle_turn(task, t, m);
}

static __always_inline bool is_interpreters(const struct process *process, __u64 futex)
{
	return futex >= process->interpreter && futex < process->interpreter_end;
}

/* The thread waits for a lock: whether for its turn, and whether it goes on with such a wait. */
static __noinline int blocks_for_turn(struct task_struct *task, struct thread *t,
				      struct ts_meter *m, __u64 futex)
{
	struct process *process = futex ? process_of(task) : NULL;
	bool waits = process && is_interpreters(process, futex);

	t->turn.waits = waits;
	if (waits && runs_since_lately(t))
		return 0;
	if (t->turn.first)
		settle_turn(task, t, m);
	if (!process || !waits)
		return 0;
	/* What has run for long had most likely its turn, which it now gives away. */
	note_turn(process, (struct turn){
			       .begin = t->ran_since,
			       .end = t->now.out,
			       .who = number_of_task(task, BLAMED_HAD_TURN),
			   });
	return 0;
}

/* Whether the thread has no turn yet, and goes on with its wait. */
static __always_inline bool asks_again(const struct thread *t)
{
	return t->turn.waits && t->turn.first;
}

/* Charges a wait for a turn, up to now. `giver` ends it; 0: a timeout does. */
static __noinline int charge_turn(struct task_struct *task, struct thread *t, struct ts_meter *m,
				  __u64 now, __u16 giver)
{
	struct process *process = process_of(task);
	struct thread *of;

	if (!t->turn.first) {
		t->turn.first = (m->totals.n[TS_LOCK] + 1) | TURN_UNSETTLED;
		t->turn.since = m->since_ns;
	}
	charge_to(m, TS_LOCK, now - m->since_ns, WHO_NOBODY);
	if (!process || !giver)
		return 0;
	of = thread_of(bpf_get_current_task_btf());
	if (of)
		note_turn(process, (struct turn){.begin = of->ran_since, .end = now, .who = giver});
	settle_turn(task, t, m);
	return 0;
}

#endif
