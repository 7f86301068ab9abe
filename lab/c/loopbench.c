// SPDX-License-Identifier: Apache-2.0
/*
 * Spans that do nothing but compute: an empty loop of fixed length (VarMRI, section 6.1).
 * Whatever makes one longer than another came from outside the program. Now and then it uses its
 * stack: what uses no memory at all misses nothing when its TLB is flushed.
 */
#include "bench.h"

static uint64_t iterations = 25000;

static bool work(struct worker *w, bool planted)
{
	const uint64_t piece = 1000;
	volatile uint64_t left;

	(void)w;
	(void)planted;
	for (left = iterations; left > piece; left -= piece)
		loop(piece);
	loop(left);
	return false;
}

int main(int argc, char **argv)
{
	const struct option options[] = {
	    {"iterations", "length of the loop in a span", .number = &iterations}, {0}};
	const struct bench bench = {
	    .program = "loopbench",
	    .about = "loopbench: spans that run an empty loop of fixed length.",
	    .span = "loop",
	    .options = options,
	    .work = work,
	};

	bench_run.every = 0;
	return bench_main(argc, argv, &bench);
}
