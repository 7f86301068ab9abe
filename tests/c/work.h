/* SPDX-License-Identifier: Apache-2.0 */
/* Work and clocks for the tests' programs. */
#ifndef TESTS_WORK_H
#define TESTS_WORK_H

#include <stdint.h>
#include <time.h>

static inline void spin(uint64_t iterations)
{
	for (uint64_t i = 0; i < iterations; i++)
		__asm__ volatile("" ::: "memory");
}

static inline uint64_t clock_of(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

#endif
