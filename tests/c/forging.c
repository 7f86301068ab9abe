// SPDX-License-Identifier: Apache-2.0
/*
 * A hostile program with the SDK: forging [SECONDS]. It makes spans of many names, which no other
 * process has, and then writes a row into its region that was kept, it says, with a probability of
 * 2^-32: it would count as 4,294,967,296. It ends SECONDS later, or if nobody records it for as long.
 */
#include <tailscope.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "work.h"

#define NAMES 250

static void make_spans(void)
{
	static char names[NAMES][24]; /* the SDK knows names by where they are */
	ts_span span;

	for (int i = 0; i < NAMES; i++) {
		snprintf(names[i], sizeof(names[i]), "foreign %d of %d", i, (int)getpid());
		ts_span_begin(&span, names[i]);
		ts_span_end(&span);
	}
}

/* The last chunk, which no thread has reached yet. */
static void forge(struct ts_region *region)
{
	ts_u32 place = TS_CHUNKS - 1;
	struct ts_chunk *chunk =
	    (struct ts_chunk *)((char *)region + TS_REGION_HEAD + (size_t)place * TS_CHUNK_BYTES);
	struct ts_row row;

	memset(&row, 0, sizeof(row));
	row.begin = ts__cycles();
	row.wall = 1000;
	row.kept = 1;
	memcpy(chunk->rows, &row, sizeof(row));
	__atomic_store_n(&chunk->used, sizeof(row), __ATOMIC_RELEASE);
	__atomic_store_n(&region->chunk_state[place], TS_CHUNK_FULL, __ATOMIC_RELEASE);
}

int main(int argc, char **argv)
{
	const unsigned seconds = argc > 1 ? (unsigned)atoi(argv[1]) : 600;
	struct timespec pause = {.tv_nsec = 10000000};
	unsigned tries;

	printf("ready\n");
	fflush(stdout);
	for (tries = 0; !ts__process[0].region; tries++) {
		if (tries > 100 * seconds)
			return 1;
		make_spans();
		nanosleep(&pause, NULL);
	}
	make_spans();
	forge(ts__process[0].region);
	printf("forged\n");
	fflush(stdout);
	sleep(seconds);
	return 0;
}
