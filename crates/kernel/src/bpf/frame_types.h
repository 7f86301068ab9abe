/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The types of frames of HTTP/2, and what a frame may look like (RFC 9113, section 6). */
#ifndef TAILSCOPE_FRAME_TYPES_H
#define TAILSCOPE_FRAME_TYPES_H

#include "types.h"

#define FRAME_USUAL_MOST (1 << 14) /* longer ones want a setting */

enum frame_type {
	FRAME_DATA = 0,
	FRAME_HEADERS = 1,
	FRAME_PRIORITY = 2,
	FRAME_RESET = 3,
	FRAME_SETTINGS = 4,
	FRAME_PUSH = 5,
	FRAME_PING = 6,
	FRAME_GOAWAY = 7,
	FRAME_WINDOW = 8,
	FRAME_CONTINUATION = 9,
};

#define FRAME_END_STREAM 0x01
#define FRAME_END_HEADERS 0x04
#define FRAME_PADDED 0x08
#define FRAME_PRIORITIZED 0x20

/* Whether a frame of which nothing is known yet is such as programs send. */
static __always_inline bool is_usual(__u8 type, __u8 flags, __u32 length)
{
	__u8 known = type == FRAME_HEADERS ? 0x2d : type == FRAME_DATA ? 0x09 : 0x01;

	return type < FRAME_CONTINUATION && !(flags & ~known) && length <= FRAME_USUAL_MOST;
}

/* Whether a frame may look like this. */
static __always_inline bool is_frame(__u8 type, __u32 length, __u32 stream)
{
	switch (type) {
	case FRAME_DATA:
	case FRAME_HEADERS:
	case FRAME_CONTINUATION:
	case FRAME_PUSH:
		return stream;
	case FRAME_RESET:
		return stream && length == 4;
	case FRAME_PRIORITY:
		return stream && length == 5;
	case FRAME_SETTINGS:
		return !stream && length % 6 == 0;
	case FRAME_PING:
		return !stream && length == 8;
	case FRAME_GOAWAY:
		return !stream && length >= 8;
	case FRAME_WINDOW:
		return length == 4;
	default:
		return true;
	}
}

#endif
