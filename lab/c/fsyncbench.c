// SPDX-License-Identifier: Apache-2.0
/* Planted cause: waiting for the disk. A struck span writes a block and waits for fsync. */
#include "bench.h"

#include <fcntl.h>
#include <unistd.h>

static double work_us = 30;
static uint64_t block = 4096;
static const char *dir = ".";
static uint64_t iterations;
static int file;
static char *bytes;

static void prepare(void)
{
	iterations = (uint64_t)(work_us * iterations_per_us());
	/* A file without a name: it goes with the process, however that ends. */
	file = open(dir, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
	if (file < 0)
		fail("can't make a file in the folder of --dir");
	bytes = calloc(1, block ? block : 1);
	if (!bytes)
		fail("no memory for --block");
}

static bool work(struct worker *w, bool planted)
{
	(void)w;
	loop(iterations);
	if (!planted)
		return false;
	if (pwrite(file, bytes, block, 0) < 0 || fsync(file))
		fail("can't write to the file");
	return true;
}

int main(int argc, char **argv)
{
	const struct option options[] = {
	    {"work-us", "computation in each span, in µs", .real = &work_us},
	    {"dir", "folder for the file, on the disk to wait for", .text = &dir},
	    {"block", "bytes that a struck span writes", .number = &block},
	    {0},
	};
	const struct bench bench = {
	    .program = "fsyncbench",
	    .about = "fsyncbench: spans of computation, some of which wait for the disk.",
	    .span = "fsync",
	    .options = options,
	    .prepare = prepare,
	    .work = work,
	};

	return bench_main(argc, argv, &bench);
}
