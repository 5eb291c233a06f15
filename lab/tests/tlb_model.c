// SPDX-License-Identifier: GPL-2.0-only
/* The structures of the TLB model without a guest. Prints a line for what fails; lab/tests/test_tlb_plugin.py runs it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "model.h"

static int failures;

#define CHECK(what) ((what) ? (void)0 : (void)(failures++, printf("line %d: %s\n", __LINE__, #what)))

static struct options usual(unsigned int coalesce)
{
	return (struct options){ .l1_small = { 16, 6 }, .l1_large = { 8, 4 }, .l2 = { 128, 16 }, .pde = { 16, 4 },
				 .pdpte = { 4, 4 }, .coalesce = coalesce };
}

static struct model fresh(struct options options)
{
	struct model m;

	if (!model_init(&m, &options))
		abort();
	return m;
}

static uint64_t state = 88172645463325252ull;

static uint64_t random_number(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	return state ^= state << 17;
}

/* Share of random accesses to 256 MiB that walk. */
static double walks(struct model *m, enum leaf leaf)
{
	unsigned int count = 1000000, walked = 0;

	for (unsigned int i = 0; i < 200000 + count; i++) {
		uint64_t page = random_number() & 65535;

		if (model_newest(m, page, 1) || model_find(m, page, 1) != NOWHERE)
			continue;
		walked += i >= 200000;
		model_enter(m, page, 1, leaf);
	}
	return (double)walked / count;
}

static void shares(void)
{
	struct model off = fresh(usual(0)), zen = fresh(usual(2)), arm = fresh(usual(4)), large = fresh(usual(0));
	struct options odd = usual(0);
	struct model scaled;

	CHECK(fabs(walks(&off, LEAF_4K) - 0.96875) < 0.002);
	CHECK(fabs(walks(&zen, LEAF_JOINED) - 0.875) < 0.002);
	CHECK(fabs(walks(&arm, LEAF_JOINED) - 0.5) < 0.002);
	CHECK(walks(&large, LEAF_2M) < 0.0002);
	/* A number of sets that is no power of 2. */
	odd.l2 = (struct shape){ 96, 16 };
	scaled = fresh(odd);
	CHECK(fabs(walks(&scaled, LEAF_4K) - (1 - 1536.0 / 65536)) < 0.002);
}

/* A set of the small L1 has 6 ways, one of L2 16: pages 2048 apart share both. */
static void least_recently_used_goes(void)
{
	struct model m = fresh(usual(0));

	for (uint64_t i = 0; i < 16; i++)
		model_enter(&m, i * 2048, 1, LEAF_4K);
	CHECK(model_newest(&m, 15 * 2048, 1) && !model_newest(&m, 14 * 2048, 1));
	CHECK(model_find(&m, 14 * 2048, 1) == IN_L1);
	CHECK(model_newest(&m, 14 * 2048, 1));
	CHECK(model_find(&m, 0, 1) == IN_L2);
	CHECK(model_find(&m, 0, 1) == IN_L1);
	/* Page 0 was used last, so another new one pushes page 1 out. */
	model_enter(&m, 16 * 2048, 1, LEAF_4K);
	CHECK(model_find(&m, 2048, 1) == NOWHERE);
	CHECK(model_find(&m, 0, 1) != NOWHERE);
}

static void spaces_are_apart(void)
{
	struct model m = fresh(usual(0));

	model_enter(&m, 7, 1, LEAF_4K);
	model_enter(&m, 7, 2, LEAF_4K);
	model_enter(&m, 1ull << 44, 0, LEAF_2M);
	CHECK(model_find(&m, 7, 3) == NOWHERE);
	model_drop_space(&m, 1);
	CHECK(model_find(&m, 7, 1) == NOWHERE && model_find(&m, 7, 2) == IN_L1);
	CHECK(model_find(&m, (1ull << 44) + 511, 0) == IN_L1);
	CHECK(model_find(&m, (1ull << 44) + 512, 0) == NOWHERE);
	model_drop_page(&m, 7, 2);
	CHECK(model_find(&m, 7, 2) == NOWHERE);
	model_drop_page(&m, (1ull << 44) + 3, 0);
	CHECK(model_find(&m, 1ull << 44, 0) == NOWHERE);
	model_enter(&m, 7, 2, LEAF_4K);
	model_drop_all(&m);
	CHECK(model_find(&m, 7, 2) == NOWHERE);
}

