// SPDX-License-Identifier: Apache-2.0
/* Planted cause: page faults. A struck span maps fresh memory and touches each of its pages. */
#include "bench.h"

#include <sys/mman.h>

#define PAGE 4096u

static double work_us = 30;
static uint64_t pages = 64;
static uint64_t iterations;

static void prepare(void)
{
	iterations = (uint64_t)(work_us * iterations_per_us());
}

static bool work(struct worker *w, bool planted)
{
	volatile uint8_t *fresh;

	(void)w;
	loop(iterations);
	if (!planted)
		return false;
	fresh =
	    mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (fresh == MAP_FAILED)
		fail("no memory for --pages");
	/* One fault a page, not one a huge page. */
	madvise((void *)fresh, pages * PAGE, MADV_NOHUGEPAGE);
	for (uint64_t page = 0; page < pages; page++)
		fresh[page * PAGE] = 1;
	munmap((void *)fresh, pages * PAGE);
	return true;
}

int main(int argc, char **argv)
{
	const struct option options[] = {
	    {"work-us", "computation in each span, in µs", .real = &work_us},
	    {"pages", "fresh pages that a struck span touches", .number = &pages},
	    {0},
	};
	const struct bench bench = {
	    .program = "faultbench",
	    .about = "faultbench: spans of computation, some of which take page faults.",
	    .span = "fault",
	    .options = options,
	    .prepare = prepare,
	    .work = work,
	};

	return bench_main(argc, argv, &bench);
}
