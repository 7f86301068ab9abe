// SPDX-License-Identifier: Apache-2.0
// Eight threads that never wait, until somebody ends them.
#include <pthread.h>

static void *spin(void *unused)
{
	for (;;)
		__asm__ volatile("" ::: "memory");
	return unused;
}

int main(void)
{
	pthread_t thread;

	for (int i = 1; i < 8; i++)
		pthread_create(&thread, NULL, spin, NULL);
	spin(NULL);
}
