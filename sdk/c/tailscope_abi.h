/* SPDX-License-Identifier: MIT OR GPL-2.0-only OR BSD-2-Clause */
/*
 * What the kernel's programs, the recorder and a measured process see in the same memory.
 *
 * Three readers share this one description: the BPF programs (crates/kernel), the SDK
 * (tailscope.h) and Rust (crates/signals, generated from here). Everything is plain memory,
 * little-endian, naturally aligned. A change of layout changes TS_ABI. A use of reserved bytes is not
 * one: an older side leaves them 0, and works without the addition.
 */
#ifndef TAILSCOPE_ABI_H
#define TAILSCOPE_ABI_H

#ifndef __bpf__
#include <stdint.h>
typedef uint8_t ts_u8;
typedef uint16_t ts_u16;
typedef uint32_t ts_u32;
typedef uint64_t ts_u64;
#else
typedef __u8 ts_u8;
typedef __u16 ts_u16;
typedef __u32 ts_u32;
typedef __u64 ts_u64;
#endif

#define TS_ABI 4u

/* The causes that the kernel meters. The ledger has numbers of its own for them: `Cause::METERED` in
 * crates/trace/src/cause.rs. */
enum ts_cause {
	TS_RUNQUEUE = 0,
	TS_PREEMPTED = 1,
	TS_THROTTLED = 2,
	TS_LOCK = 3,
	TS_IO = 4,
	TS_NETWORK = 5,
	TS_SLEEP = 6,
	TS_IRQ = 7,
	TS_SOFTIRQ_NET = 8,
	TS_SOFTIRQ_TIMER = 9,
	TS_SOFTIRQ_OTHER = 10,
	TS_FAULT = 11,
	TS_STOPPED = 12,
	TS_RECLAIM = 13,
	TS_CAUSES = 14,
};

/* Where a thread's time goes at this moment: a cause while it is off the CPU, or one of these. */
enum {
	TS_ON_CPU = 254,
	TS_UNKNOWN =
	    255, /* not followed so far, or passed over because no selected span was open */
};

/* What a thread's time went to so far. */
struct ts_totals {
	ts_u64 ns[TS_CAUSES];
	ts_u32 n[TS_CAUSES];
};

/*
 * Who is to blame: the latest large episodes of each cause that blames a thread or an interrupt.
 * `who` is a number, which the recorder maps to a name. `n` is the low half of the cause's count
 * with this episode: it shows how far back the episode is, without a clock. Of two episodes the longer is
 * the earlier, and empty ones (ns == 0) are last: the first that lies within a span is the
 * largest that the span met, unless more than TS_EPISODES ever smaller ones have followed it.
 */
#define TS_EPISODES 4

struct ts_episode {
	ts_u32 ns; /* at most 4.29 s: it is only compared */
	ts_u16 n;
	ts_u16 who;
};

struct ts_recent {
	struct ts_episode episode[TS_EPISODES];
};

/* A cause's number is its place here; places of causes that blame nobody stay empty. */
#define TS_RECENTS 16
#define TS_BLAMED_CAUSES                                                                 \
	(1u << TS_RUNQUEUE | 1u << TS_PREEMPTED | 1u << TS_LOCK | 1u << TS_NETWORK |     \
	 1u << TS_SLEEP | 1u << TS_IRQ | 1u << TS_SOFTIRQ_NET | 1u << TS_SOFTIRQ_TIMER | \
	 1u << TS_SOFTIRQ_OTHER | 1u << TS_STOPPED)

/*
 * The meter: the counters of one thread. Totals only grow.
 *
 * The kernel's programs write it only while the thread is switched out or from interrupts on
 * the thread's own CPU, so to its own thread an update is atomic: read seq, read the rest,
 * and if seq is the same again, nothing came in between. `open` belongs to the thread.
 */
