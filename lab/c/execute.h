/* SPDX-License-Identifier: Apache-2.0 */
/* Work of a known number of instructions. */
#ifndef LAB_EXECUTE_H
#define LAB_EXECUTE_H

#include <stdint.h>

/* Exactly `instructions` of them, if that is an even number from 2 on. */
static inline void execute(uint64_t instructions)
{
	uint64_t left = instructions / 2;

#ifdef __x86_64__
	__asm__ volatile("1: dec %0\n\tjnz 1b" : "+r"(left)::"cc");
#else
	__asm__ volatile("1: subs %0, %0, #1\n\tb.ne 1b" : "+r"(left)::"cc");
#endif
}

#endif
