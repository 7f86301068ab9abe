// SPDX-License-Identifier: Apache-2.0
/*
 * A program whose spans hold those of a shared library, on the same threads: as many on each as
 * the argument says.
 */
#include <tailscope.h>

#include <pthread.h>
#include <stdlib.h>

#include "work.h"

#define THREADS 2

static int64_t spans;

void run_module(int64_t id);

static void *run_spans(void *number)
{
	for (int64_t i = 0; i < spans; i++) {
		int64_t id = (int64_t)(intptr_t)number * spans + i;
		ts_span span;

		ts_span_begin(&span, "program");
		spin(5000);
		run_module(id);
		spin(5000);
		ts_span_end_id(&span, id);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t thread;

	spans = argc > 1 ? atoll(argv[1]) : 0;
	if (pthread_create(&thread, NULL, run_spans, (void *)1))
		return 3;
	run_spans((void *)0);
	pthread_join(thread, NULL);
	return 0;
}
