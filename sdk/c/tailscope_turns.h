/* SPDX-License-Identifier: MIT */
/*
 * Which events a thread counts, and until when: a part of tailscope.h, which includes it. Not for
 * callers. Everything here is rare: at a thread's first span, once a turn, and at the end.
 */
#ifndef TAILSCOPE_TURNS_H
#define TAILSCOPE_TURNS_H

/* A flag of an end that is no row's: it measures what spans count of themselves. */
#define TS__CALIBRATES 64

TS__ONE __attribute__((noinline)) void ts__begin(ts_span *span, const char *name);
TS__ONE __attribute__((noinline)) void ts__begin_all(ts_span *span, ts_u32 wanted);
TS__ONE __attribute__((noinline)) void ts__end(ts_span *span, ts_u64 id, ts_u8 flags);

/* This thread counts nothing any more. */
TS__ONE void ts__stop_counting(struct ts__process *p, struct ts__thread *t)
{
	struct ts__counters *c = &t->counters;
	size_t slot;

	if (!c->pages || !p->counters || c->reading)
		return;
	slot = (size_t)(c->pages - p->counters) / (TS_COUNTERS * c->page_bytes);
	ts__empty_pages(p->counters + slot * TS_COUNTERS * c->page_bytes,
			TS_COUNTERS * c->page_bytes);
	__atomic_store_n(&p->counting[slot], 0, __ATOMIC_RELAXED);
	c->pages = NULL;
	c->count = c->head.known = 0;
	c->turn = 0; /* what spans that are open counted is not written */
}

/*
 * The recorder has gone while threads counted. Each stops at its next begin; those that have ended
 * are looked for now and then. When none is left, a begin is a load and a branch again.
 */
TS__ONE __attribute__((noinline, cold)) void ts__recorder_left(ts_u32 which)
{
	struct ts__process *p = &ts__process[which];
	ts_u32 slot, left = 0;
	int saved = errno;

	ts__stop_counting(p, &ts__thread[which]);
	if ((__atomic_fetch_add(&p->left, 1, __ATOMIC_RELAXED) & 0x3ff) != 0 ||
	    !ts__lock(&p->locked))
		return;
	for (slot = 0; p->counters && slot < TS_METERS; slot++) {
		ts_u32 tid = __atomic_load_n(&p->counting[slot], __ATOMIC_RELAXED);

		if (!tid)
			continue;
		if (!syscall(SYS_tgkill, getpid(), tid, 0) || errno != ESRCH)
			left++;
		else
			p->counting[slot] = 0; /* its pages are replaced by whoever is next there */
	}
	if (!left) {
		tailscope_semaphore.part[which].counting = 0;
		ts__lift_guard();
	}
	ts__unlock(&p->locked);
	errno = saved;
}

/* Counts this group on this thread from now on; under the lock. Returns 0 or an errno. */
static inline int ts__count_group(ts_u32 which, const struct ts_counting *wanted, ts_u32 count)
{
	struct ts__process *p = &ts__process[which];
	struct ts__thread *t = &ts__thread[which];
	ts_u32 slot = (ts_u32)(t->meter - p->meters);
	char *at;
	int e;

	if (!p->counters) {
		void *pages, *threads;

		p->page_bytes = (size_t)sysconf(_SC_PAGESIZE);
		pages = mmap(NULL, TS__COUNTER_PAGES * p->page_bytes, PROT_READ,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		threads = mmap(NULL, TS_METERS * sizeof(*p->counting), PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (pages == MAP_FAILED || threads == MAP_FAILED)
			return ENOMEM;
		p->counting = (ts_u32 *)threads;
		p->counters = (char *)pages;
	}
	at = p->counters + (size_t)slot * TS_COUNTERS * p->page_bytes;
	ts__empty_pages(at, TS_COUNTERS * p->page_bytes); /* of a thread that was here before */
	tailscope_semaphore.part[which].counting = 1;
	p->left = 0;
	e = ts__open_group(wanted, count, at, p->page_bytes);
	if (e) {
		ts__empty_pages(at, TS_COUNTERS * p->page_bytes);
		return e;
	}
	ts__set_guard();
	p->counting[slot] = t->meter->tid;
	t->counters.unused =
	    ts__unused(((const struct perf_event_mmap_page *)(void *)at)->pmc_width);
	t->counters.pages = at;
	t->counters.page_bytes = p->page_bytes;
	t->counters.head.group = (ts_u16)wanted->group;
	t->counters.head.known = (ts_u16)((1u << count) - 1);
	t->counters.count = count;
	return 0;
}

/* Begins and ends an empty span for one recorder, as others begin and end. */
static inline void ts__measure_counters(ts_u32 which)
{
	ts_span own;

	own.metered = 0;
	own.name = "";
	if (!which && !tailscope_semaphore.of[1])
		ts__begin(&own, "");
	else
		ts__begin_all(&own, 1u << which);
	if (own.metered)
		ts__end(&own, 0, TS__CALIBRATES);
}

/* The recorder has chosen other events, or none. */
TS__ONE __attribute__((noinline, cold)) void ts__take_turn(ts_u32 which)
{
	struct ts__process *p = &ts__process[which];
	struct ts__thread *t = &ts__thread[which];
	struct ts__counters *c = &t->counters;
	ts_u32 turn = __atomic_load_n(&p->region->turn, __ATOMIC_ACQUIRE), count, i;
	struct ts_counting wanted;
	int saved = errno, e = 0;

	memcpy(&wanted, &p->region->counting, sizeof(wanted));
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	if (turn & 1 || __atomic_load_n(&p->region->turn, __ATOMIC_RELAXED) != turn || c->reading ||
	    !ts__lock(&p->locked))
		return; /* not now: the next span sees it */
	ts__stop_counting(p, t);
	c->turn = turn;
	count = wanted.count < TS_COUNTERS ? wanted.count : TS_COUNTERS;
	if (turn && count)
		e = ts__count_group(which, &wanted, count);
	if (e)
		__atomic_store_n(&p->region->counting.refused, (ts_u32)e, __ATOMIC_RELAXED);
	ts__unlock(&p->locked);
	/* Empty spans: what they count, all spans count. */
	memset(c->own, 0xff, sizeof(c->own));
	c->calibrating = 1;
	for (i = 0; i < 4 && c->count; i++)
		ts__measure_counters(which);
	c->calibrating = 0;
	for (i = 0; i < TS_COUNTERS; i++)
		if (!~c->own[i])
			c->own[i] = 0;
	errno = saved;
}

#endif