struct ts_meter {
	ts_u32 seq;
	ts_u32 tid;	 /* SDK: who claimed the slot; 0: free */
	ts_u64 since_ns; /* CLOCK_MONOTONIC: since when `pending` holds */
	ts_u32 pending;	 /* enum ts_cause, TS_ON_CPU or TS_UNKNOWN */
	ts_u32 open;	 /* SDK: selected spans that are open; else requests that are */
	struct ts_totals totals;
	ts_u32 kernel_tid;  /* the thread as the kernel numbers it; 0: not metered */
	ts_u32 begun;	    /* requests that began on this thread */
	ts_u64 spans;	    /* how many spans ended here, kept or not; never reset */
	ts_u32 answered;    /* of those that began: answered by this thread, */
	ts_u32 gone;	    /* and no longer open without that */
	ts_u64 reserved[5]; /* `recent` starts at a cache line */
	struct ts_recent recent[TS_RECENTS];
} __attribute__((aligned(64)));

/* Whose the largest of a cause's `n` latest episodes was, if `count` is how many there were so
 * far; 0: nobody is known. */
static inline ts_u16 ts_blamed(const struct ts_recent *recent, ts_u32 count, ts_u32 n)
{
	const struct ts_episode *e = recent->episode;
	ts_u16 who = 0;
	int i;

	for (i = TS_EPISODES - 1; i >= 0; i--)
		if (e[i].ns && (ts_u16)(count - e[i].n) < n)
			who = e[i].who;
	return who;
}

/* How many threads of one process the SDK can serve at a time. */
#define TS_METERS 2048u

/*
 * A row as it travels from where a span ended to the recorder: this head, then for each bit
 * of `causes`, lowest first, one struct ts_share. Not the ledger's row: that is made from it.
 */
struct ts_row {
	ts_u64 begin; /* SDK: cycles; kernel: CLOCK_MONOTONIC ns */
	ts_u64 wall;  /* in the same unit */
	ts_u64 id;    /* the request, if TS_ROW_HAS_ID */
	ts_u32 pid;   /* kernel only: SDK rows are their process's and their chunk's */
	ts_u32 tid;
	ts_u16 causes; /* bit i: a share for cause i follows */
	ts_u16 cpu;
	ts_u8 name; /* SDK: index into the region's names; kernel: which span source */
	ts_u8 flags;
	ts_u16 text; /* kernel: number of the name that an argument of a probe gave; 0: none */
	/* ready..send spans: how long the request was ready while its thread did other work */
	ts_u64 queue_ns;
	ts_u16 kept; /* the code of the probability with which it was; 0: for certain */
	ts_u16 reserved[3];
};

struct ts_share {
	ts_u64 ns;
	ts_u32 n;
	ts_u16 who; /* whose the largest of these times was; 0: nobody is known */
	ts_u16 reserved;
};

enum {
	TS_ROW_HAS_ID = 1,
	TS_ROW_HAS_COUNTS = 2,	/* SDK: a struct ts_counts comes after the shares */
	TS_ROW_HAS_REQUEST = 4, /* sockets: a struct ts_request comes after the shares */
};

/* Why TCP kept the end of an answer back (net/ipv4/tcp_output.c). */
enum ts_held {
	TS_HELD_NOT = 0,
	TS_HELD_NAGLE,	    /* small, and earlier data is not acknowledged */
	TS_HELD_CORK,	    /* the program asked for it (TCP_CORK, MSG_MORE) */
	TS_HELD_WINDOW,	    /* the receiver has no room */
	TS_HELD_CONGESTION, /* the congestion window is full */
	TS_HELD_OTHER,	    /* pacing, small queues */
};

/* What is known of a request beside its thread's meter. */
struct ts_request {
	ts_u64 accept_ns;  /* its connection waited to be accepted */
	ts_u64 tcp_ns;	   /* TCP kept the end of its answer back */
	ts_u64 unknown_ns; /* another thread than received it had it, or nobody */
	ts_u32 others;	   /* requests that its thread began or answered while it was open */
	ts_u16 tcp_why;	   /* enum ts_held */
	ts_u16 family;	   /* of the peer that `queue` is put down to; 0: not known */
	ts_u64 blocked_ns; /* how long that peer's request took */
	ts_u8 address[16]; /* network order; the first four bytes for IPv4 */
	ts_u16 port;
	ts_u16 reserved[3];
};

