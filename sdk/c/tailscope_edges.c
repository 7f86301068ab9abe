/* SPDX-License-Identifier: MIT */
/*
 * Where a program is: its function and loop, as a channel for `tailscope observe`.
 *
 * The compiler puts a call at every edge between pieces of code that run in one go, loops' back edges
 * among them; the calls below write the address that they came from. Compile the program's own
 * sources with one of these, link this file with them, compiled without it:
 *
 *	clang -fsanitize-coverage=trace-pc-guard ...	C and C++
 *	gcc -fsanitize-coverage=trace-pc ...
 *
 *	tailscope observe --signal channel:PID:served --tag channel:PID:edge
 *
 * Each thread has a channel of its own: `edge` for the first, `edge.TID` for the others. What the calls
 * cost the program is a call, a load and a store an edge, observed or not.
 */
#include <tailscope_channel.h>

#include <stdio.h>

#if defined(__has_attribute)
#if __has_attribute(no_sanitize_coverage)
#define TS__NO_EDGES __attribute__((no_sanitize_coverage))
#elif defined(__clang__)
#define TS__NO_EDGES __attribute__((no_sanitize("coverage")))
#endif
#endif
#ifndef TS__NO_EDGES
#define TS__NO_EDGES
#endif

/* In the program itself, not in a library that is loaded later: found by one instruction. */
static __thread ts_channel *ts__edge __attribute__((tls_model("initial-exec")));

TS__NO_EDGES __attribute__((noinline, cold)) static ts_channel *ts__edge_open(void)
{
	static ts_channel nowhere; /* opening may itself come here again */
	pid_t thread = (pid_t)syscall(SYS_gettid);
	char name[TS_CHANNEL_NAME] = "edge";

	ts__edge = &nowhere;
	if (thread != getpid())
		snprintf(name, sizeof(name), "edge.%d", (int)thread);
	ts__edge = ts_channel_open(name, TS_CODE);
	return ts__edge;
}

TS__NO_EDGES static inline void ts__edge_at(void *address)
{
	ts_channel *channel = ts__edge;

	if (__builtin_expect(!channel, 0))
		channel = ts__edge_open();
	ts_channel_set(channel, (ts_u64)(uintptr_t)address);
}

void __sanitizer_cov_trace_pc_guard_init(uint32_t *first, uint32_t *end);
void __sanitizer_cov_trace_pc_guard(uint32_t *guard);
void __sanitizer_cov_trace_pc(void);

/* Guards are for those who number edges or switch them off: an address says more. */
TS__NO_EDGES void __sanitizer_cov_trace_pc_guard_init(uint32_t *first, uint32_t *end)
{
	(void)first;
	(void)end;
}

TS__NO_EDGES void __sanitizer_cov_trace_pc_guard(uint32_t *guard)
{
	(void)guard;
	ts__edge_at(__builtin_return_address(0));
}

/* gcc's. */
TS__NO_EDGES void __sanitizer_cov_trace_pc(void)
{
	ts__edge_at(__builtin_return_address(0));
}
