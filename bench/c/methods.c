// SPDX-License-Identifier: Apache-2.0
/*
 * Small programs of methods and loops, to be compiled with and without the compiler's instrumentation
 * of edges: what do an identifier of the method and loop, and an observer who reads it, cost them?
 *
 *	methods NAME SECONDS CPU	NAME: sort, hash, tree, matrix, text
 *
 * Each counts its rounds, of some microseconds. The last line says how many there were in how long.
 */
#include <tailscope_channel.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "run.h"

TS_CHANNEL(rounds, TS_COUNTER);

#define METHOD __attribute__((noinline)) static

static uint64_t state = 88172645463325252ull;
static volatile uint64_t result;

static uint64_t draw(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

/* --- sort: quicksort of 256 numbers, insertion sort below 12 -------------------------------------- */

METHOD void insertion(int *a, int n)
{
	for (int i = 1; i < n; i++) {
		int v = a[i], j = i;

		for (; j > 0 && a[j - 1] > v; j--)
			a[j] = a[j - 1];
		a[j] = v;
	}
}

METHOD void quicksort(int *a, int n)
{
	int i = 0, j = n - 1, pivot;

	if (n < 12) {
		insertion(a, n);
		return;
	}
	pivot = a[n / 2];
	while (i <= j) {
		while (a[i] < pivot)
			i++;
		while (a[j] > pivot)
			j--;
		if (i <= j) {
			int t = a[i];

			a[i++] = a[j];
			a[j--] = t;
		}
	}
	quicksort(a, j + 1);
	quicksort(a + i, n - i);
}

METHOD void sort(void)
{
	static int numbers[256];

	for (int i = 0; i < 256; i++)
		numbers[i] = (int)draw();
	quicksort(numbers, 256);
	result += (uint64_t)numbers[7];
}

/* --- hash: 32 keys, of which half are there, in a table of 4,096 places ----------------------------- */

static struct {
	char key[16];
	uint64_t value;
} places[4096];

METHOD uint64_t hash_of(const char *key)
{
	uint64_t hash = 14695981039346656037ull;

	for (; *key; key++)
		hash = (hash ^ (unsigned char)*key) * 1099511628211ull;
	return hash;
}

METHOD uint64_t *find(const char *key)
{
	uint64_t at = hash_of(key) & 4095;

	while (places[at].key[0] && strcmp(places[at].key, key))
		at = (at + 1) & 4095;
	if (!places[at].key[0])
		strcpy(places[at].key, key);
	return &places[at].value;
}

METHOD void number_key(char *key, uint64_t number)
{
	char *end = key + 1;

	key[0] = 'k';
	do
		*end++ = (char)('0' + number % 10);
	while (number /= 10);
	*end = 0;
}

METHOD void hash(void)
{
	for (int i = 0; i < 32; i++) {
		char key[16];

		number_key(key, draw() % 2048);
		++*find(key);
	}
}

/* --- tree: 16 look-ups among 20,000 nodes ---------------------------------------------------------- */

struct node {
	uint64_t key;
	struct node *side[2];
};
static struct node nodes[20000], *root;

METHOD void grow(void)
{
	for (size_t i = 0; i < sizeof(nodes) / sizeof(*nodes); i++) {
		struct node **at = &root;

		nodes[i].key = draw() >> 32;
		while (*at)
			at = &(*at)->side[nodes[i].key > (*at)->key];
		*at = &nodes[i];
	}
}

METHOD const struct node *look(uint64_t key)
{
	const struct node *at = root, *last = at;

	while (at && at->key != key) {
		last = at;
		at = at->side[key > at->key];
	}
	return at ? at : last;
}

METHOD void tree(void)
{
	for (int i = 0; i < 16; i++)
		result += look(draw() >> 32)->key;
}

/* --- matrix: a product of 16 by 16 ------------------------------------------------------------------ */

METHOD double dot(const double *row, const double *column)
{
	double sum = 0;

	for (int i = 0; i < 16; i++)
		sum += row[i] * column[16 * i];
	return sum;
}

METHOD void matrix(void)
{
	static double a[256], b[256], c[256];

	a[draw() & 255] = 1.0;
	b[draw() & 255] = 2.0;
	for (int i = 0; i < 16; i++)
		for (int j = 0; j < 16; j++)
			c[16 * i + j] = dot(a + 16 * i, b + j);
	result += (uint64_t)c[17];
}

/* --- text: words of 1,000 letters -------------------------------------------------------------------- */

METHOD int is_letter(char c)
{
	return c >= 'a' && c <= 'z';
}

METHOD uint64_t word(const char **at)
{
	uint64_t sum = 0;

	for (; is_letter(**at); ++*at)
		sum = sum * 31 + (uint64_t)(**at - 'a');
	return sum;
}

METHOD void text(void)
{
	static char letters[1001];
	const char *at = letters;

	if (!letters[0])
		for (int i = 0; i < 1000; i++)
			letters[i] = draw() % 6 ? (char)('a' + draw() % 26) : ' ';
	while (*at) {
		result += word(&at);
		while (*at == ' ')
			at++;
	}
}

static double now(void)
{
	return (double)now_ns() / 1e9;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*round)(void);
	} programs[] = {
	    {"sort", sort}, {"hash", hash}, {"tree", tree}, {"matrix", matrix}, {"text", text}};
	void (*round)(void) = NULL;
	double begin, end;

	for (size_t i = 0; argc == 4 && i < sizeof(programs) / sizeof(*programs); i++)
		if (!strcmp(argv[1], programs[i].name))
			round = programs[i].round;
	if (!round) {
		fprintf(stderr, "methods sort|hash|tree|matrix|text SECONDS CPU\n");
		return 2;
	}
	stay_on(strtoull(argv[3], NULL, 10));
	until_told();
	grow();
	begin = now();
	end = begin + atof(argv[2]);
	while (!over && now() < end)
		for (int i = 0; i < 100; i++) {
			round();
			ts_channel_add(rounds, 1);
		}
	printf("{\"rounds\": %llu, \"seconds\": %.6f}\n", (unsigned long long)rounds->value,
	       now() - begin);
	return 0;
}
