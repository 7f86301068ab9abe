/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The frames of HTTP/2 (RFC 9113, sections 4 and 6) in what a watched server receives and sends, for
 * the source of spans `request`: on which streams requests begin, go on and end.
 *
 * A connection is followed from its preface on. On one that was open before, a receive or send is
 * looked at whose bytes are whole frames, among them one of headers. Of a frame only its header is
 * read, and of a request's headers the bytes that the recorder reads the name from.
 */
#ifndef TAILSCOPE_FRAMES_H
#define TAILSCOPE_FRAMES_H

#include "first_bytes.h"
#include "frame_types.h"
#include "slice_ring.h"

#define FRAME_HEADER 9
#define PREFACE 24	 /* "PRI * HTTP/2.0" and more, before a client's first frame */
#define FRAME_STEPS 2048 /* a frame takes one, but headers some more */
#define FRAMES_LOOKS 64	 /* receives or sends of a connection in which frames are looked for */
#define FRAMES_PROVE 2	 /* this number of frames in turn is no coincidence */

/* A call that has received or sent on such a connection. Its scalars lie in the thread's walk: of
 * what is read back from a map the verifier knows nothing, so a loop over them comes to an end. */
struct call {
	struct frames *in;
	struct slice_thread *s;
	const struct ts_meter *m;
};

/* Where the bytes of the present call begin. */
static __noinline int find_bytes(struct walk *w, __u32 length)
{
	struct places p;

	if (!w)
		return 0;
	find_places(&p);
	if (w->given) {
		p.at = w->given;
		p.vector = p.pieces = 0;
	}
	w->vector = p.vector;
	w->pieces = p.pieces;
	w->at = p.at;
	w->piece = p.vector ? 0 : length;
	w->rest = length;
	w->last = w->broken = 0;
	return 0;
}

static __always_inline long next_piece(struct walk *w)
{
	struct piece next;

	if (!w->pieces || bpf_probe_read_user(&next, sizeof(next), (void *)w->vector))
		return 1;
	w->vector += sizeof(next);
	w->pieces--;
	w->at = next.at;
	w->piece = next.length < w->rest ? next.length : w->rest;
	return 0;
}

static __always_inline void pass(struct walk *w, __u64 bytes)
{
	if (w->at)
		w->at += bytes;
	w->piece -= bytes;
	w->rest -= bytes;
}

/* Reports the frame, with the next bytes of its headers. */
__noinline int tell_frame(struct frames *in, struct slice_thread *s, const struct ts_meter *m)
{
	struct sl_entry e = {};
	struct walk *w;
	__u32 length;

	if (!in || !s || !m)
		return 0;
	w = &s->walk;
	e.at = w->now;
	e.since = w->ready;
	e.socket = w->socket;
	e.length = w->last;
	e.kind = w->kind;
	length = in->before ? 0 : in->block;
	length = length < w->piece ? length : w->piece;
	length = length < SL_HEADERS_PART ? length : SL_HEADERS_PART;
	if (length) {
		e.extra = copy_text(&s->text, w->at, length);
		if (!e.extra)
			in->cut = 1;
		*(__u32 *)(s->text.bytes + SL_HEADERS_PART) = ++in->told;
		pass(w, length);
		in->left -= length;
		in->block -= length;
	}
	e.detail = w->role | w->detail;
	if (in->block)
		e.detail |= SL_MORE;
	else if (in->cut)
		e.detail |= SL_CUT;
	if (unlikely(in->lost))
		e.detail |= SL_AFTER_LOSS;
	in->lost = write_entry(&e, s, m, e.extra ? &s->text : NULL);
	return 0;
}

/* How many bytes of headers the recorder gets. */
static __always_inline void measure_block(struct frames *in, __u32 length, __u8 flags)
{
	__u32 before = (flags & FRAME_PADDED ? 1 : 0) + (flags & FRAME_PRIORITIZED ? 5 : 0);

	in->cut = !(flags & FRAME_END_HEADERS) || length < before;
	if (length <= before)
		return;
	in->before = before;
	in->padded = flags & FRAME_PADDED;
	in->block = length - before;
	if (in->block > SL_HEADERS_MOST) {
		in->block = SL_HEADERS_MOST;
		in->cut = 1;
	}
}

