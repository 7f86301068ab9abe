// SPDX-License-Identifier: Apache-2.0
/* A shared library with spans of its own, for a program that has some too. */
#include <tailscope.h>

#include "work.h"

void run_module(int64_t id);

void run_module(int64_t id)
{
	ts_span span;

	ts_span_begin(&span, "module");
	spin(5000);
	ts_span_end_id(&span, id);
}
