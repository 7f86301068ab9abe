/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The frame of the lab's annotated programs: threads that run span after span, and one JSON
 * object at the end that says what the spans took by the program's own clock.
 *
 * A program may plant a cause: one span in `every`, drawn at random, has it. Spans are otherwise
 * alike, so at the default of 1 in 50 the cause is what p99 is made of, by design. SIGUSR1 stops
 * the planting, SIGUSR2 goes on with it: with and without alternate in one process.
 */
#ifndef LAB_BENCH_H
#define LAB_BENCH_H

#include <tailscope.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "options.h"
#include "run.h"
#include "tally.h"

struct worker {
	pthread_t thread;
	unsigned number;
	uint64_t random;
	uint64_t cpu_ns;     /* of the thread, first span's begin to last span's end */
	struct tally all;    /* every span */
	struct tally struck; /* those that met the cause */
};

struct bench {
	const char *program;
	const char *about;
	const char *span;
	const struct option *options; /* the program's own */
	void (*prepare)(void);
	/* Outside the span, for what the plant needs ready. */
	void (*before)(struct worker *, bool planted);
	/* The span's work. Returns whether the cause struck. */
	bool (*work)(struct worker *, bool planted);
};

static struct {
	double seconds, think_us;
	uint64_t spans, threads, cpu, every;
	bool bare, json;
	uint64_t deadline; /* on the monotonic clock */
	volatile sig_atomic_t resting;
	const struct bench *bench;
} bench_run = {.seconds = 10, .spans = UINT64_MAX, .threads = 1, .cpu = UINT64_MAX, .every = 50};

__attribute__((noreturn, unused)) static void fail(const char *what)
{
	fprintf(stderr, "%s: %s: %s\n", bench_run.bench->program, what, strerror(errno));
	exit(3);
}

static void bench_switch(int signal)
{
	bench_run.resting = signal == SIGUSR1;
}

static void *bench_thread(void *argument)
{
	const struct bench *bench = bench_run.bench;
	struct worker *w = argument;
	uint64_t think_ns = (uint64_t)(bench_run.think_us * 1000);
	uint64_t cpu_begin, begin, end, i;

	cpu_begin = thread_cpu_ns();
	for (i = 0; i < bench_run.spans && !over; i++) {
		bool planted = bench_run.every && next_random(&w->random) % bench_run.every == 0 &&
			       !bench_run.resting;
		bool struck;
		ts_span span;

		if (bench->before)
			bench->before(w, planted);
		if (bench_run.bare) {
			begin = now_ns();
			struck = bench->work(w, planted);
			end = now_ns();
		} else {
			begin = now_ns();
			ts_span_begin(&span, bench->span);
			struck = bench->work(w, planted);
			/* One id a span: the thread in the top, so that they are unique. */
			ts_span_end_id(&span, (int64_t)((uint64_t)w->number << 48 | i));
			end = now_ns();
		}
		tally_add(&w->all, end - begin);
		if (struck)
			tally_add(&w->struck, end - begin);
		if (end >= bench_run.deadline)
			break;
		if (think_ns)
			sleep_ns(think_ns);
	}
	w->cpu_ns = thread_cpu_ns() - cpu_begin;
	return NULL;
}

static void bench_report(const struct worker *workers, uint64_t wall_ns)
{
	static struct tally all, struck;
	uint64_t cpu_ns = 0;

	for (uint64_t i = 0; i < bench_run.threads; i++) {
		tally_merge(&all, &workers[i].all);
		tally_merge(&struck, &workers[i].struck);
		cpu_ns += workers[i].cpu_ns;
	}
	printf("{\"program\": \"%s\", \"span\": \"%s\", \"annotated\": %s, \"threads\": %llu, "
	       "\"spans\": %llu, \"wall_ns\": %llu, \"spans_ns\": %llu, \"threads_cpu_ns\": %llu, "
	       "\"p50_ns\": %llu, \"p99_ns\": %llu, \"max_ns\": %llu",
	       bench_run.bench->program, bench_run.bench->span, bench_run.bare ? "false" : "true",
	       (unsigned long long)bench_run.threads, (unsigned long long)all.count,
	       (unsigned long long)wall_ns, (unsigned long long)all.sum, (unsigned long long)cpu_ns,
	       (unsigned long long)tally_quantile(&all, 0.5),
	       (unsigned long long)tally_quantile(&all, 0.99), (unsigned long long)all.max);
	if (bench_run.every)
		printf(", \"planted\": {\"spans\": %llu, \"spans_ns\": %llu, \"p50_ns\": %llu, "
		       "\"p99_ns\": %llu, \"max_ns\": %llu}",
		       (unsigned long long)struck.count, (unsigned long long)struck.sum,
		       (unsigned long long)tally_quantile(&struck, 0.5),
		       (unsigned long long)tally_quantile(&struck, 0.99),
		       (unsigned long long)struck.max);
	printf("}\n");
}

/* A bench without a plant sets bench_run.every to 0 first. */
static int bench_main(int argc, char **argv, const struct bench *bench)
{
	struct option common[] = {
	    {"seconds", "how long to run", .real = &bench_run.seconds},
	    {"spans", "stop after this many spans on each thread", .number = &bench_run.spans},
	    {"threads", "threads that run spans", .number = &bench_run.threads},
	    {"cpu", "keep all threads on this CPU", .number = &bench_run.cpu},
	    {"think-us", "sleep between spans, in µs", .real = &bench_run.think_us},
	    {"bare", "leave out the annotation, to see what it costs", .flag = &bench_run.bare},
	    {"json", "JSON at the end: what it does anyway", .flag = &bench_run.json},
	    {0},
	};
	struct option plant[] = {
	    {"every", "plant the cause in one of this many spans; 0: never",
	     .number = &bench_run.every},
	    {0},
	};
	const struct option none = {0};
	const struct option *const tables[] = {common, bench_run.every ? plant : &none,
					       bench->options ? bench->options : &none, NULL};
	struct sigaction change = {.sa_handler = bench_switch, .sa_flags = SA_RESTART};
	struct worker *workers;
	uint64_t begin;

	bench_run.bench = bench;
	options_parse(argc, argv, bench->about, tables);
	if (!bench_run.threads || bench_run.threads > 10000) {
		fprintf(stderr, "%s: --threads must be from 1 to 10000\n", bench->program);
		return 2;
	}
	stay_on(bench_run.cpu);
	until_told();
	sigaction(SIGUSR1, &change, NULL);
	sigaction(SIGUSR2, &change, NULL);
	if (bench->prepare)
		bench->prepare();
	workers = calloc(bench_run.threads, sizeof(*workers));
	if (!workers)
		fail("no memory for the threads");
	begin = now_ns();
	bench_run.deadline = begin + (uint64_t)(bench_run.seconds * 1e9);
	for (uint64_t i = 0; i < bench_run.threads; i++) {
		workers[i].number = (unsigned)i;
		workers[i].random = 0x9e3779b97f4a7c15u * (i + 1);
		errno = pthread_create(&workers[i].thread, NULL, bench_thread, &workers[i]);
		if (errno)
			fail("can't start a thread");
	}
	for (uint64_t i = 0; i < bench_run.threads; i++)
		pthread_join(workers[i].thread, NULL);
	bench_report(workers, now_ns() - begin);
	free(workers);
	return 0;
}

#endif