/*
 * Hardware counters: which events the SDK's threads count, each for itself, and what a span
 * counted. A CPU counts only a few at a time, so the recorder lets groups of events take turns.
 */
#define TS_COUNTERS 6u /* events of a group */

/* An event as struct perf_event_attr has it; what the kernel executes is never counted. */
struct ts_event {
	ts_u32 type;
	ts_u32 reserved;
	ts_u64 config;
	ts_u64 config1;
	ts_u64 config2;
};

/* The group whose turn it is: read `turn`, the rest, and `turn` again. */
struct ts_counting {
	ts_u32 group; /* the recorder's number for these events */
	ts_u32 count;
	struct ts_event event[TS_COUNTERS];
	ts_u32 refused; /* SDK: the error number with which a thread last could not count */
	ts_u32 reserved;
};

/* What a span counted: this, then for each bit of `known`, lowest first, a ts_u64. */
struct ts_counts {
	ts_u16 group;
	ts_u16 known; /* bit i: a value for event i of the group follows */
	ts_u16 reserved[2];
};

/*
 * Which rows are written, decided when a span ends: all that took `always_from` or longer, and
 * of the others those for which a random 32-bit number is below TS_KEEP_PROBABILITY(others), or
 * all if `others` is 0. A row carries the code that it was drawn with, so the recorder may
 * change both words at any time, one after the other, and every row's weight stays right.
 */
struct ts_retention {
	ts_u64 always_from; /* wall time in the row's unit; all ones: never */
	ts_u64 others;	    /* a code of 16 bits */
};

/* Eleven bits of mantissa below five of exponent, of 2^32. */
#define TS_KEEP_PROBABILITY(code) ((ts_u64)((code)&2047u) << ((code) >> 11 & 31u))

#define TS_ROW_MAX (sizeof(struct ts_row) + TS_CAUSES * sizeof(struct ts_share))
/* In a chunk of the SDK. */
#define TS_SDK_ROW_MAX (TS_ROW_MAX + sizeof(struct ts_counts) + TS_COUNTERS * sizeof(ts_u64))

/* In a ring of the kernel's programs. */
#define TS_KERNEL_ROW_MAX (TS_ROW_MAX + sizeof(struct ts_request))

#define TS_RING_HEAD 4096u
#define TS_RING_SLACK 4096u

/* One CPU's ring of rows: one producer, the programs on that CPU; one consumer, the recorder.
 * Positions only grow. A row never wraps: where less than TS_KERNEL_ROW_MAX is left before the end,
 * both sides go on at the begin. */
struct ts_ring {
	ts_u64 head; /* the producer's */
	ts_u64 busy; /* probes: a row is being written, perhaps by a program that was preempted */
	ts_u64 reserved[6];
	ts_u64 tail; /* the consumer's */
	ts_u64 reserved2[503];
	/* from TS_RING_HEAD: the rows, a power of two of bytes, and TS_RING_SLACK */
};

/*
 * The region: memory that one process shares with the recorder (a memfd from the recorder).
 * Rows go into chunks. A thread owns the chunk that it writes; the recorder follows `used`
 * while it grows and frees a full chunk once it has read it.
 */
#define TS_CHUNK_BYTES 4096u
#define TS_CHUNKS 2048u
#define TS_NAMES 255u
#define TS_NAME_BYTES 64u
#define TS_MAGIC 0x31656c6174ull /* "tale1" */

enum ts_chunk_state {
	TS_CHUNK_FREE = 0,
	TS_CHUNK_OWNED = 1, /* | slot << 8 */
	TS_CHUNK_FULL = 2,
};

struct ts_chunk {
	ts_u32 used; /* bytes of rows that are whole */
	ts_u32 tid;  /* the owner's kernel_tid */
	ts_u8 rows[TS_CHUNK_BYTES - 8];
};

