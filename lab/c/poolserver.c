/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A server with a pool of workers behind a queue: one thread receives, a worker computes, asks a
 * backend if the request says so, and sends the answer. At its end (SIGTERM) it prints the truth of
 * each request as a line of JSON: how long threads worked for it, when another server had
 * it, and when its answer was sent. What it takes a thread to come back from a wait is work for what
 * the thread waited for. From when a request is in the queue until a worker has a CPU for it, it waits:
 * the receiver's call that wakes the worker is part of that wait.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>

#include "clock.h"
#include "http.h"
#include "options.h"

#define MOST_JOBS 65536
#define ID_BYTES 16

struct job {
	int socket;
	char id[ID_BYTES];
	uint64_t work_us, ask_us, after_us;
	/* Of the receiver until it is in the queue, and of the worker, in ns without waits for a CPU or a
	 * lock. */
	uint64_t receiving, working;
	uint64_t in_waits; /* of that: CPU time of both ways, to sleep and back */
	uint64_t asked, answered, sending, sent;
	struct job *next;
};

static struct job jobs[MOST_JOBS];
static uint32_t job_count;
static struct job *first, **last = &first;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t more = PTHREAD_COND_INITIALIZER;
static uint64_t port, backend, workers = 2;
static double per_us;

/* Reading schedstat takes less; a thread that needs longer has lost its CPU in between. */
#define READING_NS 20000

/* What this thread has waited for a CPU (the second number of its schedstat). */
static uint64_t waited_ns(void)
{
	static __thread int schedstat = -1;
	char text[96] = "";
	uint64_t ran, waited = 0;

	if (schedstat < 0)
		schedstat = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
	if (pread(schedstat, text, sizeof(text) - 1, 0) > 0)
		sscanf(text, "%lu %lu", &ran, &waited);
	return waited;
}

/* The time, less what this thread has waited for a CPU: `before` or after this call, which is work
 * like any other. */
static uint64_t working_ns(bool before)
{
	for (;;) {
		uint64_t from = now_ns(), waited = waited_ns(), to = now_ns();

		if (to - from < READING_NS)
			return (before ? from : to) - waited;
	}
}

static uint64_t starts_work(void)
{
	return working_ns(true);
}

static uint64_t ends_work(void)
{
	return working_ns(false);
}

static void work(uint64_t us)
{
	uint64_t until = now_ns() + us * 1000;

	while (now_ns() < until)
		loop((uint64_t)per_us);
}

static void ask_for(struct job *job, int s)
{
	char text[REQUEST_BYTES];
	int length = snprintf(text, sizeof(text), "GET /ask?ask=%llu HTTP/1.1\r\n\r\n",
			      (unsigned long long)job->ask_us);

	if (send(s, text, (size_t)length, MSG_NOSIGNAL) < 0)
		die("send to the backend");
}

static void hear(struct job *job, int s)
{
	char text[REQUEST_BYTES], *body;

	if (!read_head(s, text))
		die("receive from the backend");
	body = strstr(text, "\r\n\r\n");
	job->answered = strtoull(body + 4, NULL, 10);
}

static void *worker(void *arg)
{
	int s = backend ? connect_to(backend) : -1;

	(void)arg;
	for (;;) {
		struct job *job;
		uint64_t began, cpu = thread_cpu_ns();

		pthread_mutex_lock(&mutex);
		while (!first) {
			cpu = thread_cpu_ns();
			pthread_cond_wait(&more, &mutex);
		}
		job = first;
		first = job->next;
		if (!first)
			last = &first;
		pthread_mutex_unlock(&mutex);
		cpu = thread_cpu_ns() - cpu;
		job->in_waits += cpu;
		began = starts_work() - cpu;
		work(job->work_us);
		if (job->ask_us) {
			ask_for(job, s);
			job->working += ends_work() - began;
			job->asked = now_ns();
			cpu = thread_cpu_ns();
			hear(job, s);
			cpu = thread_cpu_ns() - cpu;
			job->in_waits += cpu;
			began = starts_work() - cpu;
		}
		work(job->after_us);
		job->working += ends_work() - began;
		job->sending = now_ns();
		answer(job->socket, "done");
		job->sent = now_ns();
	}
	return NULL;
}