/* The bytes before the headers have come, or some of them. */
static __always_inline void pass_before(struct walk *w, struct frames *in)
{
	__u32 bytes = in->before < w->piece ? in->before : w->piece;
	__u8 padding = 0;

	if (in->padded) {
		if (bpf_probe_read_user(&padding, 1, (void *)w->at))
			in->cut = 1;
		in->padded = 0;
		if (in->block > padding)
			in->block -= padding;
		else
			in->cut = in->block = 1;
	}
	in->before -= bytes;
	in->left -= bytes;
	pass(w, bytes);
}

/* When the byte before the last `rest` bytes of this receive came in. `since`: when the first that was
 * not received yet did. */
static __always_inline __u64 arrived(const struct frames *in, __u32 rest, __u64 since)
{
	__u32 at = in->end - rest - 1;
	__u64 first = 0;
	bool all = true;

#pragma unroll
	for (int i = 0; i < ARRIVALS; i++) {
		__u64 then = in->arrived[i];

		if (!then || (__s32)(in->until[i] - at) <= 0)
			all = false;
		else if (!first || then < first)
			first = then;
	}
	return first > since && !all ? first : since; /* all: the right one may be overwritten */
}

/* The header of a frame is complete. */
static __always_inline long begin_frame(struct walk *w, const struct call *c)
{
	struct frames *in = c->in;
	const __u8 *h = in->part;
	__u32 length = (__u32)h[0] << 16 | h[1] << 8 | h[2];
	__u32 stream = (__u32)(h[5] & 0x7f) << 24 | h[6] << 16 | h[7] << 8 | h[8];
	__u8 type = h[3], flags = h[4], ends;

	in->have = 0;
	if (!is_frame(type, length, stream) || (!w->kind && !is_usual(type, flags, length))) {
		w->broken = 1;
		return 1;
	}
	in->seen++;
	in->left = length;
	in->stream = type == FRAME_DATA ? stream : 0;
	if (type == FRAME_HEADERS)
		in->has_begun = 1;
	if (!w->kind || (type != FRAME_DATA && type != FRAME_HEADERS && type != FRAME_RESET))
		return 0;
	ends = type != FRAME_RESET && flags & FRAME_END_STREAM ? SL_ENDS : 0;
	if (type == FRAME_DATA && !ends && (stream == w->last || !length))
		return 0;
	w->last = stream;
	w->detail = ends;
	if (w->kind == SL_STREAM_RECEIVE && in->arrivals)
		w->ready = arrived(in, w->rest, w->since);
	in->block = in->before = in->cut = 0;
	if (type == FRAME_RESET)
		w->detail |= SL_RESETS;
	if (type == FRAME_HEADERS) {
		w->detail |= SL_BEGINS;
		if (config.headers && w->role == SL_SERVER && w->kind == SL_STREAM_RECEIVE)
			measure_block(in, length, flags);
	}
	tell_frame(in, c->s, c->m);
	return 0;
}

static long step(__u32 number, const struct call *c)
{
	struct walk *w = &c->s->walk;
	struct frames *in = c->in;
	__u64 bytes;

	if (!w->rest)
		return 1;
	if (!w->piece)
		return next_piece(w);
	if (in->block && in->left) {
		if (in->before) {
			if (!w->at)
				return 1;
			pass_before(w, in);
			return 0;
		}
		w->kind = SL_HEADERS;
		w->detail = 0;
		tell_frame(in, c->s, c->m);
		w->kind = SL_STREAM_RECEIVE;
		return 0;
	}
	if (in->left) {
		bytes = in->left < w->piece ? in->left : w->piece;
		pass(w, bytes);
		in->left -= bytes;
		if (in->left || !w->piece)
			return 0;
	}
	if (!w->at)
		return 1;
	if (!in->have && w->piece >= FRAME_HEADER) {
		if (bpf_probe_read_user(in->part, FRAME_HEADER, (void *)w->at))
			return 1;
		pass(w, FRAME_HEADER);
		return begin_frame(w, c);
	}
	if (bpf_probe_read_user(&in->part[in->have & 15], 1, (void *)w->at))
		return 1;
	pass(w, 1);
	in->have++;
	return in->have < FRAME_HEADER ? 0 : begin_frame(w, c);
}

