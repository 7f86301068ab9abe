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
	ts_u32 lock;	/* the first page's, which stays while that does */
	ts_u32 known;	/* bit i: value[i] holds */
	ts_u32 turn;	/* of a begin: of the counters that these are; 0: they were not read */
};
#define TS__MOVED (1u << 31) /* of an end: since the begin the group was off the CPU */

/* A thread's counters. Zeros: it has none. */
struct ts__counters {
	const char *pages;
	size_t page_bytes;
	ts_u32 turn;		 /* of the recorder that the rest belongs to */
	ts_u32 count;		 /* a fault takes them away */
	volatile ts_u32 reading; /* for a signal handler that comes in between: hands off */
	ts_u32 unused;		 /* bits of a register that the pages say are none of its */
	ts_u32 calibrating;
	struct ts_counts head;	 /* of a span of which all is known; a fault takes that away */
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

#ifdef __x86_64__
/* The register that a page's index, which is not 0, says. */
static inline ts_u64 ts__register(ts_u32 index)
{
	ts_u32 low, high;

	__asm__ volatile("rdpmc" : "=a"(low), "=d"(high) : "c"(index - 1) : "memory");
	return (ts_u64)high << 32 | low;
}
#else
#ifdef __ARM_FEATURE_BTI_DEFAULT
#define TS__LAND "hint #36\n" /* bti j */
#define TS__LEAVE "b 2f\nnop\n"
#define TS__ENTRY_SHIFT "4"
#else
#define TS__LAND
#define TS__LEAVE "b 2f\n"
#define TS__ENTRY_SHIFT "3"
#endif
/* An instruction names its register itself, so there is one for each. The index of the cycle
 * counter is 32, which leads to the first; the kernel lets user space read none beyond. */
static inline ts_u64 ts__register(ts_u32 index)
{
	ts_u64 value;

	__asm__ volatile("adr %0, 1f\n"
			 "add %0, %0, %1, lsl #" TS__ENTRY_SHIFT "\n"
			 "br %0\n"
			 "1:\n" TS__LAND "mrs %0, pmccntr_el0\n" TS__LEAVE
			 ".irp r, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18,"
			 " 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30\n" TS__LAND
			 "mrs %0, pmevcntr\\r\\()_el0\n" TS__LEAVE ".endr\n"
			 "2:\n"
			 : "=&r"(value)
			 : "r"((ts_u64)index & 31)
			 : "memory");
	return value;
}
#undef TS__LAND
#undef TS__LEAVE
#undef TS__ENTRY_SHIFT
#endif

/*
 * All counters of a group, which the kernel puts on the CPU and takes off it together: again, if it
 * moved one or the register of one overflowed. Times are read where they are needed: of a begin,
 * and of an end since whose begin the group was off. That comes after the registers, so that it is
 * no part of the span.
 */
static inline void ts__read_counters(struct ts__counters *c, struct ts__counted *now,
				     const struct ts__counted *begin)
{
	const struct perf_event_mmap_page *first, *page;
	ts_u32 outer = c->reading, unused = c->unused, known = 0, state, count, lock, index;
	size_t page_bytes = c->page_bytes;
	ts_u64 *value, got;

	c->reading = 1;
	__asm__ volatile("" ::: "memory");
	count = c->count;
	if (__builtin_expect(!count, 0)) /* a fault, or a signal handler's span just before us */
		goto done;
	first = (const struct perf_event_mmap_page *)(const void *)c->pages;
again:
	state = first->lock;
	known = c->head.known;
	page = first;
	value = now->value;
	do {
		lock = page->lock;
		index = page->index;
		__asm__ volatile("" ::: "memory");
		got = 0;
		if (__builtin_expect(index != 0, 1))
			got = ts__extended(ts__register(index), unused);
		else /* it is not on the CPU now */
			known &= ~(1u << (value - now->value));
		*value++ = got + (ts_u64)page->offset;
		__asm__ volatile("" ::: "memory");
		if (__builtin_expect(page->lock != lock, 0))
			goto again;
		page = (const struct perf_event_mmap_page *)(const void *)((const char *)page +
									   page_bytes);
	} while (value != now->value + count);
	if (!begin || __builtin_expect(state != begin->lock, 0)) {
		known |= begin ? TS__MOVED : 0;
		now->enabled = first->time_enabled;
		now->running = first->time_running;
		now->offset = first->time_offset;
		__asm__ volatile("" ::: "memory");
	}
	if (__builtin_expect(first->lock != state, 0))
		goto again;
	if (!begin)
		now->lock = state;
done:
	now->known = known;
	__asm__ volatile("" ::: "memory");
	c->reading = outer;
}

/* Takes the least of what empty spans counted. */
static inline void ts__calibrate(struct ts__counters *c, const struct ts__counted *begin,
				 const struct ts__counted *end)
{
	ts_u32 i;

	for (i = 0; i < TS_COUNTERS; i++)
		if (begin->known & end->known & 1u << i &&
		    end->value[i] - begin->value[i] < c->own[i])
			c->own[i] = end->value[i] - begin->value[i];
}

/* How much of a span the group was on the CPU, as above. */
static inline ts_u64 ts__share_on(const struct ts__counters *c, const struct ts__counted *begin,
				  ts_u64 begin_cycles, const struct ts__counted *end,
				  ts_u64 end_cycles)
{
	const struct perf_event_mmap_page *page =
	    (const struct perf_event_mmap_page *)(const void *)c->pages;

	if (!(end->known & TS__MOVED) ||
	    begin->enabled - begin->running == end->enabled - end->running)
		return (ts_u64)1 << 32;
	if (!page || !page->cap_user_time)
		return 0;
	return ts__share_of(begin, ts__page_ns(page, begin_cycles), end,
			    ts__page_ns(page, end_cycles));
}

/* The same as below of a span of which not all is known, or in which the group was off the CPU. */
TS__ONE __attribute__((noinline)) ts_u32
ts__write_some(const struct ts__counters *c, const struct ts__counted *begin, ts_u64 begin_cycles,
	       const struct ts__counted *end, ts_u64 end_cycles, struct ts_counts *head)
{
	ts_u64 *value = (ts_u64 *)(void *)(head + 1);
	ts_u64 share = ts__share_on(c, begin, begin_cycles, end, end_cycles);
	ts_u32 i, known = begin->known & end->known & c->head.known;

	if (!share || begin->turn != c->turn)
		known = 0;
	for (i = 0; i < TS_COUNTERS; i++) {
		if (!(known >> i & 1))
			continue;
		*value = ts__counted_of(begin->value[i], end->value[i], c->own[i]);
		if (!(share >> 32))
			*value = ts__scaled(*value, share);
		value++;
	}
	head->known = (ts_u16)known;
	return (ts_u32)((char *)value - (char *)head);
}

/* Writes what a span counted behind its row; returns how many bytes that takes. `place` is
 * aligned as rows are. */
static inline ts_u32 ts__write_counts(const struct ts__counters *c, const struct ts__counted *begin,
				      ts_u64 begin_cycles, const struct ts__counted *end,
				      ts_u64 end_cycles, ts_u8 *place)
{
	struct ts_counts *head = (struct ts_counts *)(void *)place;
	ts_u64 *value = (ts_u64 *)(void *)(head + 1), *last = value + c->count;
	const ts_u64 *first = begin->value, *now = end->value, *own = c->own;

	*head = c->head;
	if (__builtin_expect(begin->known != head->known || end->known != head->known ||
				 begin->turn != c->turn,
			     0))
		return ts__write_some(c, begin, begin_cycles, end, end_cycles, head);
	while (value != last)
		*value++ = ts__counted_of(*first++, *now++, *own++);
	return (ts_u32)((char *)value - (char *)head);
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
	const struct perf_event_mmap_page *first = (const struct perf_event_mmap_page *)(void *)at;
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
	for (i = 0; i < count && !e; i++) {
		const struct perf_event_mmap_page *page =
		    (const struct perf_event_mmap_page *)(void *)(at + i * bytes);

		/* The machine may keep user space from reading. All registers are of one width so far. */
		if (!page->cap_user_rdpmc || page->pmc_width != first->pmc_width)
			e = EOPNOTSUPP;
	}
	return e;
}

/* Nothing is counted there any more; who reads it all the same finds zeros. */
static inline void ts__empty_pages(void *at, size_t bytes)
{
	mmap(at, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

#endif
