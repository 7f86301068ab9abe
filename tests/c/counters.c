// SPDX-License-Identifier: Apache-2.0
/*
 * Hardware counters on made input: perf's page as the kernel would keep it, and on x86-64 a CPU
 * whose counters this program plays itself. Where user space may not read counters, rdpmc faults; the
 * handler takes the instruction for done, with the register that the test has made. So the whole
 * way is run, from the page to the row, but for the hardware.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <tailscope.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static ts_u64 state = 88172645463325252ull;

static ts_u64 any(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static void check(int held, const char *what, int line)
{
	if (held)
		return;
	fprintf(stderr, "counters.c:%d: %s\n", line, what);
	exit(1);
}
#define CHECK(what) check(what, #what, __LINE__)

/* A register that wraps, loaded with anything, loses nothing until half of its range is over. */
static void registers_are_signed(void)
{
	CHECK(ts__extended(0xfffffffffff6, ts__unused(48)) == (ts_u64)-10);
	CHECK(ts__extended(0x7fffffffffff, ts__unused(48)) == 0x7fffffffffff);
	CHECK(ts__extended(~0ull, ts__unused(64)) == ~0ull);
	for (int i = 0; i < 100000; i++) {
		unsigned width = 2 + (unsigned)(any() % 63);
		ts_u64 mask = ~0ull >> (64 - width), loaded = any() & mask, counted = any();
		ts_u64 offset = counted - ts__extended(loaded, ts__unused(width));
		ts_u64 room = (mask >> 1) - ts__extended(loaded, ts__unused(width));
		ts_u64 events = room ? any() % room : 0;

		CHECK(offset + ts__extended((loaded + events) & mask, ts__unused(width)) ==
		      counted + events);
	}
}

static void shares_scale(void)
{
	for (int i = 0; i < 100000; i++) {
		ts_u64 on = 1 + any() % 1000000, off = any() % 1000000, rate = 1 + any() % 100;
		ts_u64 first = any(), own = any() % 50, share, found;
		struct ts__counted begin = {{first}, 7, 3, 0, 0, 1, 0};
		struct ts__counted end = {
		    {first + own + rate * on}, 7 + on + off, 3 + on, 0, 2, 1, 0};

		share = ts__share_of(&begin, 0, &end, 0);
		CHECK((share == 0) == (off > on));
		CHECK(off || share == 1ull << 32);
		if (!share)
			continue;
		found = ts__scaled(ts__counted_of(begin.value[0], end.value[0], own), share);
		/* The share has 32 bits. */
		CHECK(found >= rate * (on + off) && found <= rate * (on + off) + rate + 1);
	}
	CHECK(ts__counted_of(5, 9, 10) == 0);	  /* less than what reading costs */
	CHECK(ts__counted_of(~0ull, 9, 0) == 10); /* the total wrapped */
}

/* The stretch on the CPU that is still going on is told by the clock. */
static void time_since_the_last_switch_counts(void)
{
	struct perf_event_mmap_page page;
	struct ts__counted begin = {{0}, 1000, 1000, (ts_u64)-100000, 0, 1, 0};
	struct ts__counted end = {{0}, 5000, 2000, (ts_u64)-300000, 0, 1, 0};

	memset(&page, 0, sizeof(page));
	page.time_shift = 10;
	page.time_mult = 512; /* two cycles a ns */
	CHECK(ts__page_ns(&page, 200000) == 100000);
	CHECK(ts__page_ns(&page, 1ull << 60) == 1ull << 59);
	page.cap_user_time_short = 1;
	page.time_cycles = 0x1fffffff0;
	page.time_mask = 0xffffffff;
	CHECK(ts__page_ns(&page, 0x10) == (0x200000010ull >> 1));
	page.cap_user_time_short = 0;
	/* From 100,000 to 310,000 ns: wanted for 210,000 + 4,000 − 200,000, and 3,000 of these off. */
	CHECK(ts__share_of(&begin, 100000, &end, 310000) == (11000ull << 32) / 14000);
}

/* Where perf maps a page of one counter. */
union mapped {
	struct perf_event_mmap_page page;
	char space[4096];
};

#ifdef __x86_64__
static ts_u64 registers[8];
static volatile int reads;
static struct perf_event_mmap_page *volatile moved; /* as the kernel would, at the next reading */

static void play_the_cpu(int signal, siginfo_t *info, void *context)
{
	greg_t *saved = ((ucontext_t *)context)->uc_mcontext.gregs;
	const unsigned char *at = (const unsigned char *)saved[REG_RIP];
	ts_u64 value = registers[saved[REG_RCX] & 7];

	(void)signal;
	(void)info;
	if (at[0] != 0x0f || at[1] != 0x33)
		_exit(9); /* not rdpmc: a fault of the program's own */
	saved[REG_RAX] = (greg_t)(value & 0xffffffff);
	saved[REG_RDX] = (greg_t)(value >> 32);
	saved[REG_RIP] += 2;
	reads++;
	if (moved) {
		moved->lock += 2;
		moved->offset += 5;
		moved = NULL;
	}
}

/* Counters of one group on these pages, whose registers are about to overflow. */
static void begin_counting(struct ts__counters *c, union mapped *pages, unsigned count)
{
	memset(c, 0, sizeof(*c));
	c->pages = pages[0].space;
	c->page_bytes = sizeof(pages[0]);
	c->count = count;
	c->turn = 2;
	c->unused = ts__unused(48);
	c->head.group = 7;
	c->head.known = (ts_u16)((1u << count) - 1);
	c->own[0] = 11;
	for (unsigned i = 0; i < count; i++) {
		pages[i].page.index = i + 1;
		registers[i] = 0xfffffffffff0;
		pages[i].page.offset = 1000;
	}
}

