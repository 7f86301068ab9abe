/* SPDX-License-Identifier: MIT */
/*
 * Hardware counters of a span: a part of tailscope.h, which includes it. Not for callers.
 *
 * Each thread counts for itself, the group of events whose turn the recorder says it is, and
 * reads them in user space: perf's page of an event says in which register it is and what was
 * counted before it got there. The page is mapped and its descriptor closed at once, so a program
 * has no descriptor more; the mapping keeps the event. Pages lie at a place that the thread's
 * meter decides, so a thread that ends leaves nothing that the next one there does not replace.
 * Nobody unmaps the pages of another thread that lives: it might be about to read a register that
 * the kernel then no longer lets it read.
 *
 * What the kernel and interrupts execute is not counted, nor what runs while the thread is
 * switched out. What reading costs itself is measured when a thread begins to count, and taken off.
 */
#ifndef TAILSCOPE_COUNTERS_H
#define TAILSCOPE_COUNTERS_H

#include <linux/perf_event.h>
#include <sys/ioctl.h>

/* What the counters of a thread were at some moment. */
struct ts__counted {
	ts_u64 value[TS_COUNTERS];
	ts_u64
	    enabled; /* ns: for how long the group was wanted, until it was last put on the CPU */
	ts_u64 running; /* ns: for how long it was on it, likewise */
	ts_u64 offset;	/* what takes cycles to the ns since then */
	ts_u32 known;	/* bit i: value[i] holds */
};

/* A thread's counters. Zeros: it has none. */
struct ts__counters {
	const char *pages;
	size_t page_bytes;
	ts_u32 turn; /* of the recorder that the rest belongs to */
	ts_u32 group;
	ts_u32 count;
	ts_u32 calibrating;
	volatile ts_u32 reading; /* for a signal handler that comes in between: hands off */
	ts_u8 unused[8];	 /* bits of a register that the event's page says are none of its */
	ts_u64 own[TS_COUNTERS]; /* what a begin and an end count of themselves */
};

/* --- arithmetic ------------------------------------------------------------------------- */

/* How many bits of 64 a register of `width` bits does not have. */
static inline ts_u8 ts__unused(unsigned width)
{
	return (ts_u8)(width && width < 64 ? 64 - width : 0);
}

/* A register as what it adds to the page's offset: it is a signed number. */
static inline ts_u64 ts__extended(ts_u64 value, unsigned unused)
{
	return (ts_u64)((int64_t)(value << unused) >> unused);
}

/* Cycles of the clock as ns, in the page's fixed point. */
static inline ts_u64 ts__page_ns(const struct perf_event_mmap_page *page, ts_u64 cycles)
{
	ts_u64 shift = page->time_shift & 63, rest;

	if (page->cap_user_time_short)
		cycles =
		    page->time_cycles + ((cycles - page->time_cycles) & (ts_u64)page->time_mask);
	rest = cycles & (((ts_u64)1 << shift) - 1);
	return (cycles >> shift) * page->time_mult + ((rest * page->time_mult) >> shift);
}

/*
 * How much of a span the group was on the CPU: 1 << 32 for all of it. 0 where that is not known,
 * or less than half: what was counted then is no estimate. A group is not on the CPU for as long
 * as the time that it was wanted grows and the time that it was running does not.
 */
static inline ts_u64 ts__share_of(const struct ts__counted *begin, ts_u64 begin_ns,
				  const struct ts__counted *end, ts_u64 end_ns)
{
	ts_u64 wanted, on;

	if (begin->enabled - begin->running == end->enabled - end->running)
		return (ts_u64)1 << 32;
	wanted = end->enabled + end->offset + end_ns - begin->enabled - begin->offset - begin_ns;
	on = end->running + end->offset + end_ns - begin->running - begin->offset - begin_ns;
	if ((int64_t)on <= 0 || on > wanted || on < wanted - on || wanted >> 32)
		return 0;
	return (on << 32) / wanted;
}

/* What a span counted, less what counting costs. */
static inline ts_u64 ts__counted_of(ts_u64 begin, ts_u64 end, ts_u64 own)
{
	ts_u64 counted = end - begin - own;

	return (int64_t)counted > 0 ? counted : 0;
}

/* The same as if the group had been on all the time. In two steps, for neither product to
 * overflow. */
