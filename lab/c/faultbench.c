// SPDX-License-Identifier: Apache-2.0
/* Planted cause: page faults. A struck span touches pages that are not there. */
#include "bench.h"

#include <sys/mman.h>

#define PAGE 4096u

static double work_us = 30;
static uint64_t pages = 64;
static uint64_t iterations;
static __thread volatile uint8_t *region;

static void prepare(void)
{
	iterations = (uint64_t)(work_us * iterations_per_us());
}

/* Takes the worker's pages away, outside the span: only touching them is the plant. */
static void before(struct worker *w, bool planted)
{
	(void)w;
	if (!planted)
		return;
	if (!region) {
		region = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (region == MAP_FAILED)
			fail("no memory for --pages");
		/* One fault a page, not one a huge page. */
		madvise((void *)region, pages * PAGE, MADV_NOHUGEPAGE);
	}
	if (madvise((void *)region, pages * PAGE, MADV_DONTNEED))
		fail("can't give back the pages");
}

static bool work(struct worker *w, bool planted)
{
	(void)w;
	loop(iterations);
	for (uint64_t page = 0; planted && page < pages; page++)
		region[page * PAGE] = 1;
	return planted;
}

int main(int argc, char **argv)
{
	const struct option options[] = {
	    {"work-us", "computation in each span, in µs", .real = &work_us},
	    {"pages", "pages that a struck span touches for the first time", .number = &pages},
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