static void a_row_has_what_was_counted(void)
{
	static union mapped pages[3];
	struct sigaction play;
	struct ts__counters c;
	struct ts__counted begin, end;
	struct ts_counts head;
	ts_u64 room[32];
	ts_u8 *place = (ts_u8 *)room;
	ts_u64 values[2];
	ts_u32 length;

	memset(&play, 0, sizeof(play));
	play.sa_sigaction = play_the_cpu;
	play.sa_flags = SA_SIGINFO;
	sigaction(SIGSEGV, &play, NULL);
	begin_counting(&c, pages, COUNT(pages));
	ts__read_counters(&c, &begin, NULL);
	begin.turn = c.turn;
	CHECK(begin.known == 7 && begin.value[0] == 1000 - 16 && reads == 3);
	registers[0] = (registers[0] + 511) & 0xffffffffffff;
	registers[2] = (registers[2] + 300) & 0xffffffffffff;
	pages[1].page.index = 0; /* off the CPU */
	ts__read_counters(&c, &end, &begin);
	CHECK(end.known == 5 && reads == 5 && !c.reading);
	length = ts__write_counts(&c, &begin, 0, &end, 0, place);
	CHECK(length == sizeof(head) + sizeof(values));
	memcpy(&head, place, sizeof(head));
	memcpy(values, place + sizeof(head), sizeof(values));
	CHECK(head.group == 7 && head.known == 5);
	CHECK(values[0] == 500 && values[1] == 300);

	pages[0].page.lock += 2; /* off for a while, and nobody tells the time: unknown */
	pages[0].page.time_enabled = 10;
	ts__read_counters(&c, &end, &begin);
	CHECK(ts__write_counts(&c, &begin, 0, &end, 0, place) == sizeof(head));

	/* All are on at both ends, and stayed. */
	pages[0].page.lock -= 2;
	pages[0].page.time_enabled = 0;
	pages[1].page.index = 2;
	ts__read_counters(&c, &end, &begin);
	CHECK(end.known == 7);
	length = ts__write_counts(&c, &begin, 0, &end, 0, place);
	memcpy(&head, place, sizeof(head));
	CHECK(length == sizeof(head) + 3 * sizeof(ts_u64));
	CHECK(head.group == 7 && head.known == 7);
	memcpy(values, place + sizeof(head), sizeof(values));
	CHECK(values[0] == 500 && values[1] == 0);

	/* It was switched out and in again, all together. */
	pages[0].page.lock += 2;
	pages[0].page.time_enabled = pages[0].page.time_running = 10;
	ts__read_counters(&c, &end, &begin);
	CHECK(ts__write_counts(&c, &begin, 0, &end, 0, place) == length);
	CHECK(!memcmp(values, place + sizeof(head), sizeof(values)));

	/* A register that overflows while others are read has all read again. */
	moved = &pages[1].page;
	ts__read_counters(&c, &end, &begin);
	CHECK(!moved && end.value[1] == begin.value[1] + 5 && (end.known & 7) == 7);

	c.turn = 4; /* a turn that began in the span: of other events, or of these from 0 on */
	CHECK(ts__write_counts(&c, &begin, 0, &end, 0, place) == sizeof(head));
	memcpy(&head, place, sizeof(head));
	CHECK(head.known == 0);
}
#endif

static volatile int others; /* faults that were no reading of ours */

static void take_others(int signal)
{
	(void)signal;
	others++;
}

/* Where user space may not read counters (or no longer may), a reading faults for real. */
static void a_reading_that_faults_counts_nothing(void)
{
	static union mapped made;
#ifdef __x86_64__
	const int fault = SIGSEGV;
#else
	const int fault = SIGILL;
#endif
	struct ts__counters *c = &ts__thread[0].counters;
	struct ts__counted begin, end;
	struct sigaction mine, now;
	struct ts_counts head;
	ts_u64 room[32];

	memset(&mine, 0, sizeof(mine));
	mine.sa_handler = take_others;
	sigaction(fault, &mine, NULL);
	ts__set_guard();
	memset(c, 0, sizeof(*c));
	made.page.index = 1;
	made.page.offset = 1000;
	c->pages = made.space;
	c->page_bytes = sizeof(made);
	c->count = c->head.known = 1;
	c->turn = 2;
	ts__read_counters(c, &begin, NULL);
	begin.turn = c->turn;
	CHECK(c->count == 0 && c->turn == 2 && !c->reading && others == 0);
	ts__read_counters(c, &end, &begin);
	CHECK(end.known == 0);
	CHECK(ts__write_counts(c, &begin, 0, &end, 0, (ts_u8 *)room) == sizeof(head));
	memcpy(&head, room, sizeof(head));
	CHECK(head.known == 0);
	raise(fault); /* every other one goes where it went */
	CHECK(others == 1);
	ts__lift_guard();
	CHECK(!sigaction(fault, NULL, &now) && now.sa_handler == take_others);
}

int main(void)
{
	registers_are_signed();
	shares_scale();
	time_since_the_last_switch_counts();
#ifdef __x86_64__
	a_row_has_what_was_counted();
#endif
	a_reading_that_faults_counts_nothing();
	return 0;
}
