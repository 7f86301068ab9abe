/* SPDX-License-Identifier: MIT */
/*
 * Tailscope for C and C++: tell where a request begins and ends.
 *
 *	#include <tailscope.h>
 *
 *	ts_span span;
 *	ts_span_begin(&span, "get");
 *	... the work, on this thread ...
 *	ts_span_end(&span);
 *
 * Nothing to link, nothing to initialise. Without a recorder both calls cost one load and a
 * branch; with one they read the thread's meter, a few tens of nanoseconds, and make no system
 * call. Spans may nest and overlap; a span begins and ends on the same thread. A name is a
 * string that lives as long as the program; up to TS_NAMES names of 59 bytes a process.
 *
 * How it finds the recorder: the recorder attaches to the probe tailscope:thread below, whose
 * semaphore the kernel then raises in this process and lowers when the recorder goes, however
 * it goes. The first begin after that connects to the recorder's socket ($TAILSCOPE_SOCKET, else
 * TS_SOCKET; with a dot and the user's id, if there is one) and gets two pieces of shared memory: the meters and the region for rows. Each
 * thread claims a meter and tells the kernel, through the probe, which one.
 *
 * Two recorders may listen at a time. The second has all of this for itself: the probe
 * tailscope:thread_second with its own semaphore, the socket with TS_SECOND after its path, meters
 * and a region. Neither knows of the other, and each begin and end works for one after the other.
 *
 * Limits: in a signal handler a thread's first begin may go unmetered; a child made by clone() without
 * fork()'s handlers must not use spans that were open in its parent.
 */
#ifndef TAILSCOPE_H
#define TAILSCOPE_H

#if !defined(__linux__) || !(defined(__x86_64__) || defined(__aarch64__)) || \
    defined(TAILSCOPE_DISABLED)

/* Elsewhere, or when switched off by -DTAILSCOPE_DISABLED, the same calls do nothing. The system
 * headers that the rest includes are not there then: include what you use yourself. */
#include <stdint.h>
typedef struct {
	char unused;
} ts_span;
static inline void ts_span_begin(ts_span *span, const char *name)
{
	(void)span;
	(void)name;
}
static inline void ts_span_end(ts_span *span)
{
	(void)span;
}
static inline void ts_span_end_id(ts_span *span, int64_t id)
{
	(void)span;
	(void)id;
}

#else

#if !defined(_DEFAULT_SOURCE) && !defined(_GNU_SOURCE)
#define _DEFAULT_SOURCE /* mmap and syscall, under -std=c11 */
#endif
#include "tailscope_abi.h"
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#ifdef __x86_64__
#include <x86intrin.h>
#endif
#ifndef MAP_ANONYMOUS
#error "include tailscope.h before other headers, or compile with -D_DEFAULT_SOURCE"
#endif

