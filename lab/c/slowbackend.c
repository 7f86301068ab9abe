/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A server that others ask: it answers `GET /…?ask=MICROSECONDS` after that time, with the moment at
 * which it sends (CLOCK_MONOTONIC, ns) as the body. A thread for each connection.
 */
#include <pthread.h>

#include "clock.h"
#include "http.h"
#include "options.h"

static void *serve(void *arg)
{
	int s = (int)(intptr_t)arg;
	char head[REQUEST_BYTES], body[32];

	while (read_head(s, head)) {
		sleep_ns(number_of(head, "ask=") * 1000);
		snprintf(body, sizeof(body), "%llu", (unsigned long long)now_ns());
		answer(s, body);
	}
	close(s);
	return NULL;
}

int main(int argc, char **argv)
{
	uint64_t port = 0;
	const struct option options[] = {
	    {"port", "port to listen on", .number = &port},
	    {NULL},
	};
	const struct option *const tables[] = {options, NULL};
	int listening, one = 1;

	options_parse(argc, argv, "A backend that takes as long as it is asked to.", tables);
	listening = listen_on(port);
	for (;;) {
		int s = accept(listening, NULL, NULL);
		pthread_t thread;

		if (s < 0)
			continue;
		setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		if (pthread_create(&thread, NULL, serve, (void *)(intptr_t)s))
			die("pthread_create");
		pthread_detach(thread);
	}
}