static inline ts_u64 ts__scaled(ts_u64 counted, ts_u64 share)
{
	return (counted / share << 32) + ((counted % share << 32) / share);
}

/* --- reading ---------------------------------------------------------------------------- */

static inline ts_u64 ts__register(ts_u32 number)
{
	ts_u64 value = 0;
#ifdef __x86_64__
	ts_u32 low, high;

	__asm__ volatile("rdpmc" : "=a"(low), "=d"(high) : "c"(number));
	value = (ts_u64)high << 32 | low;
#else
#define TS__PMEV(n)                                                           \
	case n:                                                               \
		__asm__ volatile("mrs %0, pmevcntr" #n "_el0" : "=r"(value)); \
		break;
	switch (number) {
		TS__PMEV(0)
		TS__PMEV(1)
		TS__PMEV(2)
		TS__PMEV(3)
		TS__PMEV(4)
		TS__PMEV(5)
		TS__PMEV(6)
		TS__PMEV(7)
		TS__PMEV(8)
		TS__PMEV(9)
		TS__PMEV(10)
		TS__PMEV(11)
		TS__PMEV(12)
		TS__PMEV(13)
		TS__PMEV(14)
		TS__PMEV(15)
		TS__PMEV(16)
		TS__PMEV(17)
		TS__PMEV(18)
		TS__PMEV(19)
		TS__PMEV(20)
		TS__PMEV(21)
		TS__PMEV(22)
		TS__PMEV(23)
		TS__PMEV(24)
		TS__PMEV(25)
		TS__PMEV(26)
		TS__PMEV(27)
		TS__PMEV(28)
		TS__PMEV(29)
		TS__PMEV(30)
	default:
		__asm__ volatile("mrs %0, pmccntr_el0" : "=r"(value));
	}
#undef TS__PMEV
#endif
	return value;
}

/* One counter. Returns 0 where it is not on the CPU now. */
static inline ts_u32 ts__read_counter(const struct perf_event_mmap_page *page, unsigned unused,
				      ts_u64 *value)
{
	ts_u32 lock, index;
	ts_u64 now;

	do { /* again, if the kernel moved it or its register overflowed */
		lock = *(const volatile ts_u32 *)&page->lock;
		__asm__ volatile("" ::: "memory");
		index = *(const volatile ts_u32 *)&page->index;
		now = (ts_u64)page->offset;
		if (__builtin_expect(index != 0, 1))
			now += ts__extended(ts__register(index - 1), unused);
		__asm__ volatile("" ::: "memory");
	} while (__builtin_expect(*(const volatile ts_u32 *)&page->lock != lock, 0));
	*value = now;
	return index != 0;
}

/* All counters of a group, which the kernel puts on the CPU and takes off it together. */
TS__ONE __attribute__((noinline)) void ts__read_counters(struct ts__counters *c,
							 struct ts__counted *now)
{
	const struct perf_event_mmap_page *first;
	size_t page_bytes = c->page_bytes;
	ts_u32 lock, i, count = c->count, known = 0;
	const char *pages;

	c->reading = 1;
	__asm__ volatile("" ::: "memory");
	pages = c->pages;
	if (!pages) /* a signal handler's span was just before us */
		goto done;
	first = (const struct perf_event_mmap_page *)(const void *)pages;
	do {
		const char *page = pages;

		lock = *(const volatile ts_u32 *)&first->lock;
		__asm__ volatile("" ::: "memory");
		now->enabled = first->time_enabled;
		now->running = first->time_running;
		now->offset = first->time_offset;
		known = 0;
		for (i = 0; i < count; i++, page += page_bytes)
			known |= ts__read_counter(
				     (const struct perf_event_mmap_page *)(const void *)page,
				     c->unused[i], &now->value[i])
				 << i;
		__asm__ volatile("" ::: "memory");
	} while (__builtin_expect(*(const volatile ts_u32 *)&first->lock != lock, 0));
done:
	now->known = known;
	c->reading = 0;
}

/* Takes the least of what empty spans counted. */
static inline void ts__calibrate(struct ts__counters *c, const struct ts__counted *begin,
				 const struct ts__counted *end)
{
	ts_u32 i;

	for (i = 0; i < c->count; i++)
		if (begin->known & end->known & 1u << i &&
		    end->value[i] - begin->value[i] < c->own[i])
			c->own[i] = end->value[i] - begin->value[i];
}

/* How much of a span that was switched off and on the group was on the CPU, as above. */
TS__ONE __attribute__((noinline, cold)) ts_u64
ts__share_on(const struct ts__counters *c, const struct ts__counted *begin, ts_u64 begin_cycles,
	     const struct ts__counted *end, ts_u64 end_cycles)
{
	const struct perf_event_mmap_page *page =
	    (const struct perf_event_mmap_page *)(const void *)c->pages;

	if (!page || !page->cap_user_time)
		return 0;
	return ts__share_of(begin, ts__page_ns(page, begin_cycles), end,
			    ts__page_ns(page, end_cycles));
}

/* Writes what a span counted behind its row; returns how many bytes that takes. `place` is
 * aligned as rows are. */
TS__ONE __attribute__((noinline)) ts_u32
ts__write_counts(const struct ts__counters *c, const struct ts__counted *begin, ts_u64 begin_cycles,
		 const struct ts__counted *end, ts_u64 end_cycles, ts_u8 *place)
{
	struct ts_counts *head = (struct ts_counts *)(void *)place;
	ts_u64 *value = (ts_u64 *)(void *)(head + 1), share = (ts_u64)1 << 32;
	ts_u32 i, known = begin->known & end->known, count = c->count;

	if (__builtin_expect(
		known && begin->enabled - begin->running != end->enabled - end->running, 0)) {
		share = ts__share_on(c, begin, begin_cycles, end, end_cycles);
		known = share ? known : 0;
	}
	for (i = 0; i < count; i++) {
		if (__builtin_expect(!(known >> i & 1), 0))
			continue;
		*value = ts__counted_of(begin->value[i], end->value[i], c->own[i]);
		if (__builtin_expect(!(share >> 32), 0))
			*value = ts__scaled(*value, share);
		value++;
	}
	head->group = (ts_u16)c->group;
	head->known = (ts_u16)(known & ((1u << count) - 1));
	head->reserved[0] = head->reserved[1] = 0;
	return (ts_u32)((ts_u8 *)value - place);
}

/* --- beginning and ending to count -------------------------------------------------------- */

/* Maps the page of an event of this thread to `at`; `leader` is the group's first, or -1.
 * Returns a descriptor or, below 0, an error number. */
TS__ONE int ts__open_counter(const struct ts_event *event, int leader, void *at, size_t bytes)
{
	struct perf_event_attr attr;
	int fd, e;

	memset(&attr, 0, sizeof(attr));
	attr.size = sizeof(attr);
	attr.type = event->type;
	attr.config = event->config;
	attr.config1 = event->config1;
	attr.config2 = event->config2;
	attr.exclude_kernel = 1;
	attr.exclude_hv = 1;
	attr.disabled = leader < 0;
	fd = (int)syscall(SYS_perf_event_open, &attr, 0, -1, leader, PERF_FLAG_FD_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (mmap(at, bytes, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
		e = errno;
		close(fd);
		return -e;
	}
	return fd;
}

/* Opens the group, puts it on the CPU, and closes the descriptors. Returns 0 or an errno. */
TS__ONE int ts__open_group(const struct ts_counting *wanted, ts_u32 count, char *at, size_t bytes)
{
	int fds[TS_COUNTERS] = {-1}, e = 0;
	ts_u32 i, opened = 0;

	for (i = 0; i < count && !e; i++) {
		fds[i] =
		    ts__open_counter(&wanted->event[i], i ? fds[0] : -1, at + i * bytes, bytes);
		if (fds[i] < 0)
			e = -fds[i];
		else
			opened++;
	}
	if (!e && ioctl(fds[0], PERF_EVENT_IOC_ENABLE, PERF_IOC_FLAG_GROUP))
		e = errno;
	for (i = 0; i < opened; i++)
		close(fds[i]);
	for (i = 0; i < count && !e; i++) /* the machine may keep user space from reading */
		if (!((const struct perf_event_mmap_page *)(void *)(at + i * bytes))
			 ->cap_user_rdpmc)
			e = EOPNOTSUPP;
	return e;
}

/* Nothing is counted there any more; who reads it all the same finds zeros. */
static inline void ts__empty_pages(void *at, size_t bytes)
{
	mmap(at, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

#endif
