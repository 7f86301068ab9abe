/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The Python functions that a thread is in. CPython keeps a frame for each of them, beside the C stack,
 * on which one C function runs all of them. The recorder finds the offsets of CPython's structures
 * (crates/record/src/interpreters/layout.rs) and reads the names of the functions.
 *
 *   interpreter ---> thread state ---> next ...
 *                        | by the thread's number
 *                        v
 *                      frame ---> previous ---> ...        each with its code object
 *
 * The thread itself runs this program, so the frames do not change during the walk. The process controls
 * all words that are read here. So each walk has a bound, and each read may fail.
 */
#ifndef TAILSCOPE_PYTHON_FRAMES_H
#define TAILSCOPE_PYTHON_FRAMES_H

#include "meters.h"
#include "pid_namespace.h"

#define PYTHON_THREADS 512 /* thread states that are looked at to find one */
#define PYTHON_STEPS (PYTHON_FRAMES + 64)
#define PYTHON_NONE_NS \
	100000000ull /* a thread without a state is not looked for again for this long */

/* By thread: where its state was last. */
struct python_thread {
	__u64 state; /* 0: it had none */
	__u64 at;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct python_thread);
} python_threads SEC(".maps");

/* The word there; 0: it can't be read. */
static __always_inline __u64 user_word(__u64 at)
{
	__u64 word = 0;

	return bpf_probe_read_user(&word, sizeof(word), (void *)at) ? 0 : word;
}

/* The thread's number as the thread itself knows it. */
static __always_inline __u32 own_number(struct task_struct *task)
{
	struct pid___numbers *pid = BPF_CORE_READ((struct task_struct___numbers *)task, thread_pid);
	__u64 address = (__u64)pid;
	struct upid___numbers number = {};

	if (!pid)
		return 0;
	address += bpf_core_field_offset(struct pid___numbers, numbers);
	address += BPF_CORE_READ(pid, level) * bpf_core_type_size(struct upid___numbers);
	if (bpf_probe_read_kernel(&number, sizeof(number), (void *)address))
		return 0;
	return number.nr;
}

/* A walk along the thread states, or along the frames of one. */
struct python_walk {
	const struct python *p;
	struct stack_sample *s;
	__u64 at; /* the next one; 0: there is none */
	__u64 number;
	__u32 broken; /* it could not be read where the next one is */
};

static long pass_state(__u32 step, struct python_walk *w)
{
	if (!w->at || user_word(w->at + w->p->number) == w->number)
		return 1;
	w->at = user_word(w->at + w->p->next);
	return 0;
}

/* What the interpreter keeps of this thread; 0: nothing. */
static __always_inline __u64 python_state(const struct python *p, struct task_struct *task,
					  __u64 now)
{
	struct python_walk w = {.p = p, .number = own_number(task)};
	struct python_thread *known, found = {.at = now};
	__u32 tid = task->pid;

	known = bpf_map_lookup_elem(&python_threads, &tid);
	if (known && known->state && user_word(known->state + p->number) == w.number)
		return known->state;
	if (known && !known->state && now - known->at < PYTHON_NONE_NS)
		return 0;
	w.at = user_word(user_word(p->interpreter) + p->threads);
	bpf_loop(PYTHON_THREADS, pass_state, &w, 0);
	if (w.at && user_word(w.at + p->number) == w.number)
		found.state = w.at;
	bpf_map_update_elem(&python_threads, &tid, &found, BPF_ANY);
	return found.state;
}

/* Takes down a function; `last`: the outermost of its call of the C function that runs them. */
static __always_inline bool add_python_frame(struct stack_sample *s, __u64 code, __u64 mark,
					     bool last)
{
	__u32 n = s->python_frames;

	if (n >= PYTHON_FRAMES)
		return false;
	s->python[n].code = code;
	s->python[n].mark = (mark & ~(__u64)PYTHON_LAST) | (last ? PYTHON_LAST : 0);
	s->python_frames = n + 1;
	return true;
}

static __always_inline void mark_last(struct stack_sample *s)
{
	__u32 n = s->python_frames - 1;

	if (n < PYTHON_FRAMES)
		s->python[n].mark |= PYTHON_LAST;
}

static __always_inline __u64 mark_of(const struct python *p, __u64 code)
{
	__u32 line = 0;

	bpf_probe_read_user(&line, sizeof(line), (void *)(code + p->line));
	return PYTHON_MARK(user_word(code + p->name), user_word(code + p->file), line);
}

static long take_frame(__u32 step, struct python_walk *w)
{
	const struct python *p = w->p;
	__u64 code, next = 0;
	__u8 owner = 0;
	bool is_last;

	if (!w->at)
		return 1;
	bpf_probe_read_user(&owner, sizeof(owner), (void *)(w->at + p->owner));
	is_last = owner == p->last;
	if (is_last && p->last_is_none) {
		mark_last(w->s);
	} else {
		code = user_word(w->at + p->code);
		if (!code || !add_python_frame(w->s, code, mark_of(p, code), is_last))
			return 1;
	}
	if (bpf_probe_read_user(&next, sizeof(next), (void *)(w->at + p->previous))) {
		w->broken = 1;
		return 1;
	}
	w->at = next;
	return 0;
}

/* The running thread's functions, the innermost first. Not static: the verifier looks at it once. */
__noinline int copy_python_frames(struct stack_sample *s, const struct python *p)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct python_walk w = {.p = p, .s = s};
	__u64 state;

	if (!s || !p)
		return 0;
	state = python_state(p, task, s->at);
	if (!state)
		return 0;
	w.at = user_word(state + p->frame);
	if (p->through)
		w.at = user_word(w.at + p->through - 1);
	bpf_loop(PYTHON_STEPS, take_frame, &w, 0);
	s->python_whole = !w.at && !w.broken;
	return 0;
}

#endif
