/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A very small test frame: checks that print the values, numbers at which
 * arithmetic breaks, and a main() that runs one test by name or lists them.
 */
#ifndef MTHP_UNIT_H
#define MTHP_UNIT_H

#include <stdio.h>
#include <string.h>

#include "abi.h"
#include "defaults.h"

#define MIB	(1ULL << 20)
#define MS	1000000ULL
#define SEC	1000000000ULL

static int failures;

#define CHECK(cond, ...)						\
	do {								\
		if (!(cond)) {						\
			failures++;					\
			printf("%s:%d: %s: ", __FILE__, __LINE__, #cond); \
			printf(__VA_ARGS__);				\
			printf("\n");					\
		}							\
	} while (0)

#define ALL_RULES (MTHP_RULE(PRESSURE) | MTHP_RULE(SMALL) | MTHP_RULE(SPARSE) | \
		   MTHP_RULE(ROOM) | MTHP_RULE(CAP))

/* Those of the table of options, with every rule on: tests/decide.rs writes them down. */
static inline struct mthp_tunables defaults(void)
{
	struct mthp_tunables t;

	_Static_assert(sizeof(t) == sizeof(default_tunables), "one layout");
	memcpy(&t, default_tunables, sizeof(t));
	return t;
}

static inline __u64 random_u64(void)
{
	static __u64 x = 88172645463325252ULL;	/* xorshift: the same on every run */

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return x;
}

/* Values at which arithmetic breaks, and random ones of every magnitude. */
static inline __u64 nasty_u64(void)
{
	static const __u64 edges[] = {
		0, 1, 2, 4095, 4096, 4097, 1ULL << 31, 1ULL << 32, 1ULL << 62,
		1ULL << 63, ~0ULL - 1, ~0ULL,
	};
	__u64 r = random_u64();

	if (r % 3 == 0)
		return edges[(r >> 8) % (sizeof(edges) / sizeof(edges[0]))];
	return random_u64() >> (r >> 8) % 64;
}

struct test {
	const char *name;
	void (*run)(void);
};

#define TEST(name) { #name, name }

/* 0: passed (or listed), 1: failed, 2: there is no test of this name. */
static inline int run_tests(const struct test *tests, size_t count, int argc, char **argv)
{
	for (size_t i = 0; i < count; i++) {
		if (argc < 2) {
			puts(tests[i].name);
		} else if (!strcmp(argv[1], tests[i].name)) {
			tests[i].run();
			return failures ? 1 : 0;
		}
	}
	return argc < 2 ? 0 : 2;
}

/* The program of an array of tests. */
#define RUN_TESTS(tests)							\
int main(int argc, char **argv)							\
{										\
	return run_tests(tests, sizeof(tests) / sizeof((tests)[0]), argc, argv);	\
}

#endif /* MTHP_UNIT_H */
