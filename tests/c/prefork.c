// SPDX-License-Identifier: Apache-2.0
/*
 * A server that starts all its workers at once: prefork WORKERS SPANS. Each worker runs so many spans of
 * a millisecond and ends.
 */
#include <tailscope.h>

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void work(int spans)
{
	struct timespec pause = {.tv_nsec = 1000000};
	ts_span span;

	while (spans--) {
		ts_span_begin(&span, "work");
		nanosleep(&pause, NULL);
		ts_span_end(&span);
	}
}

int main(int argc, char **argv)
{
	const int workers = argc > 1 ? atoi(argv[1]) : 32, spans = argc > 2 ? atoi(argv[2]) : 10;
	int i;

	for (i = 0; i < workers; i++)
		if (fork() == 0) {
			work(spans);
			return 0;
		}
	while (wait(NULL) > 0)
		;
	return 0;
}