#ifdef __cplusplus
extern "C" {
#define TS__THREAD_LOCAL thread_local
#else
#define TS__THREAD_LOCAL _Thread_local
#endif

/* One copy a program or shared library, however many files include this. */
#define TS__ONE __attribute__((weak, visibility("hidden")))

#include "tailscope_counters.h"

/* What a begin read for one recorder. */
struct ts__seen {
	struct ts_meter *meter;
	ts_u64 epoch; /* of the attachment that `meter` belongs to */
	ts_u64 begin;
	ts_u32 seq;
	struct ts_totals totals;
	struct ts__counted counted;
};

typedef struct {
	ts_u32 metered; /* bit i: for recorder i; 0: this span is not metered */
	const char *name;
	struct ts__seen seen[TS_RECORDERS];
} ts_span;

/* Whether there is anything to do. All is looked at in one load. */
union ts__semaphore {
	ts_u64 any;
	ts_u32 of[TS_RECORDERS]; /* both halves of one recorder */
	struct {
		/* Whether the recorder listens: the kernel's number, raised and lowered through
		 * its probe. */
		unsigned short recorders;
		/* Ours: threads count events, and must stop when the recorder has gone. */
		unsigned short counting;
	} part[TS_RECORDERS];
};

/* On a page of its own, because lld maps the page on which two kinds of data meet twice, and the
 * kernel would find the wrong one when a program starts. */
#define TS__OWN_PAGE __attribute__((section(".probes"), aligned(4096)))
TS__ONE TS__OWN_PAGE volatile union ts__semaphore tailscope_semaphore = {0};

/* --- from here to the end of the block: not for callers ---------------------------------- */

/* What the process shares with one recorder. */
struct ts__process {
	ts_u32 locked;
	int fork_handled; /* the first one's is for both */
	ts_u64 epoch;	  /* 0: not attached */
	ts_u64 next_epoch;
	struct ts_region *region;
	struct ts_meter *meters;
	void *reserved;	    /* where both are mapped, once and for all */
	char *counters;	    /* where perf's pages are mapped, by meter; NULL: nowhere yet */
	size_t page_bytes;  /* of one of them */
	ts_u32 *counting;   /* which thread's they are, by meter; 0: nobody's */
	ts_u32 left;	    /* begins since the recorder left while threads counted */
	ts_u64 retry_after; /* cycles */
	ts_u64 retry_wait;  /* cycles */
	ts_u64 check_after; /* cycles: when to ask again whether a silent recorder lives */
	int socket;
	dev_t socket_dev; /* to know it again before it is closed: programs close all they find */
	ino_t socket_ino;
};

/* The same of a thread. */
struct ts__thread {
	ts_u64 epoch; /* of the process's attachment that the rest belongs to */
	struct ts_meter *meter;
	struct ts_chunk *chunk;
	ts_u64 random;
	ts_u32 chunk_index;
	ts_u32 used;
	ts_u32 skip;	       /* rows to lose before a free chunk is looked for again */
	const char *names[16]; /* the last names used, and their numbers */
	ts_u8 numbers[16];
	struct ts__counters counters;
};

/* By recorder, as all that follows: the first, which most spans have alone, and the second. */
TS__ONE struct ts__process ts__process[TS_RECORDERS] = {
    {0, 0, 0, 0, NULL, NULL, NULL, NULL, 0, NULL, 0, 0, 0, 0, -1, 0, 0},
    {0, 0, 0, 0, NULL, NULL, NULL, NULL, 0, NULL, 0, 0, 0, 0, -1, 0, 0}};
TS__ONE TS__THREAD_LOCAL struct ts__thread ts__thread[TS_RECORDERS] = {
    {0, NULL, NULL, 0, 0, 0, 0, {NULL}, {0}, {NULL, 0, 0, 0, 0, 0, 0, {0, 0, {0, 0}}, {0}}}};

#define TS__COUNTER_PAGES ((size_t)TS_METERS * TS_COUNTERS)

#include "tailscope_lock.h"
#include "tailscope_guard.h"
#include "tailscope_turns.h"

#define TS__RETRY_FIRST (1ull << 28) /* cycles: about 0.1 s */
#define TS__RETRY_LAST (1ull << 37)  /* about a minute */

static inline ts_u64 ts__cycles(void)
{
#ifdef __x86_64__
	return __rdtsc();
#else
	ts_u64 v;
	__asm__ volatile("isb; mrs %0, cntvct_el0" : "=r"(v)::"memory");
	return v;
#endif
}

/* The clock at a span's end, after the work (rdtscp waits for it), and the CPU. */
static inline ts_u64 ts__cycles_end(ts_u16 *cpu)
{
#ifdef __x86_64__
	unsigned int aux;
	ts_u64 v = __rdtscp(&aux);
	*cpu = (ts_u16)(aux & 0xfff); /* arch/x86/kernel: node << 12 | cpu */
	return v;
#else
	*cpu = 0xffff;
	return ts__cycles();
#endif
}

/* The probe that a recorder attaches to: a nop, and a note that says where it is. */
#define TS__PROBE(name, semaphore, slot)                                                         \
	__asm__ volatile("990: nop\n"                                                            \
			 ".pushsection .note.stapsdt,\"?\",\"note\"\n"                           \
			 ".balign 4\n"                                                           \
			 ".4byte 992f-991f, 994f-993f, 3\n"                                      \
			 "991: .asciz \"stapsdt\"\n"                                             \
			 "992: .balign 4\n"                                                      \
			 "993: .8byte 990b\n"                                                    \
			 ".8byte _.stapsdt.base\n"                                               \
			 ".8byte " semaphore "\n"                                                \
			 ".asciz \"tailscope\"\n"                                                \
			 ".asciz \"" name "\"\n"                                                 \
			 ".asciz \"-8@%[arg]\"\n"                                                \
			 "994: .balign 4\n"                                                      \
			 ".popsection\n"                                                         \
			 ".ifndef _.stapsdt.base\n"                                              \
			 ".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n" \
			 ".weak _.stapsdt.base\n"                                                \
			 ".hidden _.stapsdt.base\n"                                              \
			 "_.stapsdt.base: .space 1\n"                                            \
			 ".size _.stapsdt.base, 1\n"                                             \
			 ".popsection\n"                                                         \
			 ".endif\n" ::[arg] "r"((long)(slot))                                    \
			 : "memory")

TS__ONE __attribute__((noinline)) void ts__tell(ts_u32 which, long slot)
{
	if (which)
		TS__PROBE("thread_second", "tailscope_semaphore+4", slot);
	else
		TS__PROBE("thread", "tailscope_semaphore", slot);
}

/* In a child: nothing of the parent's attachment holds. Its mappings are the parent's too. */
TS__ONE void ts__after_fork(void)
{
	ts_u32 which;

	memset(ts__thread, 0, sizeof(ts__thread));
	ts__guard.locked = 0;
	for (which = 0; which < TS_RECORDERS; which++) {
		struct ts__process *p = &ts__process[which];

		p->locked = 0;
		p->epoch = 0;
		p->retry_after = p->retry_wait = 0;
		if (p->reserved)
			mmap(p->reserved, TS_METERS_BYTES + TS_REGION_BYTES, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
		if (p->counters) { /* of perf's own pages a child has none */
			munmap(p->counters, TS__COUNTER_PAGES * p->page_bytes);
			munmap(p->counting, TS_METERS * sizeof(*p->counting));
			p->counters = NULL;
		}
		tailscope_semaphore.part[which].counting = 0;
		p->socket = -1; /* the parent's: left open rather than closed under it */
	}
}

static inline void ts__close_socket(struct ts__process *p)
{
	struct stat st;

	if (p->socket >= 0 && !fstat(p->socket, &st) && st.st_dev == p->socket_dev &&
	    st.st_ino == p->socket_ino)
		close(p->socket);
	p->socket = -1;
}

/* How long the first begin waits for the recorder's answer: $TAILSCOPE_PATIENCE_MS, which `record`
 * sets for the command that it starts, as nobody else waits for that; else 0.2 s. */
static inline struct timeval ts__patience(void)
{
	const char *said = getenv("TAILSCOPE_PATIENCE_MS");
	long ms = said ? strtol(said, NULL, 10) : 0;
	struct timeval patience;

	if (ms < 1 || ms > 60000)
		ms = 200;
	patience.tv_sec = ms / 1000;
	patience.tv_usec = ms % 1000 * 1000;
	return patience;
}

/* Connects to a socket and checks who serves it. Returns a descriptor, or -errno. */
TS__ONE int ts__dial(const char *path)
{
	struct timeval patience = ts__patience();
	struct sockaddr_un address;
	struct {
		pid_t pid;
		uid_t uid;
		gid_t gid;
	} peer; /* struct ucred, which asks for _GNU_SOURCE */
	socklen_t length = sizeof(peer);
	int s, e;

	memset(&address, 0, sizeof(address));
	address.sun_family = AF_UNIX;
	strncpy(address.sun_path, path, sizeof(address.sun_path) - 1);
	s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (s < 0)
		return -errno;
	setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	setsockopt(s, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	if (connect(s, (struct sockaddr *)&address, sizeof(address)) ||
	    getsockopt(s, SOL_SOCKET, SO_PEERCRED, &peer, &length))
		e = errno;
	else if (peer.uid != 0 && peer.uid != geteuid()) /* shared memory asks for trust */
		e = EPERM;
	else
		return s;
	close(s);
	return -e;
}

/* Connects to the socket at which only this user is served, else to everybody's: at that others can
 * keep us waiting. Returns a descriptor, or -errno. */
TS__ONE int ts__reach(ts_u32 which)
{
	const char *path = getenv("TAILSCOPE_SOCKET"), *second = which ? TS_SECOND : "";
	char at[sizeof(((struct sockaddr_un *)0)->sun_path)];
	int s = -ENOENT, room = (int)sizeof(at);

	path = path ? path : TS_SOCKET;
	if (snprintf(at, sizeof(at), "%s%s.%lu", path, second, (unsigned long)geteuid()) < room)
		s = ts__dial(at);
	if (s >= 0 || s == -EAGAIN)
		return s;
	if (snprintf(at, sizeof(at), "%s%s", path, second) >= room)
		return -ENAMETOOLONG;
	return ts__dial(at);
}

/* Receives the recorder's answer. Returns 0 and two descriptors, or an errno and none. */
TS__ONE int ts__receive(int s, int fds[2])
{
	struct ts_answer answer;
	union {
		struct cmsghdr align;
		char space[CMSG_SPACE(2 * sizeof(int))];
	} control;
	struct iovec part = {&answer, sizeof(answer)};
	struct msghdr message;
	struct cmsghdr *c;
	size_t came = 0;
	int e = EPROTO;

	memset(&answer, 0, sizeof(answer));
	memset(&message, 0, sizeof(message));
	message.msg_iov = &part;
	message.msg_iovlen = 1;
	message.msg_control = control.space;
	message.msg_controllen = sizeof(control.space);
	if (recvmsg(s, &message, MSG_CMSG_CLOEXEC) < 0)
		return errno;
	c = CMSG_FIRSTHDR(&message);
	if (c && c->cmsg_type == SCM_RIGHTS) {
		/* No more than there is room for. */
		came = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		memcpy(fds, CMSG_DATA(c), came * sizeof(int));
	}
	if (answer.magic == TS_MAGIC && answer.status == TS_NOT_WATCHED)
		e = ESRCH;
	else if (answer.magic == TS_MAGIC && answer.abi == TS_ABI && answer.status == TS_ACCEPTED &&
		 came == 2)
		return 0;
	while (came) /* at each further try there would be more */
		close(fds[--came]);
	return e;
}

/* Connects, and takes the two descriptors. Returns 0 or an errno. */
TS__ONE int ts__connect(ts_u32 which, int fds[2])
{
	struct ts__process *p = &ts__process[which];
	struct stat st;
	int s = ts__reach(which), e;

	if (s < 0)
		return -s;
	e = ts__receive(s, fds);
	if (e) {
		close(s);
		return e;
	}
	fstat(s, &st);
	p->socket = s;
	p->socket_dev = st.st_dev;
	p->socket_ino = st.st_ino;
	return 0;
}

/* Maps both into the one place reserved for them, so that a recorder after another leaves
 * nothing behind. Returns 0 or an errno. */
TS__ONE int ts__map(struct ts__process *p, const int fds[2])
{
	size_t whole = TS_METERS_BYTES + TS_REGION_BYTES;
	char *at = (char *)p->reserved;

	if (!at) {
		at = (char *)mmap(NULL, whole, PROT_NONE,
				  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (at == (char *)MAP_FAILED)
			return errno;
		p->reserved = at;
	}
	if (mmap(at, TS_METERS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fds[0], 0) ==
		MAP_FAILED ||
	    mmap(at + TS_METERS_BYTES, TS_REGION_BYTES, PROT_READ | PROT_WRITE,
		 MAP_SHARED | MAP_FIXED, fds[1], 0) == MAP_FAILED)
		return errno;
	p->meters = (struct ts_meter *)at;
	p->region = (struct ts_region *)(at + TS_METERS_BYTES);
	if (p->region->magic != TS_MAGIC || p->region->abi != TS_ABI)
		return EPROTO;
	return 0;
}

/* Claims a meter for this thread and tells the kernel. Returns 0 or an errno. */
TS__ONE int ts__claim(ts_u32 which)
{
	struct ts__process *p = &ts__process[which];
	struct ts__thread *t = &ts__thread[which];
	ts_u32 self = (ts_u32)syscall(SYS_gettid), slot, mine = TS_METERS;

	/* Another module of this program may have claimed one for this thread already. */
	for (slot = 0; slot < TS_METERS; slot++)
		if (__atomic_load_n(&p->meters[slot].tid, __ATOMIC_RELAXED) == self) {
			if (p->meters[slot].kernel_tid) {
				t->meter = &p->meters[slot];
				return 0;
			}
			mine = slot;
			break;
		}
	for (slot = 0; mine == TS_METERS && slot < TS_METERS; slot++) {
		ts_u32 nobody = 0;

		if (!__atomic_load_n(&p->meters[slot].tid, __ATOMIC_RELAXED) &&
		    __atomic_compare_exchange_n(&p->meters[slot].tid, &nobody, self, 0,
						__ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
			mine = slot;
	}
	if (mine == TS_METERS)
		return ENOSPC;
	ts__tell(which, (long)mine);
	if (!__atomic_load_n(&p->meters[mine].kernel_tid, __ATOMIC_ACQUIRE)) {
		__atomic_store_n(&p->meters[mine].tid, 0, __ATOMIC_RELEASE);
		return ESRCH; /* nobody listened */
	}
	t->meter = &p->meters[mine];
	return 0;
}

static inline int ts__hung_up(struct ts__process *p)
{
	struct pollfd hangup = {p->socket, 0, 0};

	return p->socket < 0 || poll(&hangup, 1, 0) != 0;
}

/* Attaches the process if it is not, and the thread. Returns whether this thread is metered. */
TS__ONE __attribute__((noinline, cold)) int ts__attach(ts_u32 which)
{
	struct ts__process *p = &ts__process[which];
	struct ts__thread *t = &ts__thread[which];
	ts_u64 now = ts__cycles();
	int saved = errno, fds[2], e = 0;

	ts__stop_counting(p, t);
	if (now < __atomic_load_n(&p->retry_after, __ATOMIC_RELAXED)) {
		errno = saved;
		return 0;
	}
	if (!ts__lock(&p->locked)) {
		ts__tell(which, -(long)ETIMEDOUT); /* counted as lost */
		errno = saved;
		return 0;
	}
	/* Of threads that waited for one that failed, each would only fail again, and put all off for
	 * longer. */
	if (now < __atomic_load_n(&p->retry_after, __ATOMIC_RELAXED)) {
		ts__unlock(&p->locked);
		errno = saved;
		return 0;
	}
	if (!__atomic_exchange_n(&ts__process[0].fork_handled, 1, __ATOMIC_RELAXED))
		pthread_atfork(NULL, NULL, ts__after_fork);
	/* A thread that has just begun has no span that could have noticed the recorder's end. */
	if (p->epoch && (long long)(now - p->region->heartbeat) > 0 &&
	    now - p->region->heartbeat >= p->region->heartbeat_overdue && ts__hung_up(p))
		__atomic_store_n(&p->epoch, 0, __ATOMIC_RELEASE);
	if (!p->epoch) {
		ts__close_socket(p);
		e = ts__connect(which, fds);
		if (!e) {
			e = ts__map(p, fds);
			close(fds[0]);
			close(fds[1]);
		}
		if (!e) {
			p->check_after = 0;
			__atomic_store_n(&p->epoch, ++p->next_epoch, __ATOMIC_RELEASE);
		}
	}
	if (!e) {
		memset(t, 0, sizeof(*t));
		e = ts__claim(which);
		t->epoch = e ? 0 : p->epoch;
		t->random = (now ^ ((ts_u64)(uintptr_t)t << 16)) | 1;
	}
	if (e) {
		if (e != ESRCH)
			ts__tell(which, -(long)e);
		p->retry_wait = p->retry_wait ? p->retry_wait * 2 : TS__RETRY_FIRST;
		if (p->retry_wait > TS__RETRY_LAST)
			p->retry_wait = TS__RETRY_LAST;
		__atomic_store_n(&p->retry_after, now + p->retry_wait, __ATOMIC_RELAXED);
	} else {
		p->retry_wait = 0;
	}
	ts__unlock(&p->locked);
	errno = saved;
	return !e;
}

/* The recorder has not been heard of for a while. Returns whether it still lives; if it does
 * not, the next begin looks for another. */
TS__ONE __attribute__((noinline, cold)) int ts__recorder_is_alive(struct ts__process *p, ts_u64 now)
{
	int saved = errno, lives;

	if (now < __atomic_load_n(&p->check_after, __ATOMIC_RELAXED))
		return 1;
	if (!ts__lock(&p->locked))
		return 1;
	lives = p->epoch && !ts__hung_up(p);
	if (!lives)
		__atomic_store_n(&p->epoch, 0, __ATOMIC_RELEASE);
	else
		__atomic_store_n(&p->check_after, now + p->region->heartbeat_overdue,
				 __ATOMIC_RELAXED);
	ts__unlock(&p->locked);
	errno = saved;
	return lives;
}

/* Finding what is the thread's takes instructions: not again at each use. */
#define TS__ONCE(pointer) __asm__("" : "+r"(pointer))

static inline ts_u32 ts__random(struct ts__thread *t)
{
	t->random ^= t->random << 13; /* xorshift64, Marsaglia 2003 */
	t->random ^= t->random >> 7;
	t->random ^= t->random << 17;
	return (ts_u32)(t->random >> 32);
}

/* Begins a span for one recorder, if that meters it. Returns whether it does. */
static inline __attribute__((always_inline)) int ts__begin_for(ts_u32 which, struct ts__seen *seen)
{
	struct ts__process *p = &ts__process[which];
	struct ts__thread *t = &ts__thread[which];
	struct ts_meter *m;
	ts_u32 seq;

	TS__ONCE(t);
	if (__builtin_expect(!tailscope_semaphore.part[which].recorders, 0)) {
		ts__recorder_left(which);
		return 0;
	}
	if (__builtin_expect(
		t->epoch == 0 || t->epoch != __atomic_load_n(&p->epoch, __ATOMIC_ACQUIRE), 0) &&
	    !ts__attach(which))
		return 0;
	m = t->meter;
	if (__builtin_expect(*(volatile ts_u32 *)&p->region->turn != t->counters.turn, 0))
		ts__take_turn(which);
	if (__builtin_expect(p->region->sample <= 0xffffffffu, 0) && !t->counters.calibrating) {
		if (ts__random(t) >= p->region->sample) {
			m->spans++;
			/* Nothing that happens to an unselected span may go unnoticed by the
			 * check below for ever. */
			if (__builtin_expect((m->spans & 0xfff) == 0, 0) &&
			    ts__cycles() - p->region->heartbeat > p->region->heartbeat_overdue)
				ts__recorder_is_alive(p, ts__cycles());
			return 0;
		}
		m->open++;
	}
	seen->epoch = t->epoch;
	seen->counted.turn = 0;
	do { /* again, if an interrupt or a switch came in between */
		seq = *(volatile ts_u32 *)&m->seq;
		__asm__ volatile("" ::: "memory");
		seen->begin = ts__cycles();
		memcpy(&seen->totals, &m->totals, sizeof(seen->totals));
		__asm__ volatile("" ::: "memory");
	} while (__builtin_expect(*(volatile ts_u32 *)&m->seq != seq, 0));
	seen->seq = seq;
	if (__builtin_expect((ts_u64)(seen->begin - p->region->heartbeat) >=
				     p->region->heartbeat_overdue &&
				 (long long)(seen->begin - p->region->heartbeat) >= 0,
			     0) &&
	    !ts__recorder_is_alive(p, seen->begin))
		return 0;
	seen->meter = m;
	/* Last, and first in the end: what lies between is the span's own. */
	if (__builtin_expect(t->counters.count != 0, 0)) {
		seen->counted.turn = t->counters.turn;
		ts__read_counters(&t->counters, &seen->counted, NULL);
	}
	return 1;
}

/* The same for those recorders of `wanted`, a bit each, that listen. One whose events are counted
 * comes last, and first in the end: the other's work is no part of what the span counts. */
TS__ONE __attribute__((noinline)) void ts__begin_all(ts_span *span, ts_u32 wanted)
{
	ts_u32 inner = ts__thread[0].counters.count ? 0 : 1, i;

	for (i = 0; i < TS_RECORDERS; i++) {
		ts_u32 which = i ? inner : !inner;

		if (wanted >> which & 1 && tailscope_semaphore.of[which] &&
		    ts__begin_for(which, &span->seen[which]))
			span->metered |= 1u << which;
	}
}

TS__ONE __attribute__((noinline)) void ts__begin(ts_span *span, const char *name)
{
	span->name = name;
	if (__builtin_expect(tailscope_semaphore.of[1] != 0, 0))
		ts__begin_all(span, ~0u);
	else if (ts__begin_for(0, &span->seen[0]))
		span->metered = 1;
}

/* The number of a name in this region; TS_NAMES if there is no room. */
TS__ONE __attribute__((noinline)) ts_u8 ts__number(struct ts_region *r, struct ts__thread *t,
						   const char *name)
{
	size_t length = strlen(name), i;
	unsigned place = (unsigned)((uintptr_t)name >> 2 & 15);
	unsigned patience;

	if (length > TS_NAME_BYTES - 5)
		length = TS_NAME_BYTES - 5;
	if (!length)
		return TS_NAMES;
	for (i = 0; i < TS_NAMES; i++) {
		ts_u32 have = __atomic_load_n(&r->names[i].length, __ATOMIC_ACQUIRE);

		if (!have && __atomic_compare_exchange_n(&r->names[i].length, &have, TS_NAME_BUSY,
							 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
			memcpy(r->names[i].text, name, length);
			__atomic_store_n(&r->names[i].length, (ts_u32)length, __ATOMIC_RELEASE);
			have = (ts_u32)length;
		}
		for (patience = 0; have == TS_NAME_BUSY && patience < 10000; patience++)
			have = __atomic_load_n(&r->names[i].length, __ATOMIC_ACQUIRE);
		if (have == length && !memcmp(r->names[i].text, name, length)) {
			t->names[place] = name;
			t->numbers[place] = (ts_u8)i;
			return (ts_u8)i;
		}
	}
	return TS_NAMES;
}

/* Hands over the full chunk and takes a free one. Returns 0 if there is none. */
TS__ONE __attribute__((noinline)) int ts__next_chunk(const struct ts__process *p,
						     struct ts__thread *t)
{
	struct ts_region *r = p->region;
	ts_u32 slot = (ts_u32)(t->meter - p->meters), i;

	if (t->chunk)
		__atomic_store_n(&r->chunk_state[t->chunk_index], TS_CHUNK_FULL, __ATOMIC_RELEASE);
	t->chunk = NULL;
	if (t->skip) {
		t->skip--;
		__atomic_fetch_add(&r->lost, 1, __ATOMIC_RELAXED);
		return 0;
	}
	for (i = 0; i < TS_CHUNKS; i++) {
		ts_u32 state = __atomic_load_n(&r->chunk_state[i], __ATOMIC_RELAXED);

		if (state == TS_CHUNK_FREE &&
		    __atomic_compare_exchange_n(&r->chunk_state[i], &state,
						TS_CHUNK_OWNED | slot << 8, 0, __ATOMIC_ACQ_REL,
						__ATOMIC_RELAXED)) {
			t->chunk = (struct ts_chunk *)((char *)r + TS_REGION_HEAD) + i;
			t->chunk->tid = t->meter->kernel_tid;
			t->chunk_index = i;
			t->used = 0;
			return 1;
		}
	}
	t->skip = 255; /* looking costs more than a row: not each time */
	__atomic_fetch_add(&r->lost, 1, __ATOMIC_RELAXED);
	return 0;
}

/* A span ended, kept or not. */
static inline void ts__count(struct ts__process *p, struct ts_meter *m)
{
	m->spans++;
	if (p->region->sample <= 0xffffffffu && m->open)
		m->open--;
}

/* The shares of the causes that have come to something since the span began: returns how many, and
 * adds their bits to `causes`. */
static inline __attribute__((always_inline)) ts_u32 ts__shares(const struct ts__seen *seen,
							       const struct ts_meter *m,
							       struct ts_share *shares,
							       ts_u16 *causes)
{
	ts_u32 i, count = 0;

	for (i = 0; i < TS_CAUSES; i++) {
		ts_u64 ns = m->totals.ns[i] - seen->totals.ns[i];
		ts_u32 n = m->totals.n[i] - seen->totals.n[i];

		if (!ns && !n)
			continue;
		*causes = (ts_u16)(*causes | 1u << i);
		shares[count].ns = ns;
		shares[count].n = n;
		shares[count].who = 0;
		if (n && (TS_BLAMED_CAUSES & 1u << i))
			shares[count].who = ts_blamed(&m->recent[i], m->totals.n[i], n);
		shares[count++].reserved = 0;
	}
	return count;
}

/* Ends a span for one recorder. */
static inline __attribute__((always_inline)) void
ts__end_for(ts_u32 which, struct ts__seen *seen, const char *name, ts_u64 id, ts_u8 flags)
{
	struct ts__process *p = &ts__process[which];
	struct ts__thread *t = &ts__thread[which];
	struct ts_meter *m = seen->meter;
	struct ts_share shares[TS_CAUSES];
	const struct ts_retention *retention;
	struct ts__counted counted;
	struct ts_row *row;
	ts_u32 seq, count, place;
	ts_u16 cpu, causes, code;
	ts_u64 end;
	ts_u8 number;

	TS__ONCE(t);
	if (__builtin_expect(seen->counted.turn != 0, 0)) {
		ts__read_counters(&t->counters, &counted, &seen->counted);
		if (__builtin_expect(flags & TS__CALIBRATES, 0)) {
			ts__calibrate(&t->counters, &seen->counted, &counted);
			return;
		}
		flags |= TS_ROW_HAS_COUNTS;
	}
	if (__builtin_expect(t->epoch != seen->epoch || t->epoch != p->epoch, 0))
		return; /* begun under another recorder, or before a fork */
	place = (ts_u32)((uintptr_t)name >> 2 & 15);
	number = t->names[place] == name ? t->numbers[place] : ts__number(p->region, t, name);
	retention = &p->region->retention[number];
	code = (ts_u16)retention->others;
	if (__builtin_expect(code != 0, 0)) {
		if (retention->always_from != ~0ull &&
		    ts__cycles_end(&cpu) - seen->begin >= retention->always_from) {
			code = 0;
		} else if (ts__random(t) >= TS_KEEP_PROBABILITY(code)) {
			ts__count(p, m); /* not kept: nothing more has to be read */
			return;
		}
	}
	do {
		seq = *(volatile ts_u32 *)&m->seq;
		__asm__ volatile("" ::: "memory");
		end = ts__cycles_end(&cpu);
		causes = 0;
		count = 0;
		if (seq != seen->seq)
			count = ts__shares(seen, m, shares, &causes);
		__asm__ volatile("" ::: "memory");
	} while (__builtin_expect(*(volatile ts_u32 *)&m->seq != seq, 0));
	ts__count(p, m);
	if ((!t->chunk || t->used + TS_SDK_ROW_MAX > sizeof(t->chunk->rows)) &&
	    !ts__next_chunk(p, t))
		return;
	row = (struct ts_row *)(void *)(t->chunk->rows + t->used);
	row->begin = seen->begin;
	row->wall = end - seen->begin;
	row->id = id;
	row->causes = causes;
	row->cpu = cpu;
	row->name = number;
	row->flags = flags;
	row->queue_ns = 0;
	row->kept = code;
	if (count) /* most have none */
		memcpy(row + 1, shares, count * sizeof(shares[0]));
	t->used += (ts_u32)(sizeof(*row) + count * sizeof(shares[0]));
	if (__builtin_expect(flags & TS_ROW_HAS_COUNTS, 0))
		t->used += ts__write_counts(&t->counters, &seen->counted, seen->begin, &counted,
					    end, t->chunk->rows + t->used);
	__atomic_store_n(&t->chunk->used, t->used, __ATOMIC_RELEASE);
}

/* For all recorders that meter it, in the other order than at the begin. */
TS__ONE __attribute__((noinline)) void ts__end_all(ts_span *span, ts_u32 metered, ts_u64 id,
						   ts_u8 flags)
{
	ts_u32 inner = metered & 1 && span->seen[0].counted.turn ? 0 : 1, i;

	for (i = 0; i < TS_RECORDERS; i++) {
		ts_u32 which = i ? !inner : inner;
		struct ts__seen *seen = &span->seen[which];

		/* What measures the counters is no span of who has none. */
		if (metered >> which & 1 && !(flags & TS__CALIBRATES && !seen->counted.turn))
			ts__end_for(which, seen, span->name, id, flags);
	}
}

TS__ONE __attribute__((noinline)) void ts__end(ts_span *span, ts_u64 id, ts_u8 flags)
{
	ts_u32 metered = span->metered;

	span->metered = 0;
	if (__builtin_expect(metered == 1, 1))
		ts__end_for(0, &span->seen[0], span->name, id, flags);
	else
		ts__end_all(span, metered, id, flags);
}

/* --- the calls ------------------------------------------------------------------------------ */

/* Begins a span of this thread. `name` must outlive the program's spans: a literal. */
static inline void ts_span_begin(ts_span *span, const char *name)
{
	span->metered = 0;
	if (__builtin_expect(tailscope_semaphore.any != 0, 0))
		ts__begin(span, name);
}

/* Ends it, on the thread that began it. */
static inline void ts_span_end(ts_span *span)
{
	if (__builtin_expect(span->metered != 0, 0))
		ts__end(span, 0, 0);
}

/* Ends it and says which request it was part of: spans with one id are one request. */
static inline void ts_span_end_id(ts_span *span, int64_t id)
{
	if (__builtin_expect(span->metered != 0, 0))
		ts__end(span, (ts_u64)id, TS_ROW_HAS_ID);
}

#undef TS__ONE
#undef TS__OWN_PAGE
#undef TS__THREAD_LOCAL
#ifdef __cplusplus
}
#endif

#endif
#endif
