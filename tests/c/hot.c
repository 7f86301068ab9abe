// SPDX-License-Identifier: Apache-2.0
/*
 * Functions of known length, for an observer of edges: by turns `short_one` goes round so many times, and
 * `long_one` three times as many. Each counts its rounds.
 */
#include <tailscope_channel.h>

TS_CHANNEL(rounds, TS_COUNTER);

__attribute__((noinline)) void short_one(unsigned long times)
{
	for (unsigned long i = 0; i < times; i++)
		ts_channel_add(rounds, 1);
}

__attribute__((noinline)) void long_one(unsigned long times)
{
	for (unsigned long i = 0; i < 3 * times; i++)
		ts_channel_add(rounds, 1);
}

int main(int argc, char **argv)
{
	volatile unsigned long times = 100000;

	(void)argv;
	for (int i = 0; argc > 1 || i < 10; i++) {
		short_one(times);
		long_one(times);
	}
	return 0;
}
