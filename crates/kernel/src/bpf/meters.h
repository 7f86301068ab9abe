/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Who is watched, where its meter is, and how time is put on it.
 *
 * A watched thread has a `struct thread` in task storage, which names a slot of a map of
 * meters. Maps 1 to 8 are the recorder's, for threads that only the kernel meters. Each SDK process
 * has a map of its own and sees no other. Per CPU, `struct cpu` says whose meter runs here,
 * so that interrupts find it without a helper call.
 */
#ifndef TAILSCOPE_METERS_H
#define TAILSCOPE_METERS_H

#include "types.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include <tailscope_abi.h>
#include "meter_map.h"
#include "pid_namespace.h"
#include "shared.h"
#include "watched.h"

/* Sections of their own, so that the loader finds each by its name. */
SEC(".rodata.config") const volatile struct config config = {};
SEC(".bss.lost") struct lost lost = {};
SEC(".bss.uncovered") struct uncovered uncovered = {};
SEC(".bss.unseen") struct unseen unseen = {};
SEC(".bss.retentions") struct ts_retention retentions[SOURCES] = {};

/* One time off the CPU: blocked from `out` to `woken`, then waiting until `in`. */
struct off_cpu {
	__u64 out;
	__u64 woken;
	__u64 in;
	__u64 throttled;   /* of the waiting */
	__u64 interrupted; /* the last of the waiting: interrupts or softirqs had the CPU */
	__u32 blocked;	   /* the cause of each part */
	__u32 waited;
	__u32 interrupts;
	__u32 idle; /* no request was open on the thread when it blocked */
};

#define OFF_CPU_INTERVALS 4 /* a power of two */

/* Whose connection it is. */
struct peer {
	__u16 family; /* 0: not known */
	__u16 port;
	__u8 address[16];
};

/* A request that kept its thread busy. */
struct served {
	__u64 begin;
	__u64 end; /* 0: nothing is here */
	struct peer peer;
};

#define SERVED 4

/* Who keeps a thread from running without any lock. */
enum stop {
	STOP_SIGNAL = 1,
	STOP_TRACER,
	STOP_FREEZER,
};

/* A thread's waits at futexes with a timeout: the futexes' addresses; 0: none. */
struct timed_wait {
	__u64 in_vain; /* a timeout ended the latest */
	__u64 again;   /* after which it waited there again at once: this is its present wait */
	__u64 lock;    /* another thread has ended such a wait: so it is for a lock */
};

/* A thread's latest wait for a lock. */
struct lock_wait {
	__u64 since;
	__u64 until;
	__u64 who; /* was to blame for it */
};

/* Of a thread's latest wait for a lock, whether it is for its turn in its interpreter. */
struct turn_wait {
	__u32 waits;
	__u32 first; /* its first episode with nobody to blame yet, with TURN_UNSETTLED; 0: none */
	__u64 since; /* the begin of that */
};

struct thread {
	__u32 map;	    /* 0: gone */
	__u32 slot;	    /* of that map */
	__u64 served_until; /* the end of the latest in `served` */
	__u64 fault_since;
	__u64 fault_mark; /* the meter's sum at that moment */
	__u64 cfs_rq;	  /* whose throttled time was read, and what it was */
	__u64 throttled;
	__u64 reclaim_since; /* like the fault's */
	__u64 reclaim_mark;
	__u64 contended;     /* the kernel lock for which it waits; 0: none */
	__u32 stop;	     /* enum stop, while it is stopped */
	__u32 off_cpu_count; /* how many times it was off the CPU */
	__u64 ran_since;     /* its latest block ended, and it got a CPU */
	__u64 woken_early;   /* a waking came before it had left its CPU */
	struct turn_wait turn;
	struct lock_wait lock;
	struct timed_wait timed;
	struct off_cpu now; /* the time off the CPU that goes on */
	struct off_cpu last[OFF_CPU_INTERVALS];
	struct served served[SERVED]; /* each shorter than the one before it */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread);
} threads SEC(".maps");

_Static_assert(__builtin_offsetof(struct ts_meter, recent) % 64 == 0, "adapt `reserved`");

/* --- meters --------------------------------------------------------------------------------- */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, MAX_METER_MAPS);
	__type(key, __u32);
	__array(values, struct meter_map);
} meters SEC(".maps");

/* Free slots of the maps that are ours, as map << 16 | slot. */
struct {
	__uint(type, BPF_MAP_TYPE_STACK);
	__uint(max_entries, OWN_SLOTS);
	__type(value, __u32);
} free_slots SEC(".maps");

/* --- this CPU ------------------------------------------------------------------------------- */

/* Whose meter runs here, and the shadow stack of what interrupted it (VarMRI §4), in one cache line:
 * each level with its start and the time that levels above it took. In another what begins of
 * requests need to know of the thread, so that most need not look for its storage. */
