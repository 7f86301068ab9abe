// SPDX-License-Identifier: Apache-2.0
/*
 * What the way to a server and back costs on this machine: one byte over loopback TCP between
 * two processes on two CPUs, now and then, as the load generator's requests come.
 *
 *	echo SERVER-CPU CLIENT-CPU COUNT PAUSE-US	prints the round trips' p50 and p99 in ns
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "work.h"

static void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	sched_setaffinity(0, sizeof(set), &set);
}

/* One message, waited for as servers and the generator do. */
static int receive(int events, int s, char *byte)
{
	struct epoll_event event;

	return epoll_wait(events, &event, 1, 10000) == 1 && recv(s, byte, 1, 0) == 1;
}

static int watch(int s)
{
	struct epoll_event event = {.events = EPOLLIN};
	int events = epoll_create1(0), on = 1;

	setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	return events < 0 || epoll_ctl(events, EPOLL_CTL_ADD, s, &event) ? -1 : events;
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	struct sockaddr_in address = {.sin_family = AF_INET};
	socklen_t length = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM, 0), s, events, count;
	uint64_t *round;
	pid_t server;
	char byte = 0;

	if (argc != 5)
		return 2;
	count = atoi(argv[3]);
	round = calloc((size_t)count, sizeof(*round));
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (!round || bind(listener, (struct sockaddr *)&address, length) || listen(listener, 1) ||
	    getsockname(listener, (struct sockaddr *)&address, &length))
		return 3;
	server = fork();
	if (server == 0) {
		pin(atoi(argv[1]));
		s = accept(listener, NULL, NULL);
		events = watch(s);
		while (receive(events, s, &byte))
			if (send(s, &byte, 1, 0) != 1)
				break;
		_exit(0);
	}
	pin(atoi(argv[2]));
	s = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(s, (struct sockaddr *)&address, length))
		return 3;
	events = watch(s);
	for (int i = 0; i < count; i++) {
		uint64_t begin;

		usleep((useconds_t)atoi(argv[4]));
		begin = clock_of(CLOCK_MONOTONIC);
		if (send(s, &byte, 1, 0) != 1 || !receive(events, s, &byte))
			return 3;
		round[i] = clock_of(CLOCK_MONOTONIC) - begin;
	}
	close(s);
	waitpid(server, NULL, 0);
	qsort(round, (size_t)count, sizeof(*round), compare);
	printf("{\"p50_ns\": %llu, \"p99_ns\": %llu}\n", (unsigned long long)round[count / 2],
	       (unsigned long long)round[(size_t)count * 99 / 100]);
	free(round);
	return 0;
}
