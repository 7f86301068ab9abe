/* SPDX-License-Identifier: MIT */
/*
 * Channels: numbers of this program that `tailscope observe` reads while it runs, at cycles apart.
 *
 *	#include <tailscope_channel.h>
 *
 *	TS_CHANNEL(served, TS_COUNTER);		a file-wide name, made before main
 *	TS_CHANNEL(phase, TS_TAG);
 *	...
 *	ts_channel_set(phase, 2);
 *	... the work ...
 *	ts_channel_add(served, 1);
 *
 *	tailscope observe --signal channel:PID:served --tag channel:PID:phase
 *
 * A write is one load and one store to memory of this process, whether somebody observes or not.
 * A channel belongs to one thread at a time: add and set are no atomic operations. A thread makes
 * channels of its own with ts_channel_open; those of one name are one channel.
 *
 * Where there is no room (TS_CHANNEL_SLOTS) or no shared memory, writes go to memory that nobody
 * reads. A child made by fork() gets copies of its own.
 */
#ifndef TAILSCOPE_CHANNEL_H
#define TAILSCOPE_CHANNEL_H

#if defined(__linux__) && !defined(_DEFAULT_SOURCE) && !defined(_GNU_SOURCE)
#define _DEFAULT_SOURCE /* syscall and ftruncate, under -std=c11 */
#endif
#include "tailscope_abi.h"

#if !defined(__linux__) || defined(TAILSCOPE_DISABLED)

typedef struct ts_channel ts_channel;
static inline ts_channel *ts_channel_open(const char *name, enum ts_channel_kind kind)
{
	(void)name;
	(void)kind;
	return (ts_channel *)0;
}
static inline void ts_channel_set(ts_channel *channel, ts_u64 value)
{
	(void)channel;
	(void)value;
}
static inline void ts_channel_add(ts_channel *channel, ts_u64 much)
{
	(void)channel;
	(void)much;
}
#define TS_CHANNEL(name, kind) __attribute__((unused)) static ts_channel *name

#else

#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#ifndef MAP_ANONYMOUS
#error "include tailscope_channel.h before other headers, or compile with -D_DEFAULT_SOURCE"
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ts_channel ts_channel;

/* One copy a program or shared library, however many files include this. */
#define TS__ONE __attribute__((weak, visibility("hidden")))

struct ts__channel_place {
	pthread_mutex_t lock;
	struct ts_channels *channels; /* NULL: not made yet, or impossible */
	int tried;
};
TS__ONE struct ts__channel_place ts__channel_place = {PTHREAD_MUTEX_INITIALIZER, NULL, 0};

/* Takes what finds no room. */
TS__ONE ts_channel ts__channel_nowhere = {0, 0, 0, {0}};

/* The file in memory, sealed so that an observer that maps it can't be struck by its shrinking.
 * `at`: where to map it, over what is there; NULL: anywhere. It stays open: that is how an
 * observer without the powers of an administrator finds it. */
TS__ONE struct ts_channels *ts__channel_file(void *at)
{
	const int seal = 1033, shrink_and_seal = 0x2 | 0x1; /* F_ADD_SEALS: not in all headers */
	int file = (int)syscall(SYS_memfd_create, TS_CHANNEL_FILE, 3u); /* CLOEXEC, ALLOW_SEALING */
	void *made = MAP_FAILED;

	if (file < 0)
		return NULL;
	if (!ftruncate(file, sizeof(struct ts_channels)) && !fcntl(file, seal, shrink_and_seal))
		made = mmap(at, sizeof(struct ts_channels), PROT_READ | PROT_WRITE,
			    MAP_SHARED | (at ? MAP_FIXED : 0), file, 0);
	if (made == MAP_FAILED) {
		close(file);
		return NULL;
	}
	return (struct ts_channels *)made;
}

/* In a child, before any other code of it runs: a copy in place of what it shares with its parent. */
TS__ONE void ts__channels_after_fork(void)
{
	struct ts_channels *channels = ts__channel_place.channels;
	struct ts_channels copy;

	if (!channels)
		return;
	memcpy(&copy, channels, sizeof(copy));
	if (ts__channel_file(channels) ||
	    mmap(channels, sizeof(copy), PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED)
		memcpy(channels, &copy, sizeof(copy));
}

TS__ONE struct ts_channels *ts__channels(void)
{
	struct ts__channel_place *p = &ts__channel_place;

	pthread_mutex_lock(&p->lock);
	if (!p->tried) {
		p->tried = 1;
		p->channels = ts__channel_file(NULL);
		if (p->channels) {
			pthread_atfork(NULL, NULL, ts__channels_after_fork);
			__atomic_store_n(&p->channels->magic, TS_CHANNEL_MAGIC, __ATOMIC_RELEASE);
		}
	}
	pthread_mutex_unlock(&p->lock);
	return p->channels;
}

/* The channel of that name, made if there is none. Never NULL. Names are cut to 47 bytes. */
TS__ONE ts_channel *ts_channel_open(const char *name, enum ts_channel_kind kind)
{
	struct ts__channel_place *p = &ts__channel_place;
	struct ts_channels *channels = ts__channels();
	size_t length = strlen(name);
	ts_channel *found = &ts__channel_nowhere;
	ts_u32 i;

	if (!channels)
		return found;
	if (length >= TS_CHANNEL_NAME)
		length = TS_CHANNEL_NAME - 1;
	pthread_mutex_lock(&p->lock);
	for (i = 0; i < TS_CHANNEL_SLOTS; i++) {
		ts_channel *c = &channels->slot[i];

		if (c->kind == TS_CHANNEL_FREE) {
			memcpy(c->name, name, length);
			channels->taken = i + 1;
			__atomic_store_n(&c->kind, (ts_u32)kind, __ATOMIC_RELEASE);
			found = c;
			break;
		}
		if (!strncmp(c->name, name, length) && !c->name[length]) {
			found = c;
			break;
		}
	}
	pthread_mutex_unlock(&p->lock);
	return found;
}

static inline void ts_channel_set(ts_channel *channel, ts_u64 value)
{
	__atomic_store_n(&channel->value, value, __ATOMIC_RELAXED);
}

static inline void ts_channel_add(ts_channel *channel, ts_u64 much)
{
	ts_u64 sum = __atomic_load_n(&channel->value, __ATOMIC_RELAXED) + much;

	__atomic_store_n(&channel->value, sum, __ATOMIC_RELAXED);
}

/* A channel by the name of a variable, opened before main. */
#define TS_CHANNEL(name, kind)                                            \
	static ts_channel *name;                                          \
	__attribute__((constructor)) static void ts__channel_##name(void) \
	{                                                                 \
		name = ts_channel_open(#name, kind);                      \
	}                                                                 \
	struct ts_channel /* declared again, for the semicolon */

#undef TS__ONE
#ifdef __cplusplus
}
#endif

#endif
#endif
