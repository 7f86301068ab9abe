// SPDX-License-Identifier: Apache-2.0
/*
 * Threads that share memory in known ways. Each round of a thread:
 *
 *   update_shared   adds to `shared_counter` (every thread), and stores to its own word of
 *                   `falsely_shared` (one line); with --padded, that word has a line of its own
 *   walk_private    per line of its own part of `private_lines`: three loads, one store
 *   read_table      one load per line of `shared_table`, which nobody writes
 *
 * It prints what it does as JSON, and runs until a signal ends it.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "options.h"
#include "run.h"

#define LINE 64
#define MOST_THREADS 8
#define MOST_LINES 4096

struct line {
	_Alignas(LINE) volatile uint64_t words[LINE / 8];
};

struct line shared_counter;
struct line falsely_shared[MOST_THREADS];
struct line private_lines[MOST_THREADS][MOST_LINES];
struct line shared_table[MOST_LINES];

static uint64_t threads = 2, lines = 256, table = 64, updates = 8;
static bool padded;

__attribute__((noinline)) static void update_shared(volatile uint64_t *own)
{
	for (uint64_t i = 0; i < updates; i++) {
		__atomic_fetch_add(&shared_counter.words[0], 1, __ATOMIC_RELAXED);
		*own = i;
	}
}

__attribute__((noinline)) static uint64_t walk_private(struct line *mine)
{
	uint64_t sum = 0;

	for (uint64_t i = 0; i < lines; i++) {
		sum += mine[i].words[0] + mine[i].words[1] + mine[i].words[2];
		mine[i].words[3] = sum;
	}
	return sum;
}

__attribute__((noinline)) static uint64_t read_table(void)
{
	uint64_t sum = 0;

	for (uint64_t i = 0; i < table; i++)
		sum += shared_table[i].words[0];
	return sum;
}

static void *work(void *number)
{
	const uintptr_t own = (uintptr_t)number;
	struct line *const mine = private_lines[own];
	volatile uint64_t *const word =
	    padded ? &falsely_shared[own].words[0] : &falsely_shared[0].words[own];
	char name[16];
	uint64_t sum = 0;

	snprintf(name, sizeof(name), "worker-%u", (unsigned)own);
	pthread_setname_np(pthread_self(), name);
	while (!over) {
		update_shared(word);
		sum += walk_private(mine);
		sum += read_table();
	}
	return (void *)(uintptr_t)sum;
}

int main(int argc, char **argv)
{
	const struct option table_of_options[] = {
	    {.name = "threads", .help = "threads, at most 8", .number = &threads},
	    {.name = "lines",
	     .help = "lines of each thread's own memory, at most 4096",
	     .number = &lines},
	    {.name = "table",
	     .help = "lines that all threads read, at most 4096",
	     .number = &table},
	    {.name = "updates",
	     .help = "updates of shared lines in each round",
	     .number = &updates},
	    {.name = "padded",
	     .help = "give each thread's word a line of its own",
	     .flag = &padded},
	    {0},
	};
	const struct option *const tables[] = {table_of_options, NULL};
	pthread_t all[MOST_THREADS];

	options_parse(argc, argv, "sharebench: threads that share memory in known ways.", tables);
	if (!threads || threads > MOST_THREADS || lines > MOST_LINES || table > MOST_LINES) {
		fprintf(stderr, "sharebench: a number is out of its range; see --help\n");
		return 2;
	}
	until_told();
	printf("{\"threads\": %" PRIu64 ", \"lines\": %" PRIu64 ", \"table\": %" PRIu64
	       ", \"updates\": %" PRIu64 ", \"padded\": %s}\n",
	       threads, lines, table, updates, padded ? "true" : "false");
	fflush(stdout);
	for (uintptr_t i = 0; i < threads; i++)
		if (pthread_create(&all[i], NULL, work, (void *)i))
			return 3;
	for (uintptr_t i = 0; i < threads; i++)
		pthread_join(all[i], NULL);
	return 0;
}
