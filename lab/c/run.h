/* SPDX-License-Identifier: Apache-2.0 */
/* Where a program runs, and until when. */
#ifndef LAB_RUN_H
#define LAB_RUN_H

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* After `until_told`: whether somebody has asked the program to end. */
static volatile sig_atomic_t over;

static inline void on_interrupt(int signal)
{
	(void)signal;
	over = 1;
}

/* SIGINT and SIGTERM set `over` from now on, and end a call that waits. */
static inline void until_told(void)
{
	struct sigaction action = {.sa_handler = on_interrupt};

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
}

/* Keeps the thread, and those that it starts, on a CPU (UINT64_MAX: wherever), or ends the program. */
static inline void stay_on(uint64_t cpu)
{
	cpu_set_t set;

	if (cpu == UINT64_MAX)
		return;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set)) {
		fprintf(stderr, "%s: can't run on CPU %llu: %s\n", program_invocation_short_name,
			(unsigned long long)cpu, strerror(errno));
		exit(3);
	}
}

#endif
