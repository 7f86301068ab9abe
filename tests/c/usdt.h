/* SPDX-License-Identifier: Apache-2.0 */
/*
 * USDT probes of a test's own, with a semaphore and two arguments: what <sys/sdt.h> makes, without
 * needing it. PROBE_SEMAPHORE(probe) once in the file, then PROBE(probe, number, string).
 */
#ifndef TESTS_USDT_H
#define TESTS_USDT_H

#define PROBE_SEMAPHORE(probe) \
	__attribute__((section(".probes"), used)) volatile unsigned short probe##_semaphore = 0

#define PROBE(probe, number, string)                                   \
	__asm__ volatile("990: nop\n"                                  \
			 ".pushsection .note.stapsdt,\"?\",\"note\"\n" \
			 ".balign 4\n"                                 \
			 ".4byte 992f-991f, 994f-993f, 3\n"            \
			 "991: .asciz \"stapsdt\"\n"                   \
			 "992: .balign 4\n"                            \
			 "993: .8byte 990b\n"                          \
			 ".8byte 0\n"                                  \
			 ".8byte " #probe "_semaphore\n"               \
			 ".asciz \"test\"\n"                           \
			 ".asciz \"" #probe "\"\n"                     \
			 ".asciz \"-8@%[a] 8@%[b]\"\n"                 \
			 "994: .balign 4\n"                            \
			 ".popsection\n" ::[a] "r"((long)(number)),    \
			 [b] "r"((const char *)(string))               \
			 : "memory")

#endif