struct cpu {
	__u32 map; /* 0: nobody who is watched */
	__u32 slot;
	__u32 depth;
	__u32 data; /* depth, plus one, at which a socket became readable; 0: nobody to wake */
	__u64 start[NESTING];
	__u64 nested[NESTING];
	__u64 in;	    /* since when it runs here; ~0: look into its storage */
	__u64 served_until; /* as in its storage */
	__u64 delivery;	    /* begin of the latest network softirq on top of a watched thread, */
	__u64 delivered;    /* its end, */
	__u64 delivery_ns;  /* and its time */
	__u64 taken;	    /* when data came in at a socket on top of such a thread, */
	__u32 taken_by;	    /* and that socket's ports (delivery.h) */
	__u32 left_out_n;   /* 1: that is a whole softirq, 0: the end of one */
	__u64 left_out;	    /* so much of it is not part of the answer that is sent now */
	__u64 changed;	    /* of socket_state.h: the socket that its first program took */
	int changed_to;
	int turn;  /* a timeout ended a wait of the thread for its turn, and nobody is blamed yet */
	int timer; /* a timer runs out here now: whom it wakes waited for that (slices.h) */
} __attribute__((aligned(64)));

SEC(".bss.cpus") struct cpu cpus[MAX_CPUS] = {};

static __always_inline struct cpu *this_cpu(void)
{
	return &cpus[bpf_get_smp_processor_id() & (MAX_CPUS - 1)];
}

static __always_inline struct ts_meter *meter_at(__u32 map, __u32 slot)
{
	void *inner = bpf_map_lookup_elem(&meters, &map);

	return inner ? bpf_map_lookup_elem(inner, &slot) : NULL;
}

static __always_inline struct thread *thread_of(struct task_struct *task)
{
	struct thread *t = bpf_task_storage_get(&threads, task, 0, 0);

	return t && t->map ? t : NULL;
}

/* From now on this thread's meter is the one that runs here; `in` is since when it runs. */
static __always_inline void runs_here(struct cpu *cpu, const struct thread *t, __u64 in)
{
	cpu->in = in;
	cpu->served_until = t->served_until;
	cpu->slot = t->slot;
	cpu->map = t->map;
}

/* The sum of all causes: what a begin remembers to find the time that causes took since. */
static __always_inline __u64 total_ns(const struct ts_meter *m)
{
	__u64 sum = 0;

#pragma unroll
	for (int i = 0; i < TS_CAUSES; i++)
		sum += m->totals.ns[i];
	return sum;
}

static __always_inline void charge(struct ts_meter *m, __u32 cause, __u64 ns)
{
	if (cause >= TS_CAUSES)
		return;
	m->totals.ns[cause] += ns;
	m->totals.n[cause]++;
	m->seq++;
}

/* Keeps an episode in place of the shorter ones before it; in a full row the longest gives way,
 * which is the oldest. */
static __always_inline void remember(struct ts_episode *e, struct ts_episode this)
{
	if (!this.n) /* the count has gone round */
		e[0].ns = e[1].ns = e[2].ns = e[3].ns = 0;
	if (!this.ns)
		return;
	if (this.ns >= e[0].ns) {
		e[0] = this;
		e[1].ns = e[2].ns = e[3].ns = 0;
	} else if (this.ns >= e[1].ns) {
		e[1] = this;
		e[2].ns = e[3].ns = 0;
	} else if (this.ns >= e[2].ns) {
		e[2] = this;
		e[3].ns = 0;
	} else {
		if (this.ns < e[3].ns) {
			e[0] = e[1];
			e[1] = e[2];
			e[2] = e[3];
		}
		e[3] = this;
	}
}

/* Puts time on a cause that blames a thread or an interrupt. */
static __always_inline void charge_to(struct ts_meter *m, __u32 cause, __u64 ns, __u16 who)
{
	struct ts_episode *e = m->recent[cause & (TS_RECENTS - 1)].episode;
	__u32 count = m->totals.n[cause] + 1;
	struct ts_episode this = {.ns = ns >> 32 ? ~0u : ns, .n = count, .who = who};

	m->totals.ns[cause] += ns;
	m->totals.n[cause] = count;
	remember(e, this);
	m->seq++;
}

/* A function of its own: it is called only for causes that struck. */
__noinline int blamed_in(const struct ts_recent *recent, __u32 count, __u32 n)
{
	return recent ? ts_blamed(recent, count, n) : WHO_NOBODY;
}

static __always_inline bool chosen(__u64 probability)
{
	return probability > 0xffffffff || bpf_get_prandom_u32() < probability;
}

/* Whether the row of a span that took so long is written; `kept` is the code that it then carries. */
static __always_inline bool keeps(__u32 source, __u64 wall, __u16 *kept)
{
	const volatile struct ts_retention *k = &retentions[source & (SOURCES - 1)];
	__u64 code = k->others, always_from = k->always_from;

	*kept = 0;
	if (!code || (always_from != ~0ull && wall >= always_from))
		return true;
	*kept = code;
	return bpf_get_prandom_u32() < TS_KEEP_PROBABILITY(code);
}

static __always_inline bool sampling(void)
{
	return config.sample <= 0xffffffff;
}

/* Requests that the thread has open, where all are metered. Its own programs write `begun` and
 * `answered` with plain stores; others count what ends without it in `gone`. */
static __always_inline __s32 requests_open(const struct ts_meter *m)
{
	return m->begun - m->answered - m->gone;
}

static __always_inline bool has_open(const struct ts_meter *m)
{
	return m->open || (!sampling() && requests_open(m) > 0);
}

/* A meter gets a thread, which has nothing open. */
static __always_inline void none_open(struct ts_meter *m)
{
	m->open = 0;
	m->answered = m->begun;
	m->gone = 0;
}

/* Under --sample, a thread without a selected open span is passed over. */
static __always_inline bool passed_over(const struct ts_meter *m)
{
	return sampling() && !m->open;
}

#endif
