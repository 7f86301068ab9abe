// SPDX-License-Identifier: Apache-2.0
/*
 * Three stages by turns, each a function, whose speeds are known: a piece of work takes so many
 * cycles of the machine's clock, and then it and its bytes are counted. To be compiled with the
 * compiler's instrumentation of edges: do the rates by function say what they are?
 *
 *	stages CPU
 */
#include <tailscope_channel.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "clock.h"
#include "run.h"

TS_CHANNEL(pieces, TS_COUNTER);
TS_CHANNEL(octets, TS_COUNTER);

/* A stage takes this long, in cycles: some hundred microseconds. */
#define STAGE 1600000

#define FUNCTION __attribute__((noinline)) static

static uint64_t next;

/* Never two closer than that, however long the CPU was away in between. */
__attribute__((always_inline)) static inline void piece(uint64_t cycles, uint64_t bytes)
{
	uint64_t now;

	do
		now = clock_cycles();
	while (now < next);
	ts_channel_add(pieces, 1);
	ts_channel_add(octets, bytes);
	next = (now - next < cycles ? next : now) + cycles;
}

FUNCTION void parse(void)
{
	for (int i = 0; i < STAGE / 500; i++)
		piece(500, 64);
}

FUNCTION void look_up(void)
{
	for (int i = 0; i < STAGE / 1000; i++)
		piece(1000, 16);
}

FUNCTION void answer(void)
{
	for (int i = 0; i < STAGE / 2000; i++)
		piece(2000, 1024);
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "stages CPU\n");
		return 2;
	}
	stay_on(strtoull(argv[1], NULL, 10));
	next = clock_cycles();
	for (;;) {
		parse();
		look_up();
		answer();
	}
}
