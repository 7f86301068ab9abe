/* SPDX-License-Identifier: Apache-2.0 */
/* Clocks, and work of a known length. */
#ifndef LAB_CLOCK_H
#define LAB_CLOCK_H

#include <errno.h>
#include <stdint.h>
#include <time.h>
#ifdef __x86_64__
#include <x86intrin.h>
#endif

static inline uint64_t clock_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline uint64_t now_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

/* The processor's own clock, as it is; what it counts, the machine says. */
static inline uint64_t clock_cycles(void)
{
#ifdef __x86_64__
	return __rdtsc();
#else
	uint64_t v;

	__asm__ volatile("isb\n\tmrs %0, cntvct_el0" : "=r"(v));
	return v;
#endif
}

static inline uint64_t thread_cpu_ns(void)
{
	return clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

static inline void sleep_ns(uint64_t ns)
{
	struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};

	while (nanosleep(&t, &t) && errno == EINTR)
		;
}

/* An empty loop that no compiler removes. */
static inline void loop(uint64_t iterations)
{
	for (uint64_t i = 0; i < iterations; i++)
		__asm__ volatile("" ::: "memory");
}

/*
 * Iterations of `loop` that take one microsecond, the fastest of some trials: what the loop
 * takes when nothing disturbs it. Fixed once, so that every span executes the same instructions.
 */
static inline double iterations_per_us(void)
{
	const uint64_t iterations = 1000000;
	uint64_t best = UINT64_MAX;

	for (int trial = 0; trial < 20; trial++) {
		uint64_t begin = now_ns(), took;

		loop(iterations);
		took = now_ns() - begin;
		if (took < best)
			best = took;
	}
	return (double)iterations * 1000.0 / (double)(best ? best : 1);
}

/* Random enough to draw spans and pages: xorshift64, Marsaglia 2003. `state` is never 0. */
static inline uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

#endif
