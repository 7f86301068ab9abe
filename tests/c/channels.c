// SPDX-License-Identifier: Apache-2.0
/*
 * Channels by themselves: names, room, and children. With an argument: counts until it is told to
 * end (SIGTERM), or to run `sleep` in its place (SIGUSR1).
 */
#include <tailscope_channel.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

TS_CHANNEL(counted, TS_COUNTER);
TS_CHANNEL(doing, TS_TAG);

static volatile sig_atomic_t told;

static void hear(int signal)
{
	told = signal;
}

static void count_until_told(void)
{
	signal(SIGTERM, hear);
	signal(SIGUSR1, hear);
	while (!told) {
		struct timespec moment = {0, 20000};

		ts_channel_add(counted, 1);
		nanosleep(&moment, NULL);
	}
	if (told == SIGUSR1)
		execlp("sleep", "sleep", "60", (char *)NULL);
}

#define MUST(what)                                                    \
	do {                                                          \
		if (!(what)) {                                        \
			fprintf(stderr, "%d: %s\n", __LINE__, #what); \
			exit(1);                                      \
		}                                                     \
	} while (0)

int main(int argc, char **argv)
{
	ts_channel *own;
	int status = -1, i;
	pid_t child;

	(void)argv;
	if (argc > 1) {
		count_until_told();
		return 0;
	}
	ts_channel_add(counted, 2);
	ts_channel_add(counted, 3);
	ts_channel_set(doing, 9);
	own = ts_channel_open("own", TS_COUNTER);
	ts_channel_set(own, 1);
#ifndef TAILSCOPE_DISABLED
	MUST(counted->value == 5 && doing->value == 9 && own->value == 1);
	MUST(ts_channel_open("own", TS_COUNTER) == own);
	MUST(ts_channel_open("own2", TS_COUNTER) != own);
	MUST(sizeof(struct ts_channel) == 64 && sizeof(struct ts_channels) == 16384);
	child = fork();
	if (child == 0) {
		/* What a child writes, its parent's observer does not see; what was there it has. */
		MUST(counted->value == 5);
		ts_channel_add(counted, 100);
		_exit(0);
	}
	MUST(child > 0 && waitpid(child, &status, 0) == child && status == 0);
	MUST(counted->value == 5);
	for (i = 0; i < (int)TS_CHANNEL_SLOTS + 10; i++) {
		char name[100];

		snprintf(name, sizeof(name), "%d%60s", i, "long");
		ts_channel_add(ts_channel_open(name, TS_COUNTER), 1);
	}
	MUST(ts_channel_open("no room", TS_TAG) != NULL && own->value == 1);
#else
	(void)child;
	(void)status;
	(void)i;
#endif
	return 0;
}
