/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the programs and their loader (Rust, generated from here) must agree on. */
#ifndef TAILSCOPE_SHARED_H
#define TAILSCOPE_SHARED_H

#define MAX_CPUS 1024
#define RUNNING_SEEN (1ull << 63)
#define NESTING 3
#define MAX_METER_MAPS 256
/* The first outer slots are ours: OWN_MAPS maps of TS_METERS slots. Slot 0 of the outer map
 * stays empty, so that map 0 can mean "nobody". */
#define FIRST_OWN_MAP 1
#define OWN_MAPS 8
#define FIRST_SDK_MAP (FIRST_OWN_MAP + OWN_MAPS)
#define OWN_SLOTS (OWN_MAPS * TS_METERS)
#define SYSCALLS 512
/* Sources of spans by the name in their rows: probes from 0 on, and sockets. */
#define SOURCES 256
#define SOCKET_SOURCE 255
#define EVENTS_BYTES (256 << 10)

/* Spans from probes. */
#define MAX_SOURCES 16	      /* a power of two */
#define OPEN_SPANS 16	      /* of one thread at a time */
#define OPEN_SPANS_SLOTS 1024 /* of our first map of meters, see open_spans.h */
#define PROBE_ROWS_BYTES (8 << 20)
#define TEXT_BYTES 64
#define MAX_TEXTS 1024
#define TEXT_OTHER 0xffff /* the name of all that came after the table was full */
/* A probe's cookie: the source in its low bits, from these on one byte each: which argument. */
#define COOKIE_ID 8
#define COOKIE_NAME 16

/*
 * Who is to blame, as 16 bits: one of these, or a kind with a number in its low bits. A thread's
 * number is its place in the table of blamed threads, in which each name stands once.
 */
#define WHO_NOBODY 0	/* not known */
#define WHO_OTHER 1	/* a thread for whose name the table had no room */
#define WHO_IDLE 2	/* nobody ran: the CPU was idle, and slow to wake up */
#define WHO_INTERRUPT 3 /* woken by an interrupt: a timeout, a device */
#define WHO_PACKETS 4	/* woken by packets that no thread of this machine has just sent */
#define WHO_FREEZER 5	/* stopped by its cgroup's freezer */
#define WHO_THREAD 0x1000
#define WHO_IRQ 0x4000
#define WHO_VECTOR 0x8000
#define WHO_SOFTIRQ 0xc000
#define MAX_BLAMED 1024 /* a power of two, at most WHO_IRQ - WHO_THREAD */
#define BLAMED_PROBES 8 /* places in which a name may stand */
#define COMM_BYTES 16

enum blamed_state {
	BLAMED_FREE = 0,
	BLAMED_BUSY,
	BLAMED_READY,
};

struct blamed {
	ts_u32 state;
	ts_u32 reserved;
	ts_u8 comm[COMM_BYTES];	   /* the thread's name, */
	ts_u8 process[COMM_BYTES]; /* and its process's: that of the thread which began it */
};

/* The last byte of a process's name is never part of it: here it says how the thread is to blame. */
#define BLAMED_HAD_TURN 1 /* it had the lock of the interpreter */

/* What a thread that blocks inside a system call waits for. */
enum syscall_kind {
	KIND_SLEEP = 0,
	KIND_FUTEX,
	KIND_NETWORK,
	KIND_IO,
	KIND_FILE, /* the file behind its first argument decides */
	KIND_POLL, /* as KIND_NETWORK, for at most so long as POLL_… say */
	KIND_LOCK, /* a lock of a file, or a semaphore */
};
#define KIND_MASK 0x07
#define KIND_FREES 0x08 /* the call may wake a thread that waits for room, or for its turn */
/* Flags: where the bytes are that the call receives or sends, by its second argument. */
#define KIND_BUFFER 0x10
#define KIND_VECTOR 0x20
#define KIND_MESSAGE 0x40
/* The same bits of a KIND_POLL. Its longest time is the fourth argument, in ms, unless these say
 * otherwise. THIRD and FIFTH together: the fifth argument, a pointer to a struct timeval. */
#define POLL_THIRD 0x10
#define POLL_FIFTH 0x20
#define POLL_POINTS 0x40 /* it is a pointer to a struct timespec */
#define KIND_WAKES 0x80	 /* the call may wake a thread that waits for a message or a signal */

