// SPDX-License-Identifier: Apache-2.0
/*
 * Numbered system calls at a given rate, by the clock (open loop): every millisecond as many as are
 * due. Each has its number as the first argument, so whoever records them can tell which are missing.
 * The call asks for a priority of a policy that there is not, and does nothing.
 */
#include <stdbool.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "clock.h"
#include "options.h"
#include "run.h"

int main(int argc, char **argv)
{
	uint64_t rate = 250000, cpu = UINT64_MAX, made = 0, begin, late = 0;
	const struct option options[] = {
	    {"rate", "calls per second; 0: as many as it can", .number = &rate},
	    {"cpu", "run on this CPU only", .number = &cpu},
	    {0},
	};
	const struct option *const tables[] = {options, NULL};

	options_parse(argc, argv,
		      "calls: numbered system calls at a given rate, until it is ended.", tables);
	stay_on(cpu);
	until_told();
	printf("%d\n", (int)SYS_sched_get_priority_max);
	fflush(stdout);
	begin = now_ns();
	while (!over) {
		uint64_t due = (uint64_t)((double)(now_ns() - begin) * (double)rate / 1e9);

		if (!rate)
			due = made + 1000;
		/* A second's worth behind is a machine that stood still: let it go. */
		if (rate && due - made > rate) {
			late += due - made - rate;
			begin += (due - made - rate) * 1000000000ull / rate;
			due = made + rate;
		}
		for (; made < due; made++)
			syscall(SYS_sched_get_priority_max, 0x40000000 | (made & 0x3fffffff));
		if (rate)
			sleep_ns(1000000);
	}
	printf("%llu %llu\n", (unsigned long long)made, (unsigned long long)late);
	return 0;
}
