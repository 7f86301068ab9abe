// SPDX-License-Identifier: Apache-2.0
/*
 * Counters of known speed, for an observer: in each round a fixed number of cycles passes, by the
 * machine's own clock, and then each counter grows by a fixed step. So a rate of one step a round is
 * known, and none can be above one step in the shortest time between two writes. `phase` says
 * which of `--phases` speeds it is at: in phase n a round takes n + 1 times as long.
 */
#include <tailscope_channel.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "clock.h"
#include "execute.h"
#include "options.h"
#include "run.h"

TS_CHANNEL(rounds, TS_COUNTER);
TS_CHANNEL(doubled, TS_COUNTER);
TS_CHANNEL(phase, TS_TAG);

/* The same as a global variable, for an observer of unmodified programs, and on its own page. */
__attribute__((aligned(4096))) volatile uint64_t paced_rounds;
__attribute__((aligned(4096))) volatile uint32_t paced_small;

static double seconds = 10;
static uint64_t cycles = 1000, instructions, phases = 1, phase_us = 1000, cpu = UINT64_MAX;
static bool burst;

/*
 * The clock once every store before is seen by all. A fence alone does not hold back the reading: a
 * store that waits for its line, as after an interrupt, would be seen up to a round later than it.
 */
static inline uint64_t clock_after_stores(void)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
#ifdef __x86_64__
	_mm_lfence();
#endif
	return clock_cycles();
}

static void step(void)
{
	ts_channel_add(rounds, 1);
	ts_channel_add(doubled, 2);
	paced_rounds++;
	paced_small++;
}

int main(int argc, char **argv)
{
	const struct option options[] = {
	    {"seconds", "how long to run", .real = &seconds},
	    {"cycles", "of the machine's clock between two steps", .number = &cycles},
	    {"instructions", "of a round, an even number; no clock", .number = &instructions},
	    {"phases", "so many speeds in turn", .number = &phases},
	    {"phase-us", "how long a phase is", .number = &phase_us},
	    {"cpu", "stay on this CPU", .number = &cpu},
	    {"burst", "no clock: as fast as a loop of stores is", .flag = &burst},
	    {0}};
	const struct option *const tables[] = {options, NULL};
	uint64_t begin, deadline, phase_end, first, next, number = 0;

	options_parse(argc, argv, "paced: counters that grow at a known speed.", tables);
	until_told();
	if (!phases || !cycles) {
		fprintf(stderr, "paced: --phases and --cycles must be above 0\n");
		return 2;
	}
	if (instructions % 2) {
		fprintf(stderr, "paced: --instructions must be even\n");
		return 2;
	}
	stay_on(cpu);
	begin = now_ns();
	deadline = begin + (uint64_t)(seconds * 1e9);
	phase_end = begin + phase_us * 1000;
	first = clock_cycles();
	next = first + cycles;
	while (!over) {
		if (burst) {
			for (int i = 0; i < 100000; i++)
				ts_channel_add(rounds, 1);
		} else if (instructions) {
			execute(instructions);
			ts_channel_add(rounds, 1);
		} else {
			/* A round that was held up is not made up for: no rate is above the known one. */
			while (clock_cycles() < next)
				;
			step();
			next = clock_after_stores() + cycles * (number + 1);
		}
		if (burst || phases > 1 || !(rounds->value & 1023)) {
			uint64_t now = now_ns();

			if (now >= deadline)
				break;
			if (phases > 1 && now >= phase_end) {
				number = (number + 1) % phases;
				phase_end = now + phase_us * 1000;
				ts_channel_set(phase, number);
			}
		}
	}
	printf("{\"program\": \"paced\", \"rounds\": %llu, \"cycles\": %llu, \"wall_ns\": %llu}\n",
	       (unsigned long long)rounds->value, (unsigned long long)(clock_cycles() - first),
	       (unsigned long long)(now_ns() - begin));
	return 0;
}
