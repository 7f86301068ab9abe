// SPDX-License-Identifier: Apache-2.0
/*
 * A production program: steady CPU [SECONDS]. A short span every 200 µs, on one CPU and
 * before all other programs, for SECONDS or until SIGTERM. After each SIGUSR1 it says what its spans were since the last: how many
 * of all, and the longest, with all that begin and end took.
 */
#include <tailscope.h>

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "clock.h"
#include "run.h"

static volatile sig_atomic_t asked;

static void on_ask(int signal)
{
	(void)signal;
	asked = 1;
}

int main(int argc, char **argv)
{
	const struct sched_param first = {.sched_priority = 1};
	const struct sigaction action = {.sa_handler = on_ask};
	const double seconds = argc > 2 ? strtod(argv[2], NULL) : 1e9;
	unsigned long long spans = 0, longest = 0;
	uint64_t until;

	stay_on(argc > 1 ? strtoull(argv[1], NULL, 10) : UINT64_MAX);
	sched_setscheduler(0, SCHED_FIFO, &first); /* without the right to: as others */
	until_told();
	sigaction(SIGUSR1, &action, NULL);
	until = now_ns() + (uint64_t)(seconds * 1e9);
	while (!over && now_ns() < until) {
		uint64_t begin = now_ns(), took;
		ts_span span;

		ts_span_begin(&span, "steady");
		loop(5000);
		ts_span_end(&span);
		took = now_ns() - begin;
		spans++;
		if (took > longest)
			longest = took;
		if (asked) {
			asked = 0;
			printf("{\"pid\": %d, \"spans\": %llu, \"longest_ns\": %llu}\n",
			       (int)getpid(), spans, longest);
			fflush(stdout);
			longest = 0;
		}
		sleep_ns(200000);
	}
	printf("{\"pid\": %d, \"spans\": %llu, \"longest_ns\": %llu}\n", (int)getpid(), spans,
	       longest);
	return 0;
}