/* What user space decides before loading. Probabilities are of 2^32. */
struct config {
	ts_u64 sample;	   /* which spans are metered at all */
	ts_u64 ring_mask;  /* bytes of a CPU's ring of rows, less one */
	ts_u32 skip_range; /* small samples: how many requests to pass over is drawn below this */
	ts_u8 follow_children;
	ts_u8 from_ready;	 /* ready..send rather than recv..send */
	ts_u8 tell_programs;	 /* of every program that starts, watched or not */
	ts_u8 probes;		 /* spans come from probes in programs, too */
	ts_u8 names;		 /* requests are named after their first bytes */
	ts_u8 traces;		 /* and their traceparent headers are looked for */
	ts_u8 stacks;		 /* stacks of threads with an open span are sampled */
	ts_u8 stacks_everywhere; /* and of all others: which have a span shows only later */
	ts_u8 tls;		 /* requests over TLS are named after what SSL_read returns */
	ts_u8 headers;		 /* headers of requests over HTTP/2 are read, for names or traces */
	ts_u8 slices;		 /* requests are put together from what threads do */
	ts_u8 reserved[1];
	ts_u64 stack_period_ns;	      /* what a sample on the CPU stands for */
	ts_u8 syscall_kind[SYSCALLS]; /* enum syscall_kind, by the system call's number */
};

/* Stacks, see stacks.h. */
#define STACK_BYTES 16384
#define KERNEL_FRAMES 32
#define STACK_ON_CPU 255
#define STACK_RING_BYTES (16 << 20)
#define BLOCKED_STACKS 1024	       /* threads whose latest block is remembered */
#define BLOCKED_STACKS_PER_SECOND 2000 /* that each CPU sends at most */

#define STACK_RETURNS 4
#define PYTHON_FRAMES 96

/* A return address that a uretprobe has replaced: where it was, and what it was. */
struct stack_return {
	ts_u64 at;
	ts_u64 to;
};

/* A function of Python that a thread is in. */
struct python_frame {
	ts_u64 code; /* its code object */
	ts_u64 mark; /* PYTHON_MARK of it */
};
/* A mix of a code object's first line and of the addresses of its name and file name. If it has
 * changed, another object has the memory by now. */
#define PYTHON_MARK(name, file, line) ((name) ^ (file) << 17 ^ (ts_u64)(line) << 4)
#define PYTHON_LAST 1 /* in `mark`: the outermost of its call of the C function that runs them */

/* Where in a process CPython keeps its frames: offsets, if nothing else is said. */
struct python {
	ts_u64
	    interpreter; /* an address: there is a pointer to the main interpreter; 0: not known */
	ts_u32 threads;	 /* in an interpreter: the first thread state */
	ts_u32 next;	 /* in a thread state: the next one */
	ts_u32 number;	 /* in a thread state: the thread's number */
	ts_u32 frame;	 /* in a thread state: the innermost frame, or what has it */
	ts_u32 through;	 /* in what has the innermost frame, plus 1; 0: the thread state has it */
	ts_u32 previous; /* in a frame: that of the caller */
	ts_u32 code;	 /* in a frame: its code object */
	ts_u32 owner;	 /* in a frame: a byte that is `last` if no frame around it belongs to the
			     * same call of the C function that runs them */
	ts_u32 last;
	ts_u32 last_is_none; /* such a frame is no function's, and comes after the last that is */
	ts_u32 name;	     /* in a code object: its name */
	ts_u32 file;	     /* in a code object: its file's name */
	ts_u32 line;	     /* in a code object: its first line */
	ts_u32 reserved;
};

/* Where a thread was, in a ring; cut off behind the last of its chunks. */
struct stack_sample {
	ts_u64 at; /* CLOCK_MONOTONIC: of the tick, or when it blocked */
	ts_u64 ns; /* what it stands for */
	ts_u64 ip; /* the user's registers on the way into the kernel */
	ts_u64 sp;
	ts_u64 fp;   /* frame pointer */
	ts_u64 lr;   /* arm64: return address */
	ts_u64 from; /* where `bytes` were */
	ts_u32 pid;
	ts_u32 tid;
	ts_u32 cause;	      /* of the block: enum ts_cause; or STACK_ON_CPU */
	ts_u32 kernel_frames; /* 0: it ran the user's code */
	ts_u32 chunks;	      /* of 1024 bytes, that could be read */
	ts_u32 python_frames;
	ts_u32 python_whole; /* 1: the frames reach the thread's first function of Python */
	ts_u32 reserved;
	struct stack_return returns[STACK_RETURNS]; /* 0: there are no more */
	ts_u64 kernel[KERNEL_FRAMES];		    /* return addresses, the innermost first */
	struct python_frame python[PYTHON_FRAMES];  /* the innermost first */
	ts_u8 bytes[STACK_BYTES]; /* the user's stack, from its innermost frame on */
};