static void joined_pages_share_an_entry(void)
{
	struct model m = fresh(usual(2));

	model_enter(&m, 8, 1, LEAF_JOINED);
	CHECK(model_find(&m, 11, 1) == IN_L1 && model_find(&m, 12, 1) == NOWHERE && model_find(&m, 7, 1) == NOWHERE);
	model_enter(&m, 12, 1, LEAF_4K);
	CHECK(model_find(&m, 12, 1) == IN_L1 && model_find(&m, 13, 1) == NOWHERE);
	model_drop_page(&m, 9, 1);
	CHECK(model_find(&m, 8, 1) == NOWHERE);
}

static void references(void)
{
	struct model m = fresh(usual(0));

	CHECK(model_references(&m, 0, 1, LEAF_4K, 5) == 5);
	CHECK(model_references(&m, 1, 1, LEAF_4K, 5) == 1);
	CHECK(model_references(&m, 512, 1, LEAF_4K, 5) == 2);
	CHECK(model_references(&m, 512, 2, LEAF_4K, 4) == 4);
	CHECK(model_references(&m, 1024, 1, LEAF_2M, 5) == 1);
	CHECK(model_references(&m, 1ull << 18, 1, LEAF_2M, 5) == 4);
	CHECK(model_references(&m, 2ull << 18, 1, LEAF_1G, 5) == 3);
	model_drop_page(&m, 99, 1);
	CHECK(model_references(&m, 1, 1, LEAF_4K, 5) == 5);
	CHECK(model_references(&m, 512, 2, LEAF_4K, 4) == 1);
}

/* Without entries of their own they are pieces of 2 MiB, with them 4 of L1 and 16 of L2. */
static void giants(void)
{
	struct options options = usual(0);
	struct model pieces = fresh(options), m;
	uint64_t giant = 1ull << 18;

	model_enter(&pieces, 0, 1, LEAF_1G);
	CHECK(model_find(&pieces, 511, 1) == IN_L1 && model_find(&pieces, 512, 1) == NOWHERE);

	options.l1_giant = (struct shape){ 1, 4 };
	options.l2_giant = (struct shape){ 4, 4 };
	m = fresh(options);
	for (uint64_t i = 0; i < 16; i++) {
		CHECK(model_find(&m, i * giant, 1) == NOWHERE);
		model_enter(&m, i * giant, 1, LEAF_1G);
	}
	CHECK(model_find(&m, 16 * giant - 1, 1) == IN_L1);
	CHECK(model_find(&m, 11 * giant + 7, 1) == IN_L2 && model_find(&m, 11 * giant + 8, 1) == IN_L1);
	CHECK(model_find(&m, 0, 2) == NOWHERE);
	/* A fifth in the set of giant 0, which is the oldest there. */
	model_enter(&m, 16 * giant, 1, LEAF_1G);
	CHECK(model_find(&m, 0, 1) == NOWHERE && model_find(&m, 4 * giant, 1) != NOWHERE);
	/* Others stay as they are. */
	model_enter(&m, 8 * giant, 1, LEAF_2M);
	model_drop_page(&m, 8 * giant + 511, 1);
	CHECK(model_find(&m, 8 * giant + 600, 1) == NOWHERE && model_find(&m, 5 * giant, 1) != NOWHERE);
	model_drop_space(&m, 1);
	CHECK(model_find(&m, 5 * giant, 1) == NOWHERE);
	model_enter(&m, 0, 1, LEAF_1G);
	model_drop_all(&m);
	CHECK(model_find(&m, 0, 1) == NOWHERE);
}

int main(void)
{
	giants();
	shares();
	least_recently_used_goes();
	spaces_are_apart();
	joined_pages_share_an_entry();
	references();
	return failures != 0;
}
