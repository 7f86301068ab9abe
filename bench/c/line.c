// SPDX-License-Identifier: Apache-2.0
/*
 * How long a cache line takes from one CPU to another: two threads write it by turns.
 *
 *	line CPU CPU	says the cycles of one way, the median of some hundred short pieces
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "clock.h"
#include "run.h"

enum { PIECES = 200, TURNS = 200 };

static _Alignas(128) _Atomic uint64_t line;
static atomic_int at_end;

static void *answer(void *cpu)
{
	stay_on(*(uint64_t *)cpu);
	for (uint64_t turn = 1; !at_end; turn += 2) {
		while (atomic_load(&line) != turn)
			if (at_end)
				return NULL;
		atomic_store_explicit(&line, turn + 1, memory_order_release);
	}
	return NULL;
}

static int by_length(const void *one, const void *other)
{
	double a = *(const double *)one, b = *(const double *)other;

	return (a > b) - (a < b);
}

int main(int argc, char **argv)
{
	double ways[PIECES];
	uint64_t cpus[2], turn = 0;
	pthread_t other;

	if (argc != 3) {
		fprintf(stderr, "line CPU CPU\n");
		return 2;
	}
	cpus[0] = strtoull(argv[1], NULL, 10), cpus[1] = strtoull(argv[2], NULL, 10);
	if (pthread_create(&other, NULL, answer, &cpus[1]))
		return 1;
	stay_on(cpus[0]);
	for (int piece = 0; piece < PIECES; piece++) {
		uint64_t begin = clock_cycles();

		for (int i = 0; i < TURNS; i++, turn += 2) {
			atomic_store_explicit(&line, turn + 1, memory_order_release);
			while (atomic_load(&line) != turn + 2)
				;
		}
		ways[piece] = (double)(clock_cycles() - begin) / (2.0 * TURNS);
	}
	at_end = 1;
	pthread_join(other, NULL);
	qsort(ways, PIECES, sizeof(*ways), by_length);
	printf("%.0f\n", ways[PIECES / 2]);
	return 0;
}
