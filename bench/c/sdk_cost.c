// SPDX-License-Identifier: Apache-2.0
/*
 * What one begin+end costs, beside what else a program could do to mark a place: an empty system
 * call, a uprobe and uretprobe on a function, a uprobe on a 5-byte nop.
 *
 * Reads a number of rounds and a pause in microseconds from each line of stdin. In a round, each
 * kind has one batch, so whatever slows the machine down slows all kinds alike. Prints a line of
 * JSON: what the recorder wants at this moment, and for each kind the ns per operation of every
 * batch, less those of an empty batch beside it.
 */
#include <tailscope.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/ioctl.h>

#include "clock.h"
#include "options.h"
#include "run.h"

#define LONGEST 100000u

static uint64_t batch = 200, cpu = UINT64_MAX;

/* A function as compilers make it, and one that begins with the nop of optimised USDT. */
void probed_function(void);
void probed_nop(void);
#ifdef __x86_64__
__asm__(".text\n"
	"probed_function: push %rbp; mov %rsp, %rbp; pop %rbp; ret\n"
	"probed_nop: .byte 0x0f, 0x1f, 0x44, 0x00, 0x00; ret\n");
#else
__asm__(".text\n"
	"probed_function: stp x29, x30, [sp, #-16]!; ldp x29, x30, [sp], #16; ret\n"
	"probed_nop: nop; ret\n");
#endif

static void nothing(uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		__asm__ volatile("" ::: "memory");
}

static void spans(uint64_t n)
{
	for (uint64_t i = 0; i < n; i++) {
		ts_span span;

		ts_span_begin(&span, "bench");
		__asm__ volatile("" ::: "memory");
		ts_span_end(&span);
	}
}

static void system_calls(uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		syscall(SYS_getppid);
}

static void probed_functions(uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		probed_function();
}

static void probed_nops(uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		probed_nop();
}

static struct kind {
	const char *name;
	void (*run)(uint64_t);
	bool available;
	double ns[LONGEST];
} kinds[] = {
    {.name = "span", .run = spans, .available = true},
    {.name = "system call", .run = system_calls, .available = true},
    {.name = "uprobe pair", .run = probed_functions},
    {.name = "uprobe on nop", .run = probed_nops},
};
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

static long number_in(const char *path, const char *format)
{
	FILE *file = fopen(path, "r");
	long number = -1;

	if (!file)
		return -1;
	if (fscanf(file, format, &number) != 1)
		number = -1;
	fclose(file);
	return number;
}

/* Where in this program's file a function begins. */
static uint64_t offset_of(void (*function)(void))
{
	FILE *maps = fopen("/proc/self/maps", "r");
	uint64_t address = (uint64_t)(uintptr_t)function, begin, end, offset, found = 0;
	char line[512];

	while (maps && fgets(line, sizeof(line), maps))
		if (sscanf(line, "%lx-%lx %*s %lx", &begin, &end, &offset) == 3 &&
		    address >= begin && address < end)
			found = address - begin + offset;
	if (maps)
		fclose(maps);
	return found;
}

/* Attaches a probe that only counts, through the kernel's uprobe PMU. Returns 0 or an errno. */
static int probe(void (*function)(void), bool at_return)
{
	static char path[4096];
	long type = number_in("/sys/bus/event_source/devices/uprobe/type", "%ld");
	long bit = number_in("/sys/bus/event_source/devices/uprobe/format/retprobe", "config:%ld");
	struct perf_event_attr attr = {.size = sizeof(attr)};
	ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);

	if (type < 0 || bit < 0 || length < 0)
		return ENOENT;
	attr.type = (uint32_t)type;
	attr.config = at_return ? 1ull << bit : 0;
	attr.uprobe_path = (uint64_t)(uintptr_t)path;
	attr.probe_offset = offset_of(function);
	if (syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC) < 0)
		return errno;
	return 0;
}

static double time_of(void (*run)(uint64_t))
{
	uint64_t begin = now_ns();

	run(batch);
	return (double)(now_ns() - begin) / (double)batch;
}

static void measure(uint64_t rounds, uint64_t pause_us)
{
	for (uint64_t i = 0; i < rounds; i++) {
		if (pause_us)
			sleep_ns(pause_us * 1000);
		for (size_t k = 0; k < KINDS; k++) {
			if (!kinds[k].available)
				continue;
			kinds[k].run(16); /* what sleeping made cold is not what is asked */
			kinds[k].ns[i] = -time_of(nothing);
			kinds[k].ns[i] += time_of(kinds[k].run);
		}
	}
}

static const char *recorder_state(void)
{
	if (!tailscope_semaphore.part[0].recorders)
		return "none";
	if (!ts__process[0].epoch || ts__thread[0].epoch != ts__process[0].epoch)
		return "not attached";
	return ts__process[0].region->retention[0].others ? "not kept" : "kept";
}

static void report(uint64_t rounds)
{
	printf("{\"state\": \"%s\"", recorder_state());
	for (size_t k = 0; k < KINDS; k++) {
		if (!kinds[k].available)
			continue;
		printf(", \"%s\": [", kinds[k].name);
		for (uint64_t i = 0; i < rounds; i++)
			printf("%s%.2f", i ? ", " : "", kinds[k].ns[i]);
		printf("]");
	}
	printf("}\n");
	fflush(stdout);
}

int main(int argc, char **argv)
{
	const struct option options[] = {
	    {"batch", "operations in a batch", .number = &batch},
	    {"cpu", "run on this CPU only", .number = &cpu},
	    {0},
	};
	const struct option *const tables[] = {options, NULL};
	unsigned long rounds, pause_us;
	int e;

	options_parse(argc, argv,
		      "sdk_cost: ns of a span's begin and end; bench/sdk_cost.py drives it.",
		      tables);
	stay_on(cpu);
	e = probe(probed_function, false);
	kinds[2].available = !e && !(e = probe(probed_function, true));
	kinds[3].available = !e && !(e = probe(probed_nop, false));
	if (e)
		fprintf(stderr, "sdk_cost: no uprobes: %s\n", strerror(e));
	while (scanf("%lu %lu", &rounds, &pause_us) == 2) {
		if (rounds > LONGEST)
			rounds = LONGEST;
		measure(rounds, pause_us);
		report(rounds);
	}
	return 0;
}
