// SPDX-License-Identifier: Apache-2.0
/*
 * A hostile program with the SDK: forging. It makes spans of many names, and then writes a row into
 * its region that was kept, it says, with a probability of 2^-32: it would count as 4,294,967,296.
 */
#include <tailscope.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "work.h"

#define NAMES 250

static void make_spans(void)
{
	static char names[NAMES][16]; /* the SDK knows names by where they are */
	ts_span span;

	for (int i = 0; i < NAMES; i++) {
		snprintf(names[i], sizeof(names[i]), "foreign %d", i);
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

int main(void)
{
	struct timespec pause = {.tv_nsec = 10000000};

	printf("ready\n");
	fflush(stdout);
	while (!ts__process.region) {
		make_spans();
		nanosleep(&pause, NULL);
	}
	make_spans();
	forge(ts__process.region);
	printf("forged\n");
	fflush(stdout);
	sleep(600);
	return 0;
}
