// SPDX-License-Identifier: Apache-2.0
/*
 * What a request costs where nothing but hooks can be felt: one thread, two ends of a TCP
 * connection over loopback. A request is a receive at one end and a send at the same end, in which
 * the packet's softirq runs; its answer makes the next request at the other end.
 *
 * There are two such processes, the child a copy of its parent. They take turns, a batch each, on
 * one CPU: where the parent is recorded and the child is not, the difference is what recording adds,
 * however the speed of the machine may change from second to second. The parent reads what is
 * wanted, a line each, and answers with the ns a request of both one's batches as JSON:
 *
 *     ROUNDS MODE     MODE: 0 no annotation, 1 an SDK span around each request
 *
 * Each request touches KB of memory, as a server would that has more to do, so that programs don't
 * find all that they need in the nearest cache. Between two batches the thread spins for PAUSE
 * us: a recorder must have time to take the rows.
 *
 * usage: hook_cost CPU BATCH KB PAUSE_US
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <tailscope.h>
#include <unistd.h>

#include "clock.h"
#include "run.h"

static long batch, pause_us, bytes;
static volatile char *memory;

static void check(int good, const char *what)
{
	if (good)
		return;
	perror(what);
	exit(1);
}

/* A process's own: its memory, and the two ends with a first request under way. */
static void set_up(int ends[2])
{
	struct sockaddr_in address = {.sin_family = AF_INET};
	socklen_t length = sizeof(address);
	int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	check(listener >= 0 && !bind(listener, (struct sockaddr *)&address, length) &&
		  !listen(listener, 1) &&
		  !getsockname(listener, (struct sockaddr *)&address, &length),
	      "listen");
	ends[0] = socket(AF_INET, SOCK_STREAM, 0);
	check(ends[0] >= 0 && !connect(ends[0], (struct sockaddr *)&address, length), "connect");
	ends[1] = accept(listener, NULL, NULL);
	check(ends[1] >= 0, "accept");
	for (int i = 0; i < 2; i++)
		check(!setsockopt(ends[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)),
		      "setsockopt");
	check(send(ends[0], (char[32]){0}, 32, 0) == 32, "send");
	memory = calloc(1, (size_t)bytes + 1);
	check(memory != NULL, "calloc");
}

static void request(int end, int annotated)
{
	char text[64];
	ts_span span;

	if (annotated)
		ts_span_begin(&span, "request");
	check(recv(end, text, sizeof(text), 0) == 32, "recv");
	for (long at = 0; at < bytes; at += 64)
		memory[at]++;
	check(send(end, text, 32, 0) == 32, "send");
	if (annotated)
		ts_span_end(&span);
}

/* ns a request; the first few, after a switch, do not count. */
static double one_batch(const int ends[2], int annotated)
{
	uint64_t begin, end;

	for (int i = 0; i < 4; i++)
		request(ends[(i + 1) & 1], annotated);
	begin = now_ns();
	for (long i = 0; i < batch; i++)
		request(ends[(i + 1) & 1], annotated);
	end = now_ns();
	while (now_ns() - end < (uint64_t)pause_us * 1000)
		;
	return (double)(end - begin) / (double)batch;
}

/* The child: a batch for each mode that comes, until none does. */
static int serve(int modes, int answers)
{
	int ends[2], mode;
	double ns;

	set_up(ends);
	while (read(modes, &mode, sizeof(mode)) == sizeof(mode)) {
		ns = one_batch(ends, mode);
		check(write(answers, &ns, sizeof(ns)) == sizeof(ns), "write");
	}
	return 0;
}

int main(int count, char **words)
{
	int ends[2], to_child[2], from_child[2], mode;
	double ours, others;
	long rounds;

	if (count != 5)
		return 2;
	stay_on(strtoull(words[1], NULL, 10));
	batch = atol(words[2]);
	bytes = atol(words[3]) << 10;
	pause_us = atol(words[4]);
	check(!pipe(to_child) && !pipe(from_child), "pipe");
	if (!fork()) {
		close(to_child[1]);
		return serve(to_child[0], from_child[1]);
	}
	set_up(ends);
	while (scanf("%ld %d", &rounds, &mode) == 2) {
		printf("[");
		for (long round = 0; round < rounds; round++) {
			ours = one_batch(ends, mode);
			check(write(to_child[1], &mode, sizeof(mode)) == sizeof(mode), "write");
			check(read(from_child[0], &others, sizeof(others)) == sizeof(others),
			      "read");
			printf("%s[%.2f, %.2f]", round ? ", " : "", ours, others);
		}
		printf("]\n");
		fflush(stdout);
	}
	return 0;
}