/* `waiting`: the CPU time of the wait before. */
static void receive(int s, uint64_t began, uint64_t waiting)
{
	char head[REQUEST_BYTES];
	struct job *job = &jobs[job_count];
	uint64_t locking, cpu;

	if (!read_head(s, head)) {
		close(s);
		return;
	}
	if (job_count == MOST_JOBS - 1)
		die("too many requests");
	job_count++;
	job->socket = s;
	job->in_waits = waiting;
	sscanf(head, "GET /w/%15[a-z]", job->id);
	job->work_us = number_of(head, "work=");
	job->ask_us = number_of(head, "ask=");
	job->after_us = number_of(head, "after=");
	locking = ends_work();
	cpu = thread_cpu_ns();
	pthread_mutex_lock(&mutex);
	cpu = thread_cpu_ns() - cpu;
	began += starts_work() - locking - cpu;
	job->next = NULL;
	job->receiving = ends_work() - began;
	*last = job;
	last = &job->next;
	pthread_cond_signal(&more);
	pthread_mutex_unlock(&mutex);
}

static void *receiver(void *arg)
{
	int listening = listen_on(port), polled = epoll_create1(EPOLL_CLOEXEC), one = 1;
	struct epoll_event event = {.events = EPOLLIN, .data.fd = listening}, ready[64];

	(void)arg;
	epoll_ctl(polled, EPOLL_CTL_ADD, listening, &event);
	for (;;) {
		uint64_t cpu = thread_cpu_ns(), began;
		int count = epoll_wait(polled, ready, 64, -1);

		cpu = thread_cpu_ns() - cpu;
		began = starts_work() - cpu;

		for (int i = 0; i < count; i++) {
			int s = ready[i].data.fd;

			if (s != listening) {
				receive(s, began, cpu);
				cpu = 0;
				began = starts_work();
				continue;
			}
			s = accept(listening, NULL, NULL);
			if (s < 0)
				continue;
			setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
			event = (struct epoll_event){.events = EPOLLIN, .data.fd = s};
			epoll_ctl(polled, EPOLL_CTL_ADD, s, &event);
		}
	}
	return NULL;
}

static void print_truth(void)
{
	for (uint32_t i = 0; i < job_count; i++) {
		const struct job *j = &jobs[i];

		if (!j->sent)
			continue;
		printf("{\"id\": \"%s\", \"sending\": %llu, \"sent\": %llu, \"working\": %llu, ",
		       j->id, (unsigned long long)j->sending, (unsigned long long)j->sent,
		       (unsigned long long)(j->receiving + j->working));
		/* The way to sleep is not for it, and is no longer than the way back. */
		printf("\"doubt\": %llu, \"downstream\": [[%llu, %llu]]}\n",
		       (unsigned long long)j->in_waits / 2, (unsigned long long)j->asked,
		       (unsigned long long)j->answered);
	}
	fflush(stdout);
}

int main(int argc, char **argv)
{
	const struct option options[] = {
	    {"port", "port to listen on", .number = &port},
	    {"backend", "port of the backend that requests may ask; 0: none", .number = &backend},
	    {"workers", "threads in the pool", .number = &workers},
	    {NULL},
	};
	const struct option *const tables[] = {options, NULL};
	pthread_t thread;
	sigset_t ends;
	int got;

	options_parse(argc, argv, "A server with a pool of workers behind a queue.", tables);
	per_us = iterations_per_us() / 4;
	sigemptyset(&ends);
	sigaddset(&ends, SIGTERM);
	pthread_sigmask(SIG_BLOCK, &ends, NULL);
	for (uint64_t i = 0; i < workers; i++)
		if (pthread_create(&thread, NULL, worker, NULL))
			die("pthread_create");
	if (pthread_create(&thread, NULL, receiver, NULL))
		die("pthread_create");
	sigwait(&ends, &got);
	print_truth();
	return 0;
}
