// SPDX-License-Identifier: Apache-2.0
/*
 * To be preloaded before jemalloc, which asks for its memory through mmap: makes that memory shared,
 * so that the kernel can take its pages out of a process's page table and leave them in memory.
 * Private memory can only be swapped out. Not for programs that fork and go on.
 *
 * MALLOC_CONF must keep jemalloc from giving pages back and counting on zeroes:
 * dirty_decay_ms:-1,muzzy_decay_ms:-1.
 */
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

void *mmap(void *where, size_t length, int rights, int flags, int file, off_t offset)
{
	const int heap = MAP_PRIVATE | MAP_ANONYMOUS;

	if ((flags & heap) == heap)
		flags = (flags & ~MAP_PRIVATE) | MAP_SHARED;
	return (void *)syscall(SYS_mmap, where, length, rights, flags, file, offset);
}
