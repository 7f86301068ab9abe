// SPDX-License-Identifier: Apache-2.0
// A program whose page of variables is moved while everything that it can do goes on: threads that
// count at full speed, signals, sleeps, reads that block, waiting for one another. When its input
// ends, it says what went wrong: nothing, if nobody could tell that the page was moved.
//
//     moving [THREADS [makes]]     prints the address of the page, then waits for the end of its input;
//                                  with a second argument threads are made and end all the time, too
#define _GNU_SOURCE // pthread_sigqueue
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 64, SHORT = 16 };

// One page, all of it looked at by somebody.
struct page {
	_Atomic uint64_t total;	     // all threads
	volatile uint64_t own[MOST]; // each thread, with plain loads and stores
	_Atomic uint64_t signals;
	sem_t ping, pong;	  // of one process: futexes by address
	sem_t far_ping, far_pong; // of several: futexes by what is mapped
};
union whole {
	struct page page;
	char bytes[4096];
};
union whole moving_page __attribute__((aligned(4096))) = {.page = {.total = 1}};
#define PAGE (moving_page.page)

static atomic_int over, last;
static _Atomic uint64_t sent, wrong, rounds;
static uint64_t counted[MOST];
static pthread_t threads[MOST];
static int pipe_ends[2];

static void complain(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	wrong++;
}

static void *count(void *of)
{
	size_t i = (size_t)of;
	uint64_t mine = 0;

	while (!over) {
		for (int n = 0; n < 1000; n++) {
			PAGE.own[i]++;
			PAGE.total++;
			mine++;
		}
	}
	counted[i] = mine;
	return NULL;
}

static void heard(int signal)
{
	(void)signal;
	PAGE.signals++;
}

// Queued signals: each is delivered, or the counts differ.
static void *send(void *to)
{
	union sigval none = {0};
	struct timespec moment = {.tv_nsec = 200000};

	while (!over) {
		if (pthread_sigqueue(*(pthread_t *)to, SIGRTMIN, none) == 0)
			sent++;
		nanosleep(&moment, NULL);
	}
	return NULL;
}

// A sleep takes as long as it should, and does not end early.
static void *doze(void *unused)
{
	(void)unused;
	while (!over) {
		struct timespec begin, end, one = {.tv_nsec = 3000000};
		int64_t took;

		clock_gettime(CLOCK_MONOTONIC, &begin);
		if (nanosleep(&one, NULL))
			complain("nanosleep");
		clock_gettime(CLOCK_MONOTONIC, &end);
		took = (end.tv_sec - begin.tv_sec) * 1000000000LL + end.tv_nsec - begin.tv_nsec;
		if (took < one.tv_nsec)
			complain("a sleep was cut short");
	}
	return NULL;
}

// Reads block until there is something, as they did.
static void *take(void *unused)
{
	char byte, next = 0;

	(void)unused;
	while (read(pipe_ends[0], &byte, 1) == 1)
		if (byte != next++)
			complain("a byte is wrong");
	if (!over)
		complain("read");
	return NULL;
}

static void *give(void *unused)
{
	struct timespec moment = {.tv_nsec = 500000};

	(void)unused;
	for (char byte = 0; !over; byte++) {
		if (write(pipe_ends[1], &byte, 1) != 1)
			complain("write");
		nanosleep(&moment, NULL);
	}
	close(pipe_ends[1]);
	return NULL;
}

static void wait_for(sem_t *semaphore)
{
	while (sem_wait(semaphore))
		if (errno != EINTR)
			complain("sem_wait");
}

// A wake-up that gets lost stops both for good.
static void *answer(void *unused)
{
	(void)unused;
	for (;;) {
		wait_for(&PAGE.ping);
		sem_post(&PAGE.pong);
		wait_for(&PAGE.far_ping);
		int end = last; // before the other one asks again

		sem_post(&PAGE.far_pong);
		if (end)
			return NULL;
	}
}

static void *call(void *unused)
{
	struct timespec moment = {.tv_nsec = 100000};

	(void)unused;
	for (; !last; rounds++) {
		last = over;
		sem_post(&PAGE.ping);
		wait_for(&PAGE.pong);
		sem_post(&PAGE.far_ping);
		wait_for(&PAGE.far_pong);
		nanosleep(&moment, NULL);
	}
	return NULL;
}

// A thread that was made while its maker came first is not to come first for the rest of its life. One
// that does only until it has stopped has the flag by which those that it makes don't.
static void *live(void *unused)
{
	struct timespec moment = {.tv_nsec = 5000000};

	(void)unused;
	nanosleep(&moment, NULL);
	if (sched_getscheduler(0) == SCHED_FIFO)
		complain("a thread comes first for good");
	return NULL;
}

static void *make(void *unused)
{
	pthread_t made[SHORT];
	struct timespec moment = {.tv_nsec = 100000};
	size_t n = 0;

	(void)unused;
	for (; !over; n++) {
		if (n >= SHORT)
			pthread_join(made[n % SHORT], NULL);
		if (pthread_create(&made[n % SHORT], NULL, live, NULL)) {
			complain("pthread_create");
			return NULL;
		}
		nanosleep(&moment, NULL);
	}
	for (size_t i = n < SHORT ? 0 : n - SHORT; i < n; i++)
		pthread_join(made[i % SHORT], NULL);
	return NULL;
}

int main(int argc, char **argv)
{
	size_t n = argc > 1 ? strtoul(argv[1], NULL, 10) : 2;
	pthread_t others[7];
	void *(*work[7])(void *) = {send, doze, take, give, answer, call, make};
	size_t many = argc > 2 ? 7 : 6;
	uint64_t all = 1;
	char byte;

	if (n < 1 || n > MOST || pipe(pipe_ends))
		return 2;
	sem_init(&PAGE.ping, 0, 0), sem_init(&PAGE.pong, 0, 0);
	sem_init(&PAGE.far_ping, 1, 0), sem_init(&PAGE.far_pong, 1, 0);
	signal(SIGRTMIN, heard);
	for (size_t i = 0; i < n; i++)
		pthread_create(&threads[i], NULL, count, (void *)i);
	for (size_t i = 0; i < many; i++)
		pthread_create(&others[i], NULL, work[i], i ? NULL : &threads[0]);
	printf("%lx\n", (unsigned long)&moving_page);
	fflush(stdout);
	while (read(0, &byte, 1) == 1)
		;
	over = 1;
	for (size_t i = 0; i < many; i++)
		pthread_join(others[i], NULL);
	for (size_t i = 0; i < n; i++) {
		pthread_join(threads[i], NULL);
		all += counted[i];
		if (counted[i] != PAGE.own[i])
			complain("a thread's counts were lost");
	}
	if (all != PAGE.total)
		complain("counts were lost");
	if (sent != PAGE.signals)
		complain("signals were lost");
	printf("counts %llu signals %llu rounds %llu wrong %llu\n", (unsigned long long)all,
	       (unsigned long long)sent, (unsigned long long)rounds, (unsigned long long)wrong);
	return wrong ? 1 : 0;
}
