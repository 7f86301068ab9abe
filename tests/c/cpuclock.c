// SPDX-License-Identifier: Apache-2.0
/*
 * Spans of an empty loop, each beside the CPU time that the kernel charges the thread for it.
 * Prints both for all spans: what they took by the thread's clock, and what the two readings of
 * that clock cost where nothing lies between them.
 */
#include <tailscope.h>

#include <stdio.h>

#include "work.h"

#define SPANS 10000
#define ITERATIONS 100000

static uint64_t took[SPANS], empty[SPANS];

int main(void)
{
	ts_span span;

	/* Finds the recorder, so that the measured spans are alike from the first. */
	ts_span_begin(&span, "first");
	ts_span_end(&span);
	for (int i = 0; i < SPANS; i++) {
		uint64_t begin = clock_of(CLOCK_THREAD_CPUTIME_ID);

		empty[i] = clock_of(CLOCK_THREAD_CPUTIME_ID) - begin;
		begin = clock_of(CLOCK_THREAD_CPUTIME_ID);
		ts_span_begin(&span, "loop");
		spin(ITERATIONS);
		ts_span_end_id(&span, i);
		took[i] = clock_of(CLOCK_THREAD_CPUTIME_ID) - begin;
	}
	printf("{\"cpu_ns\": [");
	for (int i = 0; i < SPANS; i++)
		printf("%s%llu", i ? "," : "", (unsigned long long)took[i]);
	printf("], \"empty_ns\": [");
	for (int i = 0; i < SPANS; i++)
		printf("%s%llu", i ? "," : "", (unsigned long long)empty[i]);
	printf("]}\n");
	return 0;
}
