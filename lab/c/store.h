/* SPDX-License-Identifier: Apache-2.0 */
/* A hash table of values by key, for several threads: chains under striped locks. */
#ifndef LAB_STORE_H
#define LAB_STORE_H

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define STORE_CHAINS (1u << 16)
#define STORE_STRIPES 64u

struct entry {
	struct entry *next;
	size_t key_length, value_length;
	unsigned long flags;
	char bytes[]; /* the key, then the value */
};

static struct entry *store_chains[STORE_CHAINS];
static pthread_mutex_t store_locks[STORE_STRIPES];

static inline void store_prepare(void)
{
	for (unsigned i = 0; i < STORE_STRIPES; i++)
		pthread_mutex_init(&store_locks[i], NULL);
}

/* FNV-1a. */
static inline uint32_t store_chain(const char *key, size_t length)
{
	uint64_t hash = 0xcbf29ce484222325u;

	for (size_t i = 0; i < length; i++)
		hash = (hash ^ (uint8_t)key[i]) * 0x100000001b3u;
	return (uint32_t)(hash ^ hash >> 32) % STORE_CHAINS;
}

/* The link that leads to the key's entry, or to NULL at the end of its chain. */
static inline struct entry **store_find(uint32_t chain, const char *key, size_t length)
{
	struct entry **link = &store_chains[chain];

	while (*link && ((*link)->key_length != length || memcmp((*link)->bytes, key, length)))
		link = &(*link)->next;
	return link;
}

/* Copies the value if it fits into `room`. Returns its length, or -1 if there is none. */
static inline long store_get(const char *key, size_t length, unsigned long *flags, char *value,
			     size_t room)
{
	uint32_t chain = store_chain(key, length);
	pthread_mutex_t *lock = &store_locks[chain % STORE_STRIPES];
	struct entry *entry;
	long found = -1;

	pthread_mutex_lock(lock);
	entry = *store_find(chain, key, length);
	if (entry && entry->value_length <= room) {
		memcpy(value, entry->bytes + length, entry->value_length);
		*flags = entry->flags;
		found = (long)entry->value_length;
	}
	pthread_mutex_unlock(lock);
	return found;
}

/* Returns 0, or -1 if there is no memory. */
static inline int store_set(const char *key, size_t length, unsigned long flags, const char *value,
			    size_t value_length)
{
	uint32_t chain = store_chain(key, length);
	pthread_mutex_t *lock = &store_locks[chain % STORE_STRIPES];
	struct entry *entry = malloc(sizeof(*entry) + length + value_length);
	struct entry **link, *old;

	if (!entry)
		return -1;
	entry->key_length = length;
	entry->value_length = value_length;
	entry->flags = flags;
	memcpy(entry->bytes, key, length);
	memcpy(entry->bytes + length, value, value_length);
	pthread_mutex_lock(lock);
	link = store_find(chain, key, length);
	old = *link;
	entry->next = old ? old->next : NULL;
	*link = entry;
	pthread_mutex_unlock(lock);
	free(old);
	return 0;
}

#endif
