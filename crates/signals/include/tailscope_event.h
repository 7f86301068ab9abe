/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The timeline's events, as the kernel's programs write them and user space reads them: one fixed
 * size, one ring a CPU, in an mmapable BPF array. A ring is never full: the oldest event makes room.
 * Windows of these same bytes are what a trace file holds, so a change raises TL_ABI. A new kind does
 * not: whoever does not know it passes over it.
 */
#ifndef TAILSCOPE_EVENT_H
#define TAILSCOPE_EVENT_H

#include <linux/types.h>

#define TL_ABI 1
#define TL_RING_HEAD 4096 /* a page, so that the events begin at one */
#define TL_EVENT_BYTES 32

/*
 * A socket is named by its place in the kernel's memory, in units of 64 bytes, of which these are
 * the low bits: unique among those that live, where the kernel has less than 256 GiB.
 */

/* What happened. The words behind each: which fields it uses besides at, place and tid. */
enum tl_kind {
	TL_NOTHING = 0, /* a slot that nothing was written to */
	/* tid: who leaves. x: who comes, y: its process, z: the leaver's process, small: the
	 * leaver's state (0: it could go on), flags 1: it was preempted, 2: it had real-time priority */
	TL_SWITCH = 1,
	TL_WAKING = 2, /* tid: by whom (what runs on top of it, if anything), x: who, z: process */
	TL_SOFTIRQ_IN = 3,  /* small: its number */
	TL_SOFTIRQ_OUT = 4, /* the same */
	TL_IRQ_IN = 5,	    /* x: the interrupt's number */
	TL_IRQ_OUT = 6,	    /* the same */
	TL_VECTOR_IN = 7,   /* small: the vector's number (timer, IPI, …) */
	TL_VECTOR_OUT = 8,  /* the same */
	TL_FAULT_IN =
	    9, /* x, y: the address, low half first; 0 where the mechanism does not tell */
	TL_FAULT_OUT = 10,
	TL_SYSCALL_IN = 11,  /* small: its number, x: the first argument's low half */
	TL_SYSCALL_OUT = 12, /* small: its number, x: the result's low half */
	TL_PACKET_IN = 13,   /* x: its length: the stack takes it from the device */
	TL_TCP_IN = 14, /* x: socket, y: sequence after it, z: what it acknowledges, small: bytes */
	TL_READY = 15,	/* x: socket: its reader is told */
	/* x: socket, y: sequence up to which was read, z: bytes, flags 1: TCP, 2: a client's socket */
	TL_RECEIVE = 16,
	/* x: socket, y: sequence after it, z: bytes, flags 1: TCP, small: enum tl_held */
	TL_SEND = 17,
	/* The device takes it. x: socket, y: sequence after it, small: bytes, z: ns since its sender's
	 * system call began; 0: it is in none that sends, or in one that is not followed */
	TL_TRANSMIT = 18,
	TL_IDLE = 19,	     /* x: the state's number, ~0: the CPU is awake again */
	TL_BLOCK_ISSUE = 20, /* x: request, y: bytes */
	TL_BLOCK_DONE = 21,  /* the same */
	/* A thread ends, or takes another name; two events follow each other, eight bytes of it in
	 * y and z each. x: its process */
	TL_NAME_FRONT = 22,
	TL_NAME_BACK = 23,
	/* The JVM says that something begins, or ends. small: enum tl_jvm, x, y, z: the first twelve
	 * bytes of its name, if it has one; flags 1: TL_TEXT follows with twelve more */
	TL_JVM_IN = 24,
	TL_JVM_OUT = 25,
	TL_TEXT = 26,
	/* As TL_RECEIVE, by a process that is not watched: what a watched one sent it by TCP on this
	 * machine, as a rule. x: socket, y: sequence up to which was read, z: bytes */
	TL_TAKEN = 27,
	/* A probe in a program begins a span. small: its source, x, y: the stack pointer, low half
	 * first, z: the low half of the place in the program */
	TL_SPAN_IN = 28,
	/* And ends it; flags 1: at the return of the call that began it */
	TL_SPAN_OUT = 29,
	/* A program said itself where a span began and ended (sdk/), and here it ends. Written by the
	 * flight recorder, in a ring of its own. small: its name, x, y: its length in ns, low half first */
	TL_SPAN = 30,
	/* A thread goes to another CPU's queue: to that of the CPU it is woken on, if waker and CPU are
	 * TL_WAKING's, which comes before; else it is moved while it waits. x: who, y: which CPU */
	TL_MIGRATE = 31,
	/* The CPU's timer interrupts a thread, and so shows where it spends its time. x, y: where in its
	 * program, low half first, z: its process, flags 1: the kernel was at work for it there */
	TL_TICK = 32,
	TL_KINDS = 33,
};

/* Why TCP did not send at once what it was given. */
enum tl_held {
	TL_HELD_NOT = 0,
	TL_HELD_NAGLE = 1,	/* a small piece, and an earlier one is not acknowledged */
	TL_HELD_CORK = 2,	/* the program asked for full pieces */
	TL_HELD_WINDOW = 3,	/* the receiver has no room */
	TL_HELD_CONGESTION = 4, /* the network's share is used up */
	TL_HELD_OTHER = 5,	/* pacing, a full queue of the device */
};

/* What a JVM does, by HotSpot's own probes. */
enum tl_jvm {
	TL_JVM_COLLECTION = 0, /* gc__begin, gc__end: all threads are stopped */
	TL_JVM_OPERATION = 1,  /* vmops__*: what all threads are stopped for */
	TL_JVM_COLLECTOR = 2,  /* mem__pool__gc__*: which collector it is */
	TL_JVM_CLASS = 3,      /* class__loaded: the end of it alone */
	TL_JVM_COMPILE = 4,    /* method__compile__* */
	TL_JVM_MONITOR = 5,    /* monitor__contended__enter, __entered; -XX:+DTraceMonitorProbes */
	TL_JVM_START = 6,      /* vm__init__* */
	/* class__initialization__required; to __end, or to where it was found to be done already, by
	 * another thread (__concurrent) or by this one further out (__recursive), or failed */
	TL_JVM_INITIALIZATION = 7,
};

struct tl_event {
	__u64 at;    /* ns of CLOCK_MONOTONIC */
	__u32 place; /* low bits of its number on this CPU, from 0; written last */
	__u32 tid;
	__u8 kind;
	__u8 flags;
	__u16 small;
	__u32 x;
	__u32 y;
	__u32 z;
};

/* The begin of a CPU's ring; the events follow at TL_RING_HEAD. */
struct tl_ring {
	__u64 head; /* how many events were begun: the next one's number */
};

#endif
