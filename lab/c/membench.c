// SPDX-License-Identifier: Apache-2.0
/*
 * Spans that touch every byte of one random page of a large memory (VarMRI, section 6.2): what
 * caches, the TLB and the memory itself do to a span of fixed instructions.
 */
#include "bench.h"

#include <sys/mman.h>

#define PAGE 4096u

static uint64_t memory_mib = 256;
static volatile uint8_t *memory;
static uint64_t pages;

static void prepare(void)
{
	pages = (memory_mib << 20) / PAGE;
	if (!pages)
		pages = 1;
	memory = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (memory == MAP_FAILED)
		fail("no memory of the size of --memory-mib");
	/* Reading a page that was never written finds the one zero page, in the cache. */
	for (uint64_t page = 0; page < pages; page++)
		memory[page * PAGE] = 1;
}

static bool work(struct worker *w, bool planted)
{
	volatile uint8_t *page = memory + next_random(&w->random) % pages * PAGE;

	(void)planted;
	for (unsigned i = 0; i < PAGE; i++)
		page[i]++;
	return false;
}

int main(int argc, char **argv)
{
	const struct option options[] = {
	    {"memory-mib", "memory that the pages are drawn from", .number = &memory_mib}, {0}};
	const struct bench bench = {
	    .program = "membench",
	    .about = "membench: spans that touch every byte of a random page.",
	    .span = "page",
	    .options = options,
	    .prepare = prepare,
	    .work = work,
	};

	bench_run.every = 0;
	return bench_main(argc, argv, &bench);
}
