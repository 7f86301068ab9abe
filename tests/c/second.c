// SPDX-License-Identifier: Apache-2.0
/* The second file of a program that includes the header. */
#include <tailscope.h>

void second_file_span(ts_span *span, const char *name);

void second_file_span(ts_span *span, const char *name)
{
	ts_span_begin(span, name);
}
