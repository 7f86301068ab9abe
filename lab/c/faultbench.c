// SPDX-License-Identifier: Apache-2.0
/*
 * Planted cause: page faults. A struck span reads shared memory that is not in its page table, where
 * the kernel maps the 16 pages around each fault: that takes longer than to enter and leave the
 * kernel, which no tracepoint sees. With --huge they are fresh huge pages: few faults, and each
 * waits until the kernel has zeroed 2 MiB.
 */
#include "bench.h"

#include <sys/mman.h>

#define AROUND (64u << 10) /* fault_around_bytes */
#define HUGE_PAGE (2u << 20)

static double work_us = 30;
static bool huge;
static uint64_t pages = 64;
static uint64_t iterations;
static __thread volatile uint8_t *region;

static void prepare(void)
{
	iterations = (uint64_t)(work_us * iterations_per_us());
}

static size_t page_size(void)
{
	return huge ? HUGE_PAGE : AROUND;
}

/* Takes the worker's pages away, outside the span: only touching them is the plant. */
static void before(struct worker *w, bool planted)
{
	(void)w;
	if (!planted)
		return;
	if (!region) {
		size_t size = pages * page_size() + HUGE_PAGE;
		int kind = huge ? MAP_PRIVATE : MAP_SHARED;
		uint8_t *mapped =
		    mmap(NULL, size, PROT_READ | PROT_WRITE, kind | MAP_ANONYMOUS, -1, 0);

		if (mapped == MAP_FAILED)
			fail("no memory for --pages");
		/* A huge page begins where its own size divides the address. */
		region = mapped + (HUGE_PAGE - (uintptr_t)mapped % HUGE_PAGE) % HUGE_PAGE;
		if (madvise((void *)region, pages * page_size(),
			    huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE) &&
		    huge)
			fail("this kernel gives no huge pages");
		/* The memory itself stays when its pages leave the page table. */
		if (!huge)
			memset((void *)region, 1, pages * page_size());
	}
	if (madvise((void *)region, pages * page_size(), MADV_DONTNEED))
		fail("can't give back the pages");
}

static bool work(struct worker *w, bool planted)
{
	(void)w;
	loop(iterations);
	for (uint64_t page = 0; planted && page < pages; page++) {
		/* Another line of each page, so that they don't put each other out of the cache. */
		volatile uint8_t *byte = region + page * page_size() + page * 64 % 4096;

		if (huge)
			*byte = 1;
		else
			(void)*byte;
	}
	return planted;
}

int main(int argc, char **argv)
{
	const struct option options[] = {
	    {"work-us", "computation in each span, in µs", .real = &work_us},
	    {"pages", "faults of a struck span", .number = &pages},
	    {"huge", "huge pages, of 2 MiB each", .flag = &huge},
	    {0},
	};
	const struct bench bench = {
	    .program = "faultbench",
	    .about = "faultbench: spans of computation, some of which take page faults.",
	    .span = "fault",
	    .options = options,
	    .prepare = prepare,
	    .before = before,
	    .work = work,
	};

	return bench_main(argc, argv, &bench);
}
