// SPDX-License-Identifier: Apache-2.0
/*
 * Without a recorder, begin and end touch nothing: the span stays as it was but for the word that
 * says "not metered", no system call is made, no file opened, no signal handler or atfork handler
 * installed. Proven by running them under seccomp's strict mode, which kills for any call but
 * read, write and exit. C11 and C++17; a second file of the program includes the header too.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <tailscope.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <linux/seccomp.h>

void second_file_span(ts_span *span, const char *name);

static int run_spans(void)
{
	ts_span outer, inner;
	unsigned char before[sizeof(ts_span)];

	memset(&outer, 0xa5, sizeof(outer));
	memset(before, 0xa5, sizeof(before));
	errno = ENOTTY;
	for (int i = 0; i < 1000; i++) {
		ts_span_begin(&outer, "outer");
		second_file_span(&inner, "inner");
		ts_span_end(&inner);
		ts_span_end_id(&outer, i);
	}
	/* An end without its begin's recorder, and a second end, are nothing. */
	ts_span_end(&outer);
	if (errno != ENOTTY)
		return 10;
#ifdef TAILSCOPE_DISABLED
	return memcmp(&outer, before, sizeof(outer)) ? 11 : 0;
#else
	if (outer.metered)
		return 12;
	/* Everything behind the first word is untouched. */
	return memcmp((unsigned char *)&outer + sizeof(outer.metered),
		      before + sizeof(outer.metered), sizeof(outer) - sizeof(outer.metered))
		   ? 13
		   : 0;
#endif
}

int main(void)
{
	int status;
	pid_t child = fork();

	if (child < 0)
		return 3;
	if (child == 0) {
		if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT))
			syscall(SYS_exit, 20);
		syscall(SYS_exit, run_spans());
	}
	if (waitpid(child, &status, 0) != child)
		return 4;
	if (WIFSIGNALED(status)) {
		fprintf(stderr, "begin or end made a system call: signal %d\n", WTERMSIG(status));
		return 5;
	}
	if (WEXITSTATUS(status)) {
		fprintf(stderr, "check %d failed\n", WEXITSTATUS(status));
		return 6;
	}
	return run_spans();
}
