// SPDX-License-Identifier: Apache-2.0
/*
 * Spans whose number of instructions is known: a loop in assembly of two instructions a round. The
 * span's id says how many. `plain` ones do nothing else; `yields` and `sleeps` are put off the CPU
 * in their middle, by the bare system call, while another thread computes: what that one and the
 * kernel execute is not theirs. `outer` spans hold a hundred empty spans (`--empty`): what those cost.
 */
#include <tailscope.h>

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

#include "execute.h"
#include "options.h"

static uint64_t spans = 200, nap_us = 100;
static bool alone, empty;
static const char *lengths = "1000,10000,100000,1000000";
static volatile bool over;

/* A system call of two arguments, which takes a handful of instructions itself. */
static inline void ask_kernel(long call, long one, long two)
{
#ifdef __x86_64__
	__asm__ volatile("syscall" : "+a"(call) : "D"(one), "S"(two) : "rcx", "r11", "memory");
#else
	register long x8 __asm__("x8") = call;
	register long x0 __asm__("x0") = one;
	register long x1 __asm__("x1") = two;

	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1) : "memory");
#endif
}

static void *compute(void *unused)
{
	(void)unused;
	while (!over) {
		execute(20000);
		sched_yield();
	}
	return NULL;
}

static void run(uint64_t instructions, const char *name, long call, const struct timespec *time)
{
	for (uint64_t i = 0; i < spans; i++) {
		ts_span span;

		ts_span_begin(&span, name);
		if (call) {
			execute(instructions / 2);
			ask_kernel(call, (long)time, 0);
			execute(instructions / 2);
		} else {
			execute(instructions);
		}
		ts_span_end_id(&span, (int64_t)instructions);
	}
}

static void hundred_empty_spans(const struct timespec *nap)
{
	for (uint64_t i = 0; i < spans; i++) {
		ts_span outer, inner;

		ts_span_begin(&outer, "outer");
		for (int j = 0; j < 100; j++) {
			ts_span_begin(&inner, "empty");
			ts_span_end(&inner);
		}
		ts_span_end_id(&outer, 100);
		nanosleep(nap, NULL); /* for the recorder to keep up */
	}
}

int main(int argc, char **argv)
{
	const struct option options[] = {
	    {"spans", "so many of each length and kind", .number = &spans},
	    {"lengths", "instructions of a span, multiples of 4", .text = &lengths},
	    {"nap-us", "how long a span sleeps", .number = &nap_us},
	    {"alone", "without the thread that computes beside", .flag = &alone},
	    {"empty", "a hundred empty spans in each, and nothing else", .flag = &empty},
	    {0}};
	const struct option *const tables[] = {options, NULL};
	static char copy[256];
	struct timespec nap;
	pthread_t other;

	options_parse(argc, argv, "countbench: spans of a known number of instructions.", tables);
	strncpy(copy, lengths, sizeof(copy) - 1);
	nap.tv_sec = (time_t)(nap_us / 1000000);
	nap.tv_nsec = (long)(nap_us % 1000000) * 1000;
	if (empty) {
		hundred_empty_spans(&nap);
		printf("{\"program\": \"countbench\", \"spans\": %llu}\n",
		       (unsigned long long)spans);
		return 0;
	}
	if (!alone && pthread_create(&other, NULL, compute, NULL))
		return 3;
	for (char *rest = copy, *word; (word = strsep(&rest, ","));) {
		uint64_t instructions = strtoull(word, NULL, 10);

		if (instructions < 4 || instructions % 4) {
			fprintf(stderr, "countbench: '%s' is no multiple of 4\n", word);
			return 2;
		}
		run(instructions, "plain", 0, NULL);
		run(instructions, "yields", SYS_sched_yield, NULL);
		run(instructions, "sleeps", SYS_nanosleep, &nap);
	}
	over = true;
	if (!alone)
		pthread_join(other, NULL);
	printf("{\"program\": \"countbench\", \"spans\": %llu}\n", (unsigned long long)spans);
	return 0;
}