struct ts_name {
	ts_u32 length; /* 0: free; TS_NAME_BUSY: being written */
	char text[TS_NAME_BYTES - 4];
};
#define TS_NAME_BUSY 0xffffffffu

struct ts_region {
	ts_u64 magic;
	ts_u32 abi;
	ts_u32 turn;	  /* of `counting`; odd: it is being written; 0: nothing is counted */
	ts_u64 sample;	  /* a span is metered if a random 32-bit number is below it */
	ts_u64 heartbeat; /* cycles: when the recorder last looked */
	ts_u64 heartbeat_overdue; /* cycles after which to ask whether it is alive */
	ts_u64 lost;		  /* rows for which no chunk was free */
	ts_u64 unnamed;		  /* rows whose name found no place */
	ts_u32 chunk_state[TS_CHUNKS];
	struct ts_name names[TS_NAMES];
	struct ts_retention retention[TS_NAMES + 1]; /* by name; the last for spans without one */
	struct ts_counting counting;
	ts_u8 tail[64];
};

#define TS_REGION_HEAD 32768u /* struct ts_region, rounded up to pages */
#define TS_REGION_BYTES (TS_REGION_HEAD + TS_CHUNKS * TS_CHUNK_BYTES)
#define TS_METERS_BYTES (TS_METERS * sizeof(struct ts_meter))

/* The recorder's answer to a process that connects, with two descriptors: the meters' map and
 * the region. */
struct ts_answer {
	ts_u64 magic;
	ts_u32 abi;
	ts_u32 status; /* 0, or why not */
};

enum {
	TS_ACCEPTED = 0,
	TS_NOT_WATCHED = 1,
	TS_NO_ROOM = 2,
};

#define TS_SOCKET "/run/tailscope/sdk.sock"

/* How many recorders may listen at a time. The second one's socket has this after the path of the
 * first one's, and it listens to the probe tailscope:thread_second. */
#define TS_RECORDERS 2u
#define TS_SECOND ".second"

/*
 * Channels: numbers that a process keeps up to date for an observer (`tailscope observe`), each in a
 * cache line of its own, in a file in memory that the process makes and seals against shrinking.
 * `value` is written by one plain store; the rest is written once.
 */
#define TS_CHANNEL_FILE "tailscope-channels"
#define TS_CHANNEL_MAGIC 0x316e6e616863ull /* "chann1" */
#define TS_CHANNEL_SLOTS 255u
#define TS_CHANNEL_NAME 48u /* with the zero at its end */

enum ts_channel_kind {
	TS_CHANNEL_FREE = 0,
	TS_COUNTER = 1, /* only grows: an observer tells its rate */
	TS_TAG = 2,	/* says what is being done: an observer tells rates by it */
	TS_CODE = 3,	/* the same by an address in the process's code */
	TS_PLACE = 4,	/* the same by a number in the process's table of places */
};

struct ts_channel {
	ts_u64 value;
	ts_u32 kind; /* written last */
	ts_u32 reserved;
	char name[TS_CHANNEL_NAME];
};

struct ts_channels {
	ts_u64 magic;
	ts_u32 taken; /* slots that were claimed, perhaps more than there are */
	ts_u32 reserved[13];
	struct ts_channel slot[TS_CHANNEL_SLOTS];
};

/*
 * Places: the names of methods (`package.Class.method`) and loops (`package.Class.method:LINE`) whose
 * numbers the channels of kind TS_PLACE hold, in another file in memory. After this header come
 * `used` bytes of text: a line's end, and then a line a place. A place's number is where in the text
 * its line begins. `used` is written after the line, and neither ever changes a line.
 */
#define TS_PLACES_FILE "tailscope-places"
#define TS_PLACES_MAGIC 0x316563616c70ull /* "place1" */
#define TS_PLACES_BYTES 16777216u	  /* of the file: more places have the number 0 */
#define TS_PLACE_NAME 512u		  /* with the line's end */

struct ts_places {
	ts_u64 magic;
	ts_u64 used;
};

#endif
