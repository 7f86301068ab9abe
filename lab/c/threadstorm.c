// SPDX-License-Identifier: Apache-2.0
/* Threads that come and go, each running a few spans: what claims and frees meters in a hurry. */
#include <tailscope.h>

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "clock.h"
#include "options.h"
#include "run.h"

static uint64_t threads = 1000, alive = 50, spans = 20;
static double seconds = 0, work_us = 20;
static uint64_t iterations;
static sem_t room;
static atomic_ullong spans_done;

static void *visit(void *number)
{
	for (uint64_t i = 0; i < spans; i++) {
		ts_span span;

		ts_span_begin(&span, "visit");
		loop(iterations);
		ts_span_end_id(&span, (int64_t)((uintptr_t)number << 20 | i));
	}
	atomic_fetch_add(&spans_done, spans);
	sem_post(&room);
	return NULL;
}

int main(int argc, char **argv)
{
	const struct option options[] = {
	    {"threads", "how many threads, one after the other", .number = &threads},
	    {"alive", "how many of them at a time", .number = &alive},
	    {"spans", "spans that each runs", .number = &spans},
	    {"work-us", "computation in a span, in µs", .real = &work_us},
	    {"seconds", "go on for this long, whatever --threads says", .real = &seconds},
	    {0},
	};
	const struct option *const tables[] = {options, NULL};
	uint64_t begin, deadline, started = 0;
	pthread_attr_t small;

	options_parse(argc, argv, "threadstorm: threads that come and go, each running spans.",
		      tables);
	if (!alive || alive > 30000) {
		fprintf(stderr, "threadstorm: --alive must be from 1 to 30000\n");
		return 2;
	}
	iterations = (uint64_t)(work_us * iterations_per_us());
	until_told();
	sem_init(&room, 0, (unsigned)alive);
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 64 << 10);
	pthread_attr_setdetachstate(&small, PTHREAD_CREATE_DETACHED);
	begin = now_ns();
	deadline = begin + (uint64_t)(seconds * 1e9);
	while (!over && (seconds > 0 ? now_ns() < deadline : started < threads)) {
		pthread_t thread;

		while (sem_wait(&room))
			;
		errno = pthread_create(&thread, &small, visit, (void *)(uintptr_t)started);
		if (errno) {
			fprintf(stderr, "threadstorm: can't start a thread: %s\n", strerror(errno));
			return 3;
		}
		started++;
	}
	for (uint64_t i = 0; i < alive; i++)
		while (sem_wait(&room))
			;
	printf("{\"program\": \"threadstorm\", \"span\": \"visit\", \"threads\": %llu, "
	       "\"spans\": %llu, \"wall_ns\": %llu}\n",
	       (unsigned long long)started, (unsigned long long)atomic_load(&spans_done),
	       (unsigned long long)(now_ns() - begin));
	return 0;
}
