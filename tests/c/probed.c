// SPDX-License-Identifier: Apache-2.0
/*
 * Programs with probes whose spans are known exactly: probed WHAT [ROUNDS [SECONDS]].
 *
 * They know nothing of Tailscope. Without SECONDS a program runs its rounds once; with them, again
 * and again until so many are over. The last line says how many rounds were run, as JSON.
 */
#define _GNU_SOURCE // pthread_barrier_t

#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "usdt.h"
#include "work.h"

#define NOINLINE __attribute__((noinline, noclone))
#define THREADS 4
#define CROWD 1200
#define DEPTH 5
#define TOO_DEEP 40

PROBE_SEMAPHORE(begin);
PROBE_SEMAPHORE(end);
PROBE_SEMAPHORE(outer_begin);
PROBE_SEMAPHORE(outer_end);

static const char *const names[] = {"red", "green", "blue"};
static jmp_buf back;
static pthread_barrier_t all_there;

/* Two sources, one inside the other; the inner one's begin says id and name. */
static NOINLINE void pair(long id)
{
	PROBE(outer_begin, id, "outer");
	spin(500);
	PROBE(begin, id, names[id % 3]);
	spin(500);
	PROBE(end, id, "end");
	PROBE(outer_end, id, "outer");
}

/* Spans that overlap without lying in each other. */
static NOINLINE void crossing(long id)
{
	PROBE(outer_begin, id, "outer");
	PROBE(begin, id, names[id % 3]);
	spin(500);
	PROBE(outer_end, id, "outer");
	PROBE(end, id, "end");
}

/* One source in itself, `left` deep. */
static NOINLINE long descend(long left, const char *name)
{
	long below = 0;

	PROBE(begin, left, name);
	spin(200);
	if (left > 1)
		below = descend(left - 1, name);
	spin(200);
	PROBE(end, left, name);
	return below + 1;
}

static void jump(void)
{
	longjmp(back, 1);
}

/* The compiler does not see that it never returns. */
static void (*volatile jump_back)(void) = jump;

/* Left by a jump from `left` calls further down: neither end nor return comes. */
static NOINLINE long leave(long left)
{
	PROBE(begin, left, "left");
	spin(200);
	if (left > 1)
		leave(left - 1);
	else
		jump_back();
	PROBE(end, left, "left");
	return left;
}

/* The span of `survivor` ends, though those inside it were left. */
static NOINLINE void survivor(long id)
{
	PROBE(begin, id, "survivor");
	if (!setjmp(back))
		leave(3);
	PROBE(end, id, "survivor");
}

/* An error now and then, as in a server's loop: the same place is begun again without an end. */
static NOINLINE void request(long id)
{
	PROBE(begin, id, "request");
	spin(200);
	if (id % 4 == 3)
		return;
	PROBE(end, id, "request");
}

/* Functions whose calls begin and end a span. */
NOINLINE void open_it(long id)
{
	__asm__ volatile("" ::"r"(id) : "memory");
}

NOINLINE void close_it(void)
{
	__asm__ volatile("" ::: "memory");
}

static NOINLINE void functions(long id)
{
	open_it(id);
	spin(500);
	close_it();
	close_it(); /* an end too many */
}

static const char *what;

static void round_of(long i)
{
	char name[32];

	if (!strcmp(what, "pairs") || !strcmp(what, "threads") || !strcmp(what, "crowd") ||
	    !strcmp(what, "forking"))
		pair(i);
	else if (!strcmp(what, "crossing"))
		crossing(i);
	else if (!strcmp(what, "recursion"))
		descend(DEPTH, "descend");
	else if (!strcmp(what, "deep"))
		descend(TOO_DEEP, "descend");
	else if (!strcmp(what, "longjmp"))
		survivor(i);
	else if (!strcmp(what, "errors"))
		request(i);
	else if (!strcmp(what, "functions"))
		functions(i);
	else if (!strcmp(what, "names")) {
		snprintf(name, sizeof(name), "name-%ld", i);
		descend(1, name);
	} else {
		fprintf(stderr, "probed: no '%s'\n", what);
		exit(2);
	}
}

static long rounds = 1000;

static void *run_rounds(void *number)
{
	if (!strcmp(what, "crowd"))
		pthread_barrier_wait(&all_there);
	for (long i = 0; i < rounds; i++)
		round_of((intptr_t)number * rounds + i);
	return NULL;
}

static void run_threads(unsigned count)
{
	pthread_t threads[CROWD];

	pthread_barrier_init(&all_there, NULL, count);
	for (uintptr_t i = 0; i < count; i++)
		if (pthread_create(&threads[i], NULL, run_rounds, (void *)i))
			exit(3);
	for (unsigned i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
	pthread_barrier_destroy(&all_there);
}

/* Not the first thread of its process, until now. */
static void *become_pairs(void *words)
{
	execl("/proc/self/exe", "probed", "pairs", ((char **)words)[2], NULL);
	exit(3);
}

static void run_once(char **words)
{
	pthread_t thread;

	if (!strcmp(what, "threads")) {
		run_threads(THREADS);
	} else if (!strcmp(what, "crowd")) { /* all of them live at once */
		run_threads(CROWD);
	} else if (!strcmp(what, "exec")) {
		if (pthread_create(&thread, NULL, become_pairs, words))
			exit(3);
		pthread_join(thread, NULL);
	} else if (!strcmp(what, "forking")) {
		pid_t child = fork();

		if (child < 0)
			exit(3);
		if (!child) {
			run_rounds((void *)1);
			_exit(0);
		}
		waitpid(child, NULL, 0);
	} else {
		run_rounds(NULL);
	}
}

int main(int count, char **words)
{
	uint64_t until;
	long times = 0;

	what = count > 1 ? words[1] : "";
	rounds = count > 2 ? atol(words[2]) : rounds;
	until = clock_of(CLOCK_MONOTONIC) +
		(count > 3 ? strtoull(words[3], NULL, 10) : 0) * 1000000000u;
	do {
		run_once(words);
		times++;
	} while (clock_of(CLOCK_MONOTONIC) < until);
	printf("{\"rounds\": %ld}\n", times * rounds);
	return 0;
}
