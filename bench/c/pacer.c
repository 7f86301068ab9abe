// SPDX-License-Identifier: Apache-2.0
/*
 * Spans at a given rate, by the clock (open loop): every millisecond as many as are due. What
 * could not be made in time is made up for, so the rate holds as long as the CPU suffices.
 */
#include <tailscope.h>

#include <stdbool.h>
#include <stdio.h>

#include "clock.h"
#include "options.h"
#include "run.h"

int main(int argc, char **argv)
{
	uint64_t rate = 50000, cpu = UINT64_MAX, iterations = 500, made = 0, begin, late = 0;
	const struct option options[] = {
	    {"rate", "spans per second; 0: none", .number = &rate},
	    {"iterations", "length of the empty loop in a span", .number = &iterations},
	    {"cpu", "run on this CPU only", .number = &cpu},
	    {0},
	};
	const struct option *const tables[] = {options, NULL};

	options_parse(argc, argv, "pacer: annotated spans at a given rate, until it is ended.",
		      tables);
	stay_on(cpu);
	until_told();
	begin = now_ns();
	while (!over) {
		uint64_t due = (uint64_t)((double)(now_ns() - begin) * (double)rate / 1e9);

		/* A second's worth behind is a machine that stood still: let it go. */
		if (due - made > rate)
			late += due - made - rate, made = due - rate;
		for (; made < due && !over; made++) {
			ts_span span;

			ts_span_begin(&span, "paced");
			loop(iterations);
			ts_span_end_id(&span, (int64_t)made);
		}
		sleep_ns(1000000);
	}
	printf("{\"spans\": %llu, \"left_out\": %llu}\n", (unsigned long long)(made - late),
	       (unsigned long long)late);
	return 0;
}
