/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Names that arguments of probes give: each distinct one gets a number, which fits into a row.
 * There are at most 1,023 numbers. Later names get TEXT_OTHER, and `lost.names` counts them.
 */
#ifndef TAILSCOPE_TEXTS_H
#define TAILSCOPE_TEXTS_H

#include "meters.h"

struct text {
	char bytes[TEXT_BYTES];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_TEXTS);
	__type(key, struct text);
	__type(value, __u32);
} text_numbers SEC(".maps");

/* The same the other way round, for the recorder. A text is here before its number is in a row. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_TEXTS);
	__type(key, __u32);
	__type(value, struct text);
} texts SEC(".maps");

SEC(".bss.texts") __u32 texts_used = 0;

/* The number of a string of the program; 0 if it can't be read, TEXT_OTHER if there are too many. */
static __always_inline __u16 number_of(const void *string)
{
	struct text text = {};
	__u32 *known, number;

	if (bpf_probe_read_user_str(&text, sizeof(text), string) <= 1) {
		__sync_fetch_and_add(&lost.names, 1);
		return 0;
	}
	known = bpf_map_lookup_elem(&text_numbers, &text);
	if (known)
		return *known;
	/* Looked at first, so that it exceeds its bound by no more than the CPUs there are. */
	number = texts_used < MAX_TEXTS - 1 ? __sync_fetch_and_add(&texts_used, 1) + 1 : MAX_TEXTS;
	if (number >= MAX_TEXTS) {
		__sync_fetch_and_add(&lost.names, 1);
		return TEXT_OTHER;
	}
	bpf_map_update_elem(&texts, &number, &text, BPF_ANY);
	/* Where another CPU was first, two numbers stand for one text, which harms nothing. */
	bpf_map_update_elem(&text_numbers, &text, &number, BPF_NOEXIST);
	return number;
}

#endif
