// SPDX-License-Identifier: GPL-2.0-only
/*
 * Unit tests of the parts of a scan: bpf/walk.h, the code the kernel runs, compiled for the
 * host.  tests/decide.rs runs each by its name.
 */
#include <stdlib.h>

#include "unit.h"
#include "walk.h"

/* As to_the_end() in src/kernel/load.rs. */
#define STEPS	4096

static __u32 list[MTHP_LIST];

/* What mthp_make_list() does with cgroups that are numbers. */
static void make_list(struct mthp_walk *walk, __u32 cgroups)
{
	for (__u32 i = 0; i < cgroups; i++) {
		if (!mthp_walk_meets_new(walk))
			continue;
		if (walk->listed >= MTHP_LIST)
			break;
		list[walk->listed++] = i;
	}
}

/* What mthp_scan() does. */
static int call(struct mthp_walk *walk, __u32 cgroups, unsigned char *visits)
{
	if (mthp_walk_is_through(walk)) {
		mthp_walk_turn(walk);
		make_list(walk, cgroups);
	}
	for (int i = 0; i < MTHP_VISITS && !mthp_walk_is_through(walk); i++)
		visits[list[walk->next++]]++;
	return mthp_walk_goes_on(walk);
}

/* The calls of one scan; each cgroup is to be visited once. */
static __u32 scan(__u32 cgroups)
{
	unsigned char *visits = calloc(cgroups + 1, 1);
	struct mthp_walk walk = { 0 };
	__u32 calls = 1, wrong = 0;

	while (call(&walk, cgroups, visits) && calls < STEPS)
		calls++;
	for (__u32 i = 0; i < cgroups; i++)
		wrong += visits[i] != 1;
	CHECK(!wrong, "%u of %u cgroups", wrong, cgroups);
	free(visits);
	return calls;
}

static void check_calls(__u32 cgroups, __u32 wanted)
{
	__u32 calls = scan(cgroups);

	CHECK(calls == wanted, "%u calls for %u cgroups, not %u", calls, cgroups, wanted);
}

static void one_call_is_enough_for_few(void)
{
	check_calls(0, 1);
	check_calls(1, 1);
	check_calls(MTHP_VISITS, 1);
}

static void a_list_takes_several_calls(void)
{
	check_calls(MTHP_VISITS + 1, 2);
	check_calls(MTHP_LIST - 1, MTHP_LIST / MTHP_VISITS);
}

/* After a full list another one is tried, at each call until it is through. */
static void a_large_tree_takes_several_lists(void)
{
	__u32 lists = 3;

	scan(MTHP_LIST);
	scan(MTHP_LIST + 1);
	scan(lists * MTHP_LIST + MTHP_VISITS + 1);
	check_calls(lists * MTHP_LIST + 1, lists * MTHP_LIST / MTHP_VISITS + 1);
}

/* While nobody stalls those are visited that are awake; all of them seldom, or if they are many. */
static void a_calm_scan_visits_those_awake(void)
{
	__u32 left = 0, whole = 0;

	for (__u32 turn = 0; turn < 100 * MTHP_SELDOM; turn++) {
		struct mthp_walk walk = { 0 };
		__u32 awake = random_u64() % MTHP_AWAKE;

		mthp_walk_begin(&walk, turn, awake, 1, &left);
		whole += walk.whole;
		CHECK(walk.begun && walk.whole == !walk.lightly, "turn %u", turn);
		CHECK(walk.listed == (walk.whole ? 0 : awake), "%u of %u", walk.listed, awake);
		CHECK(walk.whole || walk.from + awake <= MTHP_LIST + 2 * MTHP_AWAKE, "from %u", walk.from);
		CHECK(walk.whole || mthp_list_of(turn + 1) != walk.from, "lists of turns in a row");
	}
	CHECK(whole == 100, "%u", whole);
}

static void stall_or_a_crowd_brings_the_others(void)
{
	struct mthp_walk walk = { 0 };
	__u32 left = 7;

	mthp_walk_begin(&walk, 1, 5, 0, &left);
	CHECK(walk.whole && walk.lightly && left == 6, "somebody stalled");
	walk = (struct mthp_walk){ 0 };
	mthp_walk_begin(&walk, 1, MTHP_AWAKE, 1, &left);
	CHECK(walk.whole && !walk.lightly && left == MTHP_SELDOM - 1, "more than a list holds");
	walk = (struct mthp_walk){ 0 };
	left = 0;
	mthp_walk_begin(&walk, 1, 5, 0, &left);
	CHECK(walk.whole && !walk.lightly, "all of all, and stall");
}

static const struct test tests[] = {
	TEST(one_call_is_enough_for_few),
	TEST(a_list_takes_several_calls),
	TEST(a_large_tree_takes_several_lists),
	TEST(a_calm_scan_visits_those_awake),
	TEST(stall_or_a_crowd_brings_the_others),
};

RUN_TESTS(tests)
