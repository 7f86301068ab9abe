/* SPDX-License-Identifier: Apache-2.0 */
/* A histogram of nanoseconds: 128 bins to each power of two, so within 0.8 % of the truth. */
#ifndef LAB_TALLY_H
#define LAB_TALLY_H

#include <stdint.h>

#define TALLY_BITS 7
#define TALLY_BINS ((64 - TALLY_BITS) << TALLY_BITS)

struct tally {
	uint64_t count, sum, max;
	uint64_t bins[TALLY_BINS + (1 << TALLY_BITS)];
};

static inline void tally_add(struct tally *t, uint64_t ns)
{
	/* Below 2^(BITS + 1) a bin a nanosecond; above, the top BITS + 1 bits choose. */
	unsigned shift = ns >> (TALLY_BITS + 1) ? 63 - TALLY_BITS - __builtin_clzll(ns) : 0;

	t->bins[((uint64_t)shift << TALLY_BITS) + (ns >> shift)]++;
	t->count++;
	t->sum += ns;
	if (ns > t->max)
		t->max = ns;
}

static inline void tally_merge(struct tally *into, const struct tally *from)
{
	for (unsigned i = 0; i < sizeof(into->bins) / sizeof(into->bins[0]); i++)
		into->bins[i] += from->bins[i];
	into->count += from->count;
	into->sum += from->sum;
	if (from->max > into->max)
		into->max = from->max;
}

/* The upper end of the bin in which the quantile lies; 0 if nothing was counted. */
static inline uint64_t tally_quantile(const struct tally *t, double quantile)
{
	uint64_t rank = (uint64_t)(quantile * (double)t->count + 0.999999), seen = 0;
	uint64_t i = 0;

	if (!t->count)
		return 0;
	for (;; i++) {
		seen += t->bins[i];
		if (seen >= rank && seen)
			break;
	}
	if (i >> (TALLY_BITS + 1)) {
		unsigned shift = (unsigned)(i >> TALLY_BITS) - 1;

		i = ((i - ((uint64_t)shift << TALLY_BITS) + 1) << shift) - 1;
	}
	return i < t->max ? i : t->max;
}

#endif
