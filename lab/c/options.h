/* SPDX-License-Identifier: Apache-2.0 */
/* Command-line options as a table: `--name VALUE`, `--name=VALUE`, `--flag`, `--help`. */
#ifndef LAB_OPTIONS_H
#define LAB_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Exactly one of the pointers is set. It holds the default and takes the value. */
struct option {
	const char *name; /* NULL ends a table */
	const char *help;
	uint64_t *number;
	double *real;
	const char **text;
	bool *flag;
};

static inline void options_help(const char *about, const struct option *const tables[])
{
	printf("%s\n\nOptions:\n", about);
	for (; *tables; tables++)
		for (const struct option *o = *tables; o->name; o++) {
			printf("  --%-14s %s", o->name, o->help);
			if (o->number && *o->number != UINT64_MAX)
				printf(" [default: %llu]", (unsigned long long)*o->number);
			else if (o->real)
				printf(" [default: %g]", *o->real);
			else if (o->text && *o->text)
				printf(" [default: %s]", *o->text);
			putchar('\n');
		}
}

/* Sets what `value` says. Returns false if it isn't a value of that kind. */
static inline bool option_take(const struct option *o, const char *value)
{
	char *end = NULL;

	if (o->text) {
		*o->text = value;
		return true;
	}
	if (!*value || *value == '-')
		return false;
	if (o->number)
		*o->number = strtoull(value, &end, 10);
	else
		*o->real = strtod(value, &end);
	return *end == '\0';
}

/* Parses or exits: 0 after --help, 2 where something is wrong. `tables` ends with NULL. */
static inline void options_parse(int argc, char **argv, const char *about,
				 const struct option *const tables[])
{
	for (int i = 1; i < argc; i++) {
		const char *name = strncmp(argv[i], "--", 2) ? "" : argv[i] + 2;
		size_t length = strcspn(name, "=");
		const struct option *found = NULL;
		const char *value;

		if (!strcmp(name, "help")) {
			options_help(about, tables);
			exit(0);
		}
		for (const struct option *const *t = tables; *t && !found; t++)
			for (const struct option *o = *t; o->name && !found; o++)
				if (strlen(o->name) == length && !memcmp(o->name, name, length))
					found = o;
		if (!found) {
			fprintf(stderr, "%s: no option '%s', see --help\n", argv[0], argv[i]);
			exit(2);
		}
		if (found->flag && !name[length]) {
			*found->flag = true;
			continue;
		}
		value = name[length] ? name + length + 1 : i + 1 < argc ? argv[++i] : "";
		if (found->flag || !option_take(found, value)) {
			fprintf(stderr, "%s: '%s' is no value for --%s\n", argv[0], value,
				found->name);
			exit(2);
		}
	}
}

#endif