static __always_inline void expect_frame(struct frames *in)
{
	in->left = in->stream = in->block = 0;
	in->have = in->before = in->cut = in->seen = 0;
}

/* Whether a client's preface begins here. Not inlined: its stack is not to lie under that of `step`. */
static __noinline int is_preface(const struct walk *w)
{
	__u64 first[PREFACE / 8] = {};

	if (!w || w->piece < PREFACE || bpf_probe_read_user(first, PREFACE, (void *)w->at))
		return false;
	return first[0] == 0x5448202a20495250 /* "PRI * HT" */ &&
	       first[1] == 0x0a0d302e322f5054 /* "TP/2.0\r\n" */ &&
	       first[2] == 0x0a0d0a0d4d530a0d /* "\r\nSM\r\n\r\n" */;
}

/* Whether a frame begins where the bytes of this call do, that has received or sent them. They are a
 * client's preface, or whole frames; or two frames came before them, where a program receives headers
 * and payloads by turns. `begun`: one of them has to be of headers. */
__noinline int look_for_frames(struct frames *in, struct slice_thread *s, const struct ts_meter *m,
			       __u32 length, bool begun)
{
	struct call c = {.in = in, .s = s, .m = m};
	bool boundary, found;
	struct walk *w;

	if (!in || !s || !m || in->looked >= FRAMES_LOOKS)
		return 0;
	in->looked++;
	w = &s->walk;
	find_bytes(w, length);
	if (!w->piece && next_piece(w))
		return 0;
	if (is_preface(w)) {
		expect_frame(in);
		in->left = PREFACE;
		return 1;
	}
	boundary = !in->left && !in->have;
	found = boundary && in->seen >= FRAMES_PROVE && in->has_begun;
	if (!found) {
		if (!in->seen)
			in->has_begun = !begun;
		w->kind = 0;
		bpf_loop(FRAME_STEPS, step, &c, 0);
		if (w->broken || w->rest || !in->seen) {
			expect_frame(in);
			return 0;
		}
		found = boundary && !in->left && !in->have && in->has_begun;
	}
	if (found)
		expect_frame(in);
	return found;
}

/* Reports the frames in the bytes that this call has received or sent; `model` describes the call. */
__noinline int tell_frames(struct frames *in, struct slice_thread *s, const struct ts_meter *m,
			   const struct sl_entry *model)
{
	struct call c = {.in = in, .s = s, .m = m};
	bool was_followed;
	struct walk *w;

	if (!in || !s || !m || !model)
		return 0;
	w = &s->walk;
	was_followed = in->followed;
	if (!in->followed) {
		in->looked = 0;
		in->followed = look_for_frames(in, s, m, model->length, false);
	}
	w->now = model->at;
	w->since = w->ready = model->since;
	w->socket = model->socket;
	w->role = model->detail;
	w->kind = model->kind;
	w->detail = 0;
	if (in->followed) {
		find_bytes(w, model->length);
		if (in->left && in->stream) { /* it begins with more of a stream's data */
			w->last = in->stream;
			tell_frame(in, s, m);
		}
		bpf_loop(FRAME_STEPS, step, &c, 0);
		if (!w->broken && !w->rest)
			return 0;
		in->followed = 0;
		was_followed = true;
	}
	if (!was_followed && w->kind == SL_STREAM_SEND)
		return 0; /* it may just have been seen for the first time */
	w->detail = w->kind == SL_STREAM_RECEIVE && w->role == SL_SERVER ? SL_BEGINS : 0;
	w->kind = SL_UNFRAMED;
	w->last = in->block = in->cut = 0;
	tell_frame(in, s, m);
	return 0;
}

#endif
