/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests of which one in 50 also calls a planted function, for as long as the arguments say.
 * `planted MODE REQUESTS MICROSECONDS`; a mode is
 *
 *   none   nothing is planted
 *   cpu    planted_cpu() computes, for so much CPU time: other threads can't make it do less
 *   sleep  planted_sleep() sleeps
 *   lock   planted_lock() takes a mutex that another thread holds meanwhile
 *
 * Each function has its own code (noinline), and none keeps a frame pointer.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define KEPT __attribute__((noinline, noclone, optimize("omit-frame-pointer")))

static volatile uint64_t sink;
static long planted_us;
static pthread_mutex_t store = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int asked, held;

/* The thread's CPU time. It takes a system call: ask seldom. */
static uint64_t cpu_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * 1000000ull + t.tv_nsec / 1000;
}

static void pause_us(long us)
{
	struct timespec t = {us / 1000000, us % 1000000 * 1000};

	nanosleep(&t, NULL);
}

/* The work of each request: code of its own, so that it is another function than the planted. */
KEPT void usual_work(void)
{
	for (int i = 0; i < 60000; i++)
		sink = sink * 1103515245 + 12345;
}

KEPT void planted_cpu(void)
{
	uint64_t until = cpu_us() + planted_us;

	do {
		for (int i = 0; i < 30000; i++)
			sink = sink * 6364136223846793005u + 1;
	} while (cpu_us() < until);
}

KEPT void planted_sleep(void)
{
	struct timespec t = {planted_us / 1000000, planted_us % 1000000 * 1000};

	nanosleep(&t, NULL);
	sink++;
}

/* Holds the mutex for as long as is planted, each time that it is asked. */
static void *holder(void *unused)
{
	for (;;) {
		pthread_mutex_lock(&order);
		while (!asked)
			pthread_cond_wait(&changed, &order);
		asked = 0;
		pthread_mutex_lock(&store);
		held = 1;
		pthread_cond_broadcast(&changed);
		pthread_mutex_unlock(&order);
		pause_us(planted_us);
		pthread_mutex_unlock(&store);
	}
	return unused;
}

static void have_it_held(void)
{
	pthread_mutex_lock(&order);
	held = 0;
	asked = 1;
	pthread_cond_broadcast(&changed);
	while (!held)
		pthread_cond_wait(&changed, &order);
	pthread_mutex_unlock(&order);
}

KEPT void planted_lock(void)
{
	pthread_mutex_lock(&store);
	sink++;
	pthread_mutex_unlock(&store);
	sink++;
}

/* The span. */
KEPT void handle_request(const char *mode, int planted)
{
	usual_work();
	if (planted && !strcmp(mode, "cpu"))
		planted_cpu();
	else if (planted && !strcmp(mode, "sleep"))
		planted_sleep();
	else if (planted && !strcmp(mode, "lock"))
		planted_lock();
	sink++;
}

int main(int argc, char **argv)
{
	const char *mode = argv[1];
	long requests = argc > 3 ? atol(argv[2]) : 0;
	pthread_t thread;

	if (requests <= 0)
		return 2;
	planted_us = atol(argv[3]);
	if (!strcmp(mode, "lock") && pthread_create(&thread, NULL, holder, NULL))
		return 1;
	for (long i = 0; i < requests; i++) {
		int planted = i % 50 == 7;

		if (planted && !strcmp(mode, "lock"))
			have_it_held();
		handle_request(mode, planted);
		if (i % 8 == 0)
			pause_us(50);
	}
	return 0;
}
