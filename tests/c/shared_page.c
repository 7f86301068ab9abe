// SPDX-License-Identifier: Apache-2.0
// A program that makes a child of its own when it is told to, and whose page both then write to: each
// finds out at the end whether somebody else wrote there too.
//
//     shared_page     prints the address of the page; a byte of its input has it fork and print the child
#define _GNU_SOURCE // usleep
#include <stdint.h>
#include <stdio.h>
#include <sys/select.h>
#include <sys/wait.h>
#include <unistd.h>

union whole {
	volatile uint64_t count;
	char bytes[4096];
};
union whole shared_page __attribute__((aligned(4096))) = {.count = 1};

// Counts until the input ends.
static void count(int input)
{
	fd_set none;

	do {
		struct timeval now = {0};

		for (int i = 0; i < 1000; i++)
			shared_page.count++;
		FD_ZERO(&none);
		FD_SET(input, &none);
		if (select(input + 1, &none, NULL, NULL, &now) == 1)
			return;
	} while (1);
}

// Whether the page keeps what is written there, for a tenth of a second.
static const char *owner(uint64_t mine)
{
	shared_page.count = mine;
	for (int i = 0; i < 100; i++) {
		usleep(1000);
		if (shared_page.count != mine)
			return "shared";
	}
	return "own";
}

int main(void)
{
	int ends[2];
	char byte;
	pid_t child;

	printf("%lx\n", (unsigned long)&shared_page);
	fflush(stdout);
	count(STDIN_FILENO);
	if (read(STDIN_FILENO, &byte, 1) != 1)
		return 0;
	if (pipe(ends))
		return 1;
	child = fork();
	if (child == 0) {
		close(ends[1]);
		count(ends[0]);
		printf("child: %s\n", owner(7));
		return 0;
	}
	close(ends[0]);
	printf("%d\n", child);
	fflush(stdout);
	count(STDIN_FILENO);
	close(ends[1]);
	const char *found = owner(3);

	waitpid(child, NULL, 0);
	printf("parent: %s\n", found);
	return 0;
}
