// SPDX-License-Identifier: Apache-2.0
/*
 * Spans between readings of the kernel's clock: moments SECONDS. Prints, for each, the clock before and
 * after its begin, and before and after its end.
 */
#include <tailscope.h>

#include <stdio.h>
#include <stdlib.h>

#include "work.h"

#define MOST 20000

static uint64_t moments[MOST][4];

int main(int count, char **arguments)
{
	uint64_t seconds = count > 1 ? strtoull(arguments[1], NULL, 10) : 1;
	uint64_t until = clock_of(CLOCK_MONOTONIC) + seconds * 1000000000u;
	struct timespec pause = {.tv_nsec = 1000000};
	ts_span span;
	int made = 0;

	while (made < MOST && clock_of(CLOCK_MONOTONIC) < until) {
		uint64_t *at = moments[made++];

		at[0] = clock_of(CLOCK_MONOTONIC);
		ts_span_begin(&span, "moment");
		at[1] = clock_of(CLOCK_MONOTONIC);
		/* Of any length, so that they begin and end wherever the recorder reads its clocks. */
		pause.tv_nsec = 100000 + made % 40 * 100000;
		nanosleep(&pause, NULL);
		at[2] = clock_of(CLOCK_MONOTONIC);
		ts_span_end(&span);
		at[3] = clock_of(CLOCK_MONOTONIC);
	}
	for (int i = 0; i < made; i++)
		printf("%s[%llu, %llu, %llu, %llu]", i ? ", " : "[",
		       (unsigned long long)moments[i][0], (unsigned long long)moments[i][1],
		       (unsigned long long)moments[i][2], (unsigned long long)moments[i][3]);
	printf("]\n");
	return 0;
}
