// SPDX-License-Identifier: Apache-2.0
/*
 * Spans of computation, one in twenty of which touches a huge page for the first time: a fault
 * that is nearly all the kernel's clearing of memory. Mapping is left to the time between spans.
 */
#include <tailscope.h>

#include <stdint.h>
#include <sys/mman.h>

#include "work.h"

#define HUGE_PAGE (2u << 20)
#define SPANS 20000
#define EVERY 20

int main(void)
{
	for (int i = 0; i < SPANS; i++) {
		struct timespec rest = {0, 20000};
		volatile char *fresh = NULL;
		void *map = NULL;
		ts_span span;

		if (i % EVERY == 0) {
			uintptr_t aligned;

			map = mmap(NULL, 2 * HUGE_PAGE, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			if (map == MAP_FAILED)
				return 3;
			aligned = ((uintptr_t)map + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1);
			fresh = (volatile char *)aligned;
			if (madvise((void *)aligned, HUGE_PAGE, MADV_HUGEPAGE))
				return 4;
		}
		ts_span_begin(&span, "touch");
		spin(50000);
		if (fresh)
			*fresh = 1;
		ts_span_end_id(&span, i);
		if (map)
			munmap(map, 2 * HUGE_PAGE);
		nanosleep(&rest, NULL);
	}
	return 0;
}
