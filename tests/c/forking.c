// SPDX-License-Identifier: Apache-2.0
/*
 * A fork in mid-span: the child ends what its parent began, then runs spans of its own; so does
 * the parent. Prints both ids.
 */
#include <tailscope.h>

#include <stdio.h>
#include <sys/wait.h>

#include "work.h"

static void run_spans(const char *name, int count)
{
	for (int i = 0; i < count; i++) {
		ts_span span;

		ts_span_begin(&span, name);
		spin(10000);
		ts_span_end_id(&span, i);
	}
}

int main(void)
{
	ts_span outer, inner;
	int status;
	pid_t child;

	ts_span_begin(&outer, "outer");
	ts_span_begin(&inner, "inner");
	child = fork();
	if (child < 0)
		return 3;
	if (child == 0) {
		ts_span_end(&inner);
		run_spans("child", 1000);
		ts_span_end(&outer);
		_exit(0);
	}
	ts_span_end(&inner);
	if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status)) {
		fprintf(stderr, "forking: the child ended with status %#x\n", (unsigned)status);
		return 1;
	}
	ts_span_end(&outer);
	run_spans("parent", 1000);
	printf("{\"parent\": %d, \"child\": %d}\n", getpid(), child);
	return 0;
}
