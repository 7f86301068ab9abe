// SPDX-License-Identifier: Apache-2.0
/*
 * Planted cause: waiting for a lock. Every span computes, then takes a mutex for a moment. A
 * holder, which runs no spans, now and then takes the same mutex and sleeps with it in hand: it
 * needs no CPU meanwhile, so that a struck span waits for the lock and for nothing else.
 */
#include "bench.h"

#include <semaphore.h>
#include <stdatomic.h>

static double work_us = 30, inside_us = 1, hold_us = 300;
static uint64_t iterations, inside_iterations;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static sem_t asked, held;
static atomic_bool in_hand;

static void *holder(void *unused)
{
	(void)unused;
	pthread_setname_np(pthread_self(), "holder");
	for (;;) {
		while (sem_wait(&asked))
			;
		pthread_mutex_lock(&mutex);
		atomic_store(&in_hand, true);
		sem_post(&held);
		sleep_ns((uint64_t)(hold_us * 1000));
		atomic_store(&in_hand, false);
		pthread_mutex_unlock(&mutex);
	}
	return NULL;
}

static void prepare(void)
{
	pthread_t thread;

	inside_iterations = (uint64_t)(inside_us * iterations_per_us());
	iterations = (uint64_t)(work_us * iterations_per_us());
	sem_init(&asked, 0, 0);
	sem_init(&held, 0, 0);
	errno = pthread_create(&thread, NULL, holder, NULL);
	if (errno)
		fail("can't start the holder");
	pthread_detach(thread);
}

/* The span begins with the mutex in the holder's hand. */
static void before(struct worker *w, bool planted)
{
	(void)w;
	if (!planted)
		return;
	sem_post(&asked);
	while (sem_wait(&held))
		;
}

static bool work(struct worker *w, bool planted)
{
	bool struck = false;

	(void)w;
	(void)planted;
	loop(iterations);
	if (pthread_mutex_trylock(&mutex)) {
		/* With several threads, those that did not ask for the plant meet it too. */
		struck = atomic_load(&in_hand);
		pthread_mutex_lock(&mutex);
	}
	loop(inside_iterations);
	pthread_mutex_unlock(&mutex);
	return struck;
}

int main(int argc, char **argv)
{
	const struct option options[] = {
	    {"work-us", "computation before the lock, in µs", .real = &work_us},
	    {"inside-us", "computation under the lock, in µs", .real = &inside_us},
	    {"hold-us", "how long the holder keeps the lock, in µs", .real = &hold_us},
	    {0},
	};
	const struct bench bench = {
	    .program = "lockbench",
	    .about = "lockbench: spans that take a lock, which another thread sometimes keeps.",
	    .span = "lock",
	    .options = options,
	    .prepare = prepare,
	    .before = before,
	    .work = work,
	};

	bench_run.threads = 2;
	return bench_main(argc, argv, &bench);
}
