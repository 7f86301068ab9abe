/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Code made at run time that is mapped from a memfd, as .NET does, with a perf map of its own.
 * Each request calls it: `remapped REQUESTS`. The map is removed at the end.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* Counts its argument down to 0. */
static const uint8_t code[] = {
#if defined(__x86_64__)
    0x48, 0xff, 0xcf, /* dec rdi */
    0x75, 0xfb,	      /* jne -3 */
    0xc3,	      /* ret */
#elif defined(__aarch64__)
    0x00, 0x04, 0x00, 0xf1, /* subs x0, x0, #1 */
    0xe1, 0xff, 0xff, 0x54, /* b.ne -4 */
    0xc0, 0x03, 0x5f, 0xd6, /* ret */
#endif
};

typedef void count_down(uint64_t from);

/* The span. */
__attribute__((noinline)) void handle_request(count_down *count)
{
	count(3000000);
	__asm__ volatile("");
}

static count_down *made(void)
{
	int file = memfd_create("doublemapper", 0);
	void *mapped;

	if (file < 0 || write(file, code, sizeof(code)) != sizeof(code))
		return NULL;
	mapped = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_SHARED, file, 0);
	return mapped == MAP_FAILED ? NULL : (count_down *)mapped;
}

int main(int argc, char **argv)
{
	count_down *count = made();
	char path[64];
	FILE *map;

	snprintf(path, sizeof(path), "/tmp/perf-%d.map", getpid());
	map = fopen(path, "w");
	if (argc < 2 || !count || !map)
		return 2;
	fprintf(map, "%lx %zx planted_jit\n", (unsigned long)count, sizeof(code));
	fclose(map);
	for (long i = 0; i < atol(argv[1]); i++)
		handle_request(count);
	return unlink(path);
}
