// SPDX-License-Identifier: Apache-2.0
/*
 * What a pair of probes, and a call of a probed function, cost this program. It reads how many
 * rounds are wanted, one number a line, and answers with the ns of each round's batch as JSON.
 * The probes have no semaphore, so that they cost the same whoever attaches to them.
 *
 * usage: probe_cost CPU BATCH PAUSE_US
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "clock.h"
#include "run.h"

#define NOTE(probe)                                                    \
	__asm__ volatile("990: nop\n"                                  \
			 ".pushsection .note.stapsdt,\"?\",\"note\"\n" \
			 ".balign 4\n"                                 \
			 ".4byte 992f-991f, 994f-993f, 3\n"            \
			 "991: .asciz \"stapsdt\"\n"                   \
			 "992: .balign 4\n"                            \
			 "993: .8byte 990b, 0, 0\n"                    \
			 ".asciz \"bench\"\n"                          \
			 ".asciz \"" #probe "\"\n"                     \
			 ".asciz \"\"\n"                               \
			 "994: .balign 4\n"                            \
			 ".popsection\n" ::                            \
			     : "memory")

/* It begins with an instruction that the kernel emulates, as most functions do: a step of its own
 * through another one costs as much as the machine's debug exception does, for everybody. */
__attribute__((noinline, noclone)) void probed_call(void)
{
	__asm__ volatile("nop" ::: "memory");
}

static void pair(void)
{
	NOTE(begin);
	NOTE(end);
}

static void print_batches(const char *kind, void (*run)(void), long rounds, long batch, long pause)
{
	printf("\"%s\": [", kind);
	for (long round = 0; round < rounds; round++) {
		uint64_t begin = now_ns();

		for (long i = 0; i < batch; i++)
			run();
		printf("%s%.2f", round ? ", " : "", (double)(now_ns() - begin) / (double)batch);
		usleep((unsigned)pause);
	}
	printf("]");
}

int main(int count, char **words)
{
	long batch, pause, rounds;

	if (count != 4)
		return 2;
	stay_on(strtoull(words[1], NULL, 10));
	batch = atol(words[2]);
	pause = atol(words[3]);
	while (scanf("%ld", &rounds) == 1) {
		printf("{");
		print_batches("usdt", pair, rounds, batch, pause);
		printf(", ");
		print_batches("call", probed_call, rounds, batch, pause);
		printf("}\n");
		fflush(stdout);
	}
	return 0;
}
