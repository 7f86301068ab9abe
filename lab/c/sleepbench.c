// SPDX-License-Identifier: Apache-2.0
/* Planted cause: sleep. A struck span calls nanosleep. */
#include "bench.h"

static double work_us = 30, nap_us = 200;
static uint64_t iterations;

static void prepare(void)
{
	iterations = (uint64_t)(work_us * iterations_per_us());
}

static bool work(struct worker *w, bool planted)
{
	(void)w;
	loop(iterations);
	if (planted)
		sleep_ns((uint64_t)(nap_us * 1000));
	return planted;
}

int main(int argc, char **argv)
{
	const struct option options[] = {
	    {"work-us", "computation in each span, in µs", .real = &work_us},
	    {"nap-us", "how long a struck span sleeps, in µs", .real = &nap_us},
	    {0},
	};
	const struct bench bench = {
	    .program = "sleepbench",
	    .about = "sleepbench: spans of computation, some of which sleep.",
	    .span = "nap",
	    .options = options,
	    .prepare = prepare,
	    .work = work,
	};

	return bench_main(argc, argv, &bench);
}