#define TURNS 4

/* A thread had the lock of its interpreter. */
struct turn {
	ts_u64 begin;
	ts_u64 end; /* 0: nothing is here */
	ts_u64 who; /* as an episode has it */
};

struct process {
	ts_u32 map;	/* the SDK's map of meters, 0 without one */
	ts_u32 refused; /* errno with which the SDK failed to attach */
	ts_u32 stopper; /* who sent it the latest signal that stops, as an episode has it */
	ts_u32 reserved;
	/* Where its interpreter keeps the lock by which one thread runs at a time; both 0: not known. */
	ts_u64 interpreter;
	ts_u64 interpreter_end;
	struct python python;	 /* where that keeps its frames */
	struct turn turn[TURNS]; /* each shorter than the one before it */
};

/* What could not be metered or written, and why. */
struct lost {
	ts_u64 rows;	  /* the ring of rows was full */
	ts_u64 threads;	  /* no free slot, or no memory for its state */
	ts_u64 nesting;	  /* interrupts nested deeper than NESTING */
	ts_u64 events;	  /* the ring of events was full */
	ts_u64 sockets;	  /* no memory for a socket's state */
	ts_u64 switches;  /* a thread ran whose switch-in was not seen; its wait was worked out */
	ts_u64 processes; /* a child could not be followed: the table is full */
	ts_u64 abandoned; /* a span from probes began, and its end never came */
	ts_u64 depth;	  /* more spans from probes were open than OPEN_SPANS */
	ts_u64 names;	  /* an argument that should be the name could not be, see number_of */
	ts_u64 slices;	  /* an entry of a ring of slices: full, or in use */
	ts_u64 stacks;	  /* a stack: the ring was full, too many threads blocked, or too often */
	ts_u64 blamed; /* a thread ran instead, or held a lock, that found no room in the table */
};

/* Requests of sockets that are no rows, or whose rows say too little. */
struct uncovered {
	ts_u64 pipelined; /* they came together with another, and count as one with it; estimated */
	ts_u64 multiplexed; /* receives on connections of HTTP/2, on which requests overlap */
	ts_u64 unanswered;  /* the connection ended before an answer */
	ts_u64 continued;   /* the answer went on after its row was written */
	ts_u64 encrypted;   /* rows of connections with TLS, whose handshakes count as requests */
};

/* A request from this length on is remembered as what others queued behind: a shorter one makes
 * nobody's tail, and remembering costs a look at the thread's storage. */
#define BLAMED_FROM_NS 20000
/* An answer that goes on so much later than its row says is counted as `continued`. */
#define CONTINUED_FROM_NS 50000
/* What the iterator over answers is asked, and says. */
struct late {
	ts_u64 before; /* answers whose latest send ended earlier are finished */
	ts_u64 left;   /* so many found no room in its latest run */
};

/* Rows of answers that ended without a further receive. */
#define LATE_ROWS_BYTES (1 << 20)

/* What no hook sees of an event, measured before anybody is recorded; 0: not known. */
struct unseen {
	ts_u64 fault_ns; /* the way into the kernel and back, of each page fault */
	ts_u64 irq_ns;	 /* the same of each interrupt, with what a hypervisor does for it */
};

/* What the loader has to know about processes, in a ring of its own. */
enum event_kind {
	EVENT_CHILD = 1,   /* a watched process made another; now watched too */
	EVENT_EXEC = 2,	   /* a watched process runs another program */
	EVENT_EXIT = 3,	   /* the last thread of a watched process is gone */
	EVENT_REFUSED = 4, /* its SDK could not reach the recorder: detail is the errno */
	EVENT_PROGRAM = 5, /* a process that is not watched runs another program */
	EVENT_ROWS = 6,	   /* half a ring of rows was filled since the last time */
};

struct event {
	ts_u32 kind;
	ts_u32 pid;
	ts_u32 detail; /* of EVENT_EXEC: the user whose process it is */
	/* Of EVENT_EXEC: the program's file, as the kernel has it, and when, in ns of the kernel's
	 * clock. Programs with deep stacks write events: these must not grow. */
	ts_u32 device;
	ts_u64 inode;
	ts_u64 at;
};

#endif
