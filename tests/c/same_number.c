// SPDX-License-Identifier: Apache-2.0
/*
 * Two processes, one after the other, that have the same id: same_number SPANS. Each makes so many spans.
 * Exits with 77 if the kernel does not let it choose the id.
 */
#include <tailscope.h>

#include <linux/sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

static pid_t run(int spans, pid_t wanted)
{
	struct clone_args args = {.exit_signal = SIGCHLD};
	pid_t pid;

	if (wanted) {
		args.set_tid = (ts_u64)(uintptr_t)&wanted;
		args.set_tid_size = 1;
	}
	pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
	if (pid == 0) {
		while (spans--) {
			ts_span span;

			ts_span_begin(&span, "same");
			ts_span_end(&span);
		}
		_exit(0);
	}
	if (pid > 0)
		waitpid(pid, NULL, 0);
	return pid;
}

int main(int argc, char **argv)
{
	const int spans = argc > 1 ? atoi(argv[1]) : 1000;
	const pid_t first = run(spans, 0);

	if (first < 0 || run(spans, first) != first) {
		perror("clone3");
		return 77;
	}
	return 0;
}
