/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ten structures of which two threads use one member each, all in one line: five are variables, five
 * are on the heap. `neighbours padded` gives each member a line of its own. It runs until it is ended.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEPT __attribute__((noinline, noclone))
#define LINE 64
/* Accesses in a row. */
#define TURN 20000

enum side { LEFT, RIGHT };

/* What the two threads do with one of a type. */
#define USE(name, type, left, right)                           \
	static void KEPT name(struct type *it, enum side side) \
	{                                                      \
		for (int i = 0; i < TURN; i++) {               \
			if (side == LEFT)                      \
				it->left++;                    \
			else                                   \
				it->right++;                   \
		}                                              \
	}

/* A type, and one whose members have a line each. */
#define PAIR(type, left, right)            \
	struct type {                      \
		volatile long left;        \
		volatile int right;        \
	};                                 \
	struct type##_padded {             \
		volatile long left;        \
		char free[LINE];           \
		volatile int right;        \
	};                                 \
	USE(use_##type, type, left, right) \
	USE(use_padded_##type, type##_padded, left, right)

/* One of a type as a variable, in a line of its own. */
#define VARIABLE(type)                                \
	static _Alignas(LINE) struct type the_##type; \
	static _Alignas(LINE) struct type##_padded padded_##type;

PAIR(orders, placed, shipped)
PAIR(queue, head, tail)
PAIR(stats, hits, misses)
PAIR(account, credit, debit)
PAIR(link, sent, received)
PAIR(stock, bought, sold)
PAIR(cache, fills, evictions)
PAIR(session, opened, closed)
PAIR(disk, reads, writes)
PAIR(pool, taken, given)

VARIABLE(orders)
VARIABLE(queue)
VARIABLE(stats)
VARIABLE(account)
VARIABLE(link)

static bool padded;
static struct stock *stock;
static struct cache *cache;
static struct session *session;
static struct disk *disk;
static struct pool *pool;
static struct stock_padded *padded_stock;
static struct cache_padded *padded_cache;
static struct session_padded *padded_session;
static struct disk_padded *padded_disk;
static struct pool_padded *padded_pool;

static void *made(void)
{
	void *memory = aligned_alloc(LINE, 4 * LINE);

	if (!memory)
		abort();
	return memset(memory, 0, 4 * LINE);
}

static void make(void)
{
	stock = made();
	cache = made();
	session = made();
	disk = made();
	pool = made();
	padded_stock = made();
	padded_cache = made();
	padded_session = made();
	padded_disk = made();
	padded_pool = made();
}

static void *work(void *which)
{
	enum side side = *(enum side *)which;

	pthread_setname_np(pthread_self(), side == LEFT ? "left" : "right");
	for (;;) {
		if (padded) {
			use_padded_orders(&padded_orders, side);
			use_padded_queue(&padded_queue, side);
			use_padded_stats(&padded_stats, side);
			use_padded_account(&padded_account, side);
			use_padded_link(&padded_link, side);
			use_padded_stock(padded_stock, side);
			use_padded_cache(padded_cache, side);
			use_padded_session(padded_session, side);
			use_padded_disk(padded_disk, side);
			use_padded_pool(padded_pool, side);
			continue;
		}
		use_orders(&the_orders, side);
		use_queue(&the_queue, side);
		use_stats(&the_stats, side);
		use_account(&the_account, side);
		use_link(&the_link, side);
		use_stock(stock, side);
		use_cache(cache, side);
		use_session(session, side);
		use_disk(disk, side);
		use_pool(pool, side);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	static enum side sides[] = {LEFT, RIGHT};
	pthread_t left;

	padded = argc > 1 && !strcmp(argv[1], "padded");
	make();
	puts("ready");
	fflush(stdout);
	if (pthread_create(&left, NULL, work, &sides[LEFT]))
		return 1;
	work(&sides[RIGHT]);
}
