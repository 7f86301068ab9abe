// SPDX-License-Identifier: Apache-2.0
/* Spans of one name inside those of another, on some threads, each pair with an id of its own. */
#include <tailscope.h>

#include <pthread.h>

#include "work.h"

#define THREADS 3
#define PAIRS 500

static void *run_pairs(void *number)
{
	for (int64_t i = 0; i < PAIRS; i++) {
		int64_t id = (int64_t)(intptr_t)number * PAIRS + i;
		ts_span outer, inner;

		ts_span_begin(&outer, "outer");
		spin(5000);
		ts_span_begin(&inner, "inner");
		spin(5000);
		ts_span_end_id(&inner, id);
		spin(5000);
		ts_span_end_id(&outer, id);
	}
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS];

	for (intptr_t i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, run_pairs, (void *)i))
			return 3;
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
