// SPDX-License-Identifier: GPL-2.0-only
/*
 * Unit tests of the decision: bpf/decide.h, the code the kernel runs, compiled
 * for the host.  tests/decide.rs runs each by its name.
 */
#include "unit.h"
#include "decide.h"

static const __u32 page_shifts[] = { 12, 14, 16 };

/* A large, calm cgroup without limits. */
static struct mthp_facts calm(__u32 reason)
{
	return (struct mthp_facts){
		.orders = MTHP_ALL_ORDERS, .memory_bytes = 100 * MIB,
		.headroom_bytes = MTHP_NO_LIMIT, .host_bytes = MTHP_NO_LIMIT, .reason = reason,
		.memory_known = 1, .populated = 1,
	};
}

static __u64 decide(const struct mthp_facts *f, const struct mthp_tunables *t)
{
	__u32 rules;

	return mthp_decide(f, t, &rules);
}

static struct mthp_facts nasty_facts(void)
{
	return (struct mthp_facts){
		.orders = nasty_u64(), .vm_flags = nasty_u64(),
		.memory_bytes = nasty_u64(), .headroom_bytes = nasty_u64(),
		.host_bytes = nasty_u64(),
		.reason = random_u64() % 6, .pressure = random_u64() % 2,
		.memory_known = random_u64() % 2, .populated = random_u64() % 2,
		.sparse = random_u64() % 2,
	};
}

static struct mthp_tunables nasty_tunables(void)
{
	struct mthp_tunables t = defaults();

	t.rules = random_u64();
	t.page_shift = page_shifts[random_u64() % 3];
	for (int reason = 0; reason < MTHP_NR_REASONS; reason++)
		t.max_order[reason] = random_u64() % 66;
	t.narrow_advised = random_u64() % 2;
	t.narrow_collapse = random_u64() % 2;
	t.min_memory = nasty_u64();
	t.headroom_factor = nasty_u64();
	t.host_factor = nasty_u64();
	t.sparse_bytes = nasty_u64();
	t.bind_khugepaged = random_u64() % 2;
	t.limit_share = random_u64() % 1025;
	t.sparse_share = random_u64() % 1025;
	t.pressure_order = random_u64() % 63;
	return t;
}

static void answer_is_a_subset_of_the_offer(void)
{
	for (int i = 0; i < 1000000; i++) {
		struct mthp_facts f = nasty_facts();
		struct mthp_tunables t = nasty_tunables();
		__u64 got = decide(&f, &t);

		CHECK(!(got & ~f.orders), "offer %llx answer %llx", f.orders, got);
	}
}

/* Deciding on everything and masking later is what the BPF side does. */
static void answer_does_not_depend_on_the_offer(void)
{
	for (int i = 0; i < 1000000; i++) {
		struct mthp_facts f = nasty_facts(), whole;
		struct mthp_tunables t = nasty_tunables();

		whole = f;
		whole.orders = ~0ULL;
		CHECK(decide(&f, &t) == (f.orders & decide(&whole, &t)),
		      "offer %llx", f.orders);
	}
}

static void rules_are_named_iff_they_narrow(void)
{
	for (int i = 0; i < 1000000; i++) {
		struct mthp_facts f = nasty_facts();
		struct mthp_tunables t = nasty_tunables();
		__u32 rules;
		__u64 got = mthp_decide(&f, &t, &rules);

		CHECK((got != f.orders) == (rules != 0), "rules %x", rules);
		CHECK(!(rules & ~t.rules), "rule %x is off", rules);
	}
}

static void unknown_reason_passes_unchanged(void)
{
	for (__u32 reason = MTHP_UNKNOWN; reason < MTHP_UNKNOWN + 100; reason++)
		for (int i = 0; i < 1000; i++) {
			struct mthp_facts f = nasty_facts();
			struct mthp_tunables t = nasty_tunables();

			f.reason = reason;
			CHECK(decide(&f, &t) == f.orders, "reason %u", reason);
		}
}

static void forced_collapse_is_free(void)
{
	for (int i = 0; i < 100000; i++) {
		struct mthp_facts f = nasty_facts();
		struct mthp_tunables t = nasty_tunables();

		f.reason = MTHP_COLLAPSE;
		t.narrow_collapse = 0;
		CHECK(decide(&f, &t) == f.orders, "offer %llx", f.orders);
	}
}

/* Then it is bound like a fault, which fills with zeroes as well. */
static void forced_collapse_is_bound_on_request(void)
{
	for (int i = 0; i < 1000000; i++) {
		struct mthp_facts f = nasty_facts();
		struct mthp_tunables t = nasty_tunables();
		__u64 collapse;

		t.narrow_collapse = 1;
		t.max_order[MTHP_COLLAPSE] = t.max_order[MTHP_FAULT];
		f.reason = MTHP_COLLAPSE;
		collapse = decide(&f, &t);
		f.reason = MTHP_FAULT;
		CHECK(decide(&f, &t) == collapse, "offer %llx: %llx", f.orders, collapse);
	}
}

static void advised_memory_is_left_alone(void)
{
	for (int i = 0; i < 100000; i++) {
		struct mthp_facts f = nasty_facts();
		struct mthp_tunables t = nasty_tunables();

		f.vm_flags |= MTHP_VM_HUGEPAGE;
		t.narrow_advised = 0;
		CHECK(decide(&f, &t) == f.orders, "offer %llx", f.orders);
	}
}

static void advised_memory_is_bound_on_request(void)
{
	struct mthp_tunables t = defaults();
	struct mthp_facts f = calm(MTHP_FAULT);

	f.vm_flags = MTHP_VM_HUGEPAGE;
	f.pressure = 1;
	CHECK(decide(&f, &t) == f.orders, "untouched by default");
	t.narrow_advised = 1;
	CHECK(decide(&f, &t) == 0, "bound on request");
}

static void calm_and_large_gets_everything(void)
{
	struct mthp_tunables t = defaults();

	for (__u32 reason = 0; reason < MTHP_NR_REASONS; reason++) {
		struct mthp_facts f = calm(reason);

		CHECK(decide(&f, &t) == MTHP_ALL_ORDERS, "reason %u", reason);
	}
}

static void pressure_means_base_pages_for_all_but_collapse(void)
{
	static const __u64 expected[] = {
		[MTHP_FAULT] = 0, [MTHP_SWAPIN] = 0, [MTHP_KHUGEPAGED] = 0,
		[MTHP_COLLAPSE] = MTHP_ALL_ORDERS,
	};
	struct mthp_tunables t = defaults();

	for (__u32 reason = 0; reason < MTHP_NR_REASONS; reason++) {
		struct mthp_facts f = calm(reason);

		f.pressure = 1;
		CHECK(decide(&f, &t) == expected[reason], "reason %u", reason);
	}
}

/* If some is to be left under pressure, the other rules still take from it. */
static void pressure_may_leave_small_folios(void)
{
	struct mthp_tunables t = defaults();
	struct mthp_facts f = calm(MTHP_FAULT);
	__u32 rules;

	f.pressure = 1;
	t.pressure_order = 4;
	CHECK(mthp_decide(&f, &t, &rules) == 0x1e, "64 KiB");
	CHECK(rules == MTHP_RULE(PRESSURE), "rules %x", rules);
	f.headroom_bytes = 1024 * (8 << 12);
	CHECK(decide(&f, &t) == 0xe, "room for 32 KiB");
	t.max_order[MTHP_FAULT] = 2;
	CHECK(decide(&f, &t) == 0x6, "a cap of 16 KiB");
	f.orders = 0x6;
	t.max_order[MTHP_FAULT] = MTHP_NO_MAX_ORDER;
	CHECK(mthp_decide(&f, &t, &rules) == 0x6 && !rules, "nothing to take: %x", rules);
	t.pressure_order = 62;
	f.orders = MTHP_ALL_ORDERS;
	f.headroom_bytes = MTHP_NO_LIMIT;
	CHECK(decide(&f, &t) == (MTHP_ALL_ORDERS & ~(1ULL << 63)), "all but what no kernel has");
}

/* Small and sparse bind a khugepaged that fills up with zeroes, and none that does not. */
static void check_wasters(struct mthp_facts facts)
{
	struct mthp_tunables t = defaults();

	for (__u32 fills = 0; fills < 2; fills++) {
		const __u64 expected[] = {
			[MTHP_FAULT] = 0, [MTHP_SWAPIN] = MTHP_ALL_ORDERS,
			[MTHP_KHUGEPAGED] = fills ? 0 : MTHP_ALL_ORDERS,
			[MTHP_COLLAPSE] = MTHP_ALL_ORDERS,
		};

		t.bind_khugepaged = fills;
		for (__u32 reason = 0; reason < MTHP_NR_REASONS; reason++) {
			facts.reason = reason;
			CHECK(decide(&facts, &t) == expected[reason], "reason %u", reason);
		}
	}
}

static void small_means_base_pages_where_zeroes_may_fill_up(void)
{
	struct mthp_facts f = calm(MTHP_FAULT);

	f.memory_bytes = MIB;
	check_wasters(f);
}

static void small_ends_at_the_very_byte(void)
{
	struct mthp_tunables t = defaults();
	struct mthp_facts f = calm(MTHP_FAULT);

	f.memory_bytes = t.min_memory - 1;
	CHECK(decide(&f, &t) == 0, "one byte below");
	f.memory_bytes = t.min_memory;
	CHECK(decide(&f, &t) == MTHP_ALL_ORDERS, "exactly");
	t.min_memory = 0;
	f.memory_bytes = 0;
	CHECK(decide(&f, &t) == MTHP_ALL_ORDERS, "0 turns the rule off");
}

/* B7: an empty cgroup has no memory, and yet its first task is not small. */
static void an_empty_cgroup_is_not_small(void)
{
	struct mthp_tunables t = defaults();
	struct mthp_facts f = calm(MTHP_FAULT);

	f.memory_bytes = 0;
	f.populated = 0;
	CHECK(decide(&f, &t) == MTHP_ALL_ORDERS, "empty");
}

/* W3, W16: without the memory controller there is no opinion on size. */
static void unknown_memory_is_not_small(void)
{
	struct mthp_tunables t = defaults();
	struct mthp_facts f = calm(MTHP_FAULT);

	f.memory_bytes = 0;
	f.memory_known = 0;
	CHECK(decide(&f, &t) == MTHP_ALL_ORDERS, "unknown");
}

static void sparse_means_base_pages_where_zeroes_may_fill_up(void)
{
	struct mthp_tunables t = defaults();
	struct mthp_facts f = calm(MTHP_FAULT);

	f.sparse = 1;
	check_wasters(f);
	t.sparse_bytes = 0;
	CHECK(decide(&f, &t) == MTHP_ALL_ORDERS, "0 turns the rule off");
}

/* 64 MiB are 16384 pages of 4 KiB. */
static void wasteful_is_more_than_half_and_more_than_the_allowance(void)
{
	struct mthp_tunables t = defaults();

	CHECK(!mthp_wasteful(16383, 0, &t), "one page less than the allowance");
	CHECK(mthp_wasteful(16384, 0, &t), "the allowance");
	CHECK(!mthp_wasteful(40000, 20000, &t), "half of it is there");
	CHECK(mthp_wasteful(40001, 20000, &t), "just less than half of it is");
	CHECK(!mthp_wasteful(20000, 20000, &t), "all of it is there");
	CHECK(!mthp_wasteful(0, ~0ULL, &t), "more than all of it");
	t.page_shift = 16;
	CHECK(mthp_wasteful(1024, 0, &t), "the allowance is in bytes");
	CHECK(!mthp_wasteful(1023, 0, &t), "the allowance is in bytes");
	t = defaults();
	t.sparse_share = 256;
	CHECK(!mthp_wasteful(40000, 10000, &t), "a quarter of it is there");
	CHECK(mthp_wasteful(40000, 9999, &t), "just less than a quarter of it is");
	t.sparse_share = 0;
	CHECK(!mthp_wasteful(40000, 0, &t), "nobody is sparse");
}

static void a_fuller_process_is_never_more_wasteful(void)
{
	for (int i = 0; i < 500000; i++) {
		struct mthp_tunables t = nasty_tunables();
		/* Pages: no host has 2^52. */
		__u64 spanned = nasty_u64() >> 12, a = nasty_u64() >> 12, b = nasty_u64() >> 12;
		__u64 less = a < b ? a : b, more = a < b ? b : a;

		CHECK(mthp_wasteful(spanned, less, &t) >= mthp_wasteful(spanned, more, &t),
		      "%llu: %llu, %llu", spanned, less, more);
	}
}

/* Half of a limit of 100 MiB, 25600 pages, may be in large folios. */
static void a_limit_is_none_while_large_folios_have_not_had_their_share(void)
{
	struct mthp_tunables t = defaults();
	__s64 unlimited = mthp_unlimited(&t);

	CHECK(mthp_level_room(25600, 0, t.limit_share, &t) == unlimited, "nothing is used");
	CHECK(mthp_level_room(25600, 12800 - 512, t.limit_share, &t) == unlimited, "one more fits");
	CHECK(mthp_level_room(25600, 12800 - 511, t.limit_share, &t) == 12800 + 511, "just not");
	CHECK(mthp_level_room(25600, 25600, t.limit_share, &t) == 0, "at the limit");
	CHECK(mthp_level_room(25600, 25601, t.limit_share, &t) == -1, "over it");
	CHECK(mthp_level_room(512, 0, t.limit_share, &t) == 512, "a limit without room for one");
	CHECK(mthp_level_room(1792, 384, t.limit_share, &t) == unlimited, "half of 7 MiB");
	CHECK(mthp_level_room(1792, 385, t.limit_share, &t) == 1407, "and no more");
	t.limit_share = 0;
	CHECK(mthp_level_room(25600, 0, t.limit_share, &t) == 25600, "no share");
}

/* Limits and usages as large as there are, and any share. */
static void room_is_as_defined(void)
{
	for (int i = 0; i < 500000; i++) {
		struct mthp_tunables t = nasty_tunables();
		__u64 limit = nasty_u64() % mthp_unlimited(&t);
		__u64 used = nasty_u64() % mthp_unlimited(&t);
		int within = used + t.largest_pages <= (limit * t.limit_share) >> 10;
		__s64 want = within ? (__s64)mthp_unlimited(&t) : (__s64)(limit - used);

		CHECK(mthp_level_room(limit, used, t.limit_share, &t) == want, "%llu of %llu", used, limit);
	}
}

/* The rule as DESIGN states it, in 128 bits, order by order. */
static void headroom_agrees_with_its_definition(void)
{
	struct mthp_tunables t = defaults();

	for (int i = 0; i < 200000; i++) {
		struct mthp_facts f = calm(random_u64() % MTHP_COLLAPSE);
		__u64 got;

		f.headroom_bytes = nasty_u64();
		t.headroom_factor = 1 + (nasty_u64() & 0xfffff);
		t.page_shift = page_shifts[i % 3];
		got = decide(&f, &t);
		for (int order = 1; order < 40; order++) {
			unsigned __int128 need = (unsigned __int128)1 << (order + t.page_shift);
			int fits = f.headroom_bytes == MTHP_NO_LIMIT ||
				   need * t.headroom_factor <= f.headroom_bytes;

			/* What does not exist goes with the largest that does. */
			if (order > 9)
				fits = !!(got & (1ULL << 9));

			CHECK(!!(got & (1ULL << order)) == fits,
			      "order %d K %llu headroom %llu shift %u", order,
			      t.headroom_factor, f.headroom_bytes, t.page_shift);
		}
	}
}

static void headroom_is_graded_order_by_order(void)
{
	struct mthp_tunables t = defaults();

	for (unsigned int s = 0; s < 3; s++) {
		__u32 shift = page_shifts[s];

		t.page_shift = shift;
		t.largest_pages = 1 << 14;
		for (int order = 1; order <= 13; order++) {
			struct mthp_facts f = calm(MTHP_FAULT);
			__u64 need = (1ULL << (order + shift)) * t.headroom_factor;
			__u64 up_to = (2ULL << order) - 2;

			f.headroom_bytes = need;
			CHECK(decide(&f, &t) == up_to, "order %d at shift %u", order, shift);
			f.headroom_bytes = need - 1;
			CHECK(decide(&f, &t) == (up_to & ~(1ULL << order)),
			      "order %d just misses at shift %u", order, shift);
		}
	}
}

static void room_for_the_largest_is_room_for_all(void)
{
	struct mthp_tunables t = defaults();
	struct mthp_facts f = calm(MTHP_FAULT);

	f.headroom_bytes = 2048 * MIB;
	CHECK(decide(&f, &t) == MTHP_ALL_ORDERS, "2 MiB fit");
	f.headroom_bytes--;
	CHECK(decide(&f, &t) == 0x1fe, "just not");
}

/* The host is a limit like any other, with a K of its own. */
static void the_host_is_graded_order_by_order(void)
{
	struct mthp_tunables t = defaults();
	__u32 rules;

	for (__u32 reason = 0; reason < MTHP_COLLAPSE; reason++)
		for (int order = 1; order < 9; order++) {
			struct mthp_facts f = calm(reason);
			__u64 up_to = (2ULL << order) - 2;

			f.host_bytes = (4096ULL << order) * t.host_factor;
			CHECK(mthp_decide(&f, &t, &rules) == up_to, "order %d", order);
			CHECK(rules == MTHP_RULE(HOST), "rules %x", rules);
			f.host_bytes--;
			CHECK(decide(&f, &t) == (up_to & ~(1ULL << order)), "order %d just misses", order);
			f.headroom_bytes = 0;
			CHECK(mthp_decide(&f, &t, &rules) == 0, "the nearer one counts");
			t.rules &= ~MTHP_RULE(HOST);
			f.headroom_bytes = MTHP_NO_LIMIT;
			CHECK(decide(&f, &t) == MTHP_ALL_ORDERS, "off");
			t.rules = ALL_RULES;
		}
}

static void more_headroom_never_allows_less(void)
{
	for (int i = 0; i < 500000; i++) {
		struct mthp_facts low = nasty_facts(), high;
		struct mthp_tunables t = nasty_tunables();
		__u64 more = nasty_u64();

		high = low;
		high.headroom_bytes = low.headroom_bytes > more ? low.headroom_bytes : more;
		more = nasty_u64();
		high.host_bytes = low.host_bytes > more ? low.host_bytes : more;
		CHECK(!(decide(&low, &t) & ~decide(&high, &t)),
		      "%llu -> %llu", low.headroom_bytes, high.headroom_bytes);
	}
}

static void no_headroom_leaves_base_pages(void)
{
	struct mthp_tunables t = defaults();

	for (__u32 reason = 0; reason < MTHP_COLLAPSE; reason++) {
		struct mthp_facts f = calm(reason);

		f.headroom_bytes = 0;
		CHECK(decide(&f, &t) == 0, "reason %u", reason);
	}
}

static void no_limit_means_no_opinion(void)
{
	struct mthp_tunables t = defaults();
	struct mthp_facts f = calm(MTHP_FAULT);

	t.headroom_factor = ~0ULL;
	t.host_factor = ~0ULL;
	CHECK(decide(&f, &t) == MTHP_ALL_ORDERS, "even with the largest K");
}

/* A K of 0 never gets past the command line; dividing by it must not either. */
static void a_factor_of_zero_does_not_divide(void)
{
	CHECK(mthp_headroom_orders(4096, 0, 12) == 1, "taken as 1");
}

static void max_order_caps_every_order(void)
{
	struct mthp_tunables t = defaults();

	for (__u32 max = 0; max < 63; max++) {
		struct mthp_facts f = calm(MTHP_FAULT);
		__u64 got;

		t.max_order[MTHP_FAULT] = max;
		got = decide(&f, &t);
		for (__u32 order = 1; order < 64; order++)
			CHECK(!!(got & (1ULL << order)) == (order <= max),
			      "order %u under cap %u", order, max);
	}
	for (__u32 max = 63; max < 70; max++) {
		struct mthp_facts f = calm(MTHP_FAULT);

		t.max_order[MTHP_FAULT] = max;
		CHECK(decide(&f, &t) == MTHP_ALL_ORDERS, "cap %u is none", max);
	}
}

static void max_order_is_each_reasons_own(void)
{
	struct mthp_tunables t = defaults();

	t.narrow_collapse = 1;
	for (__u32 capped = 0; capped < MTHP_NR_REASONS; capped++) {
		for (__u32 reason = 0; reason < MTHP_NR_REASONS; reason++)
			t.max_order[reason] = reason == capped ? 4 : MTHP_NO_MAX_ORDER;
		for (__u32 reason = 0; reason < MTHP_NR_REASONS; reason++) {
			struct mthp_facts f = calm(reason);
			__u64 expected = reason == capped ? 0x1e : MTHP_ALL_ORDERS;

			CHECK(decide(&f, &t) == expected, "reason %u, capped is %u", reason, capped);
		}
	}
}

/* Each rule alone, and off. */
static void a_rule_that_is_off_narrows_nothing(void)
{
	struct mthp_tunables t = defaults();
	struct mthp_facts f = calm(MTHP_FAULT);

	f.pressure = 1;
	f.memory_bytes = 0;
	f.headroom_bytes = 0;
	f.host_bytes = 0;
	f.sparse = 1;
	t.max_order[MTHP_FAULT] = 0;
	for (__u32 rules = 0; rules <= ALL_RULES; rules++) {
		__u32 why;

		t.rules = rules;
		CHECK(mthp_decide(&f, &t, &why) == (rules ? 0 : f.orders), "rules %x", rules);
		CHECK(why == rules, "rules %x why %x", rules, why);
	}
}

/* Adaptive is what reactive and headroom both allow: the rules compose by AND. */
static void rules_compose_by_and(void)
{
	for (int i = 0; i < 500000; i++) {
		struct mthp_facts f = nasty_facts();
		struct mthp_tunables t = nasty_tunables(), one;
		__u64 all = f.orders;

		for (__u32 rule = 0; rule < MTHP_NR_RULES; rule++) {
			one = t;
			one.rules = t.rules & (1U << rule);
			all &= decide(&f, &one);
		}
		CHECK(decide(&f, &t) == all, "rules %x", t.rules);
	}
}

static const struct test tests[] = {
	TEST(answer_is_a_subset_of_the_offer),
	TEST(answer_does_not_depend_on_the_offer),
	TEST(rules_are_named_iff_they_narrow),
	TEST(unknown_reason_passes_unchanged),
	TEST(forced_collapse_is_free),
	TEST(forced_collapse_is_bound_on_request),
	TEST(advised_memory_is_left_alone),
	TEST(advised_memory_is_bound_on_request),
	TEST(calm_and_large_gets_everything),
	TEST(pressure_may_leave_small_folios),
	TEST(pressure_means_base_pages_for_all_but_collapse),
	TEST(small_means_base_pages_where_zeroes_may_fill_up),
	TEST(small_ends_at_the_very_byte),
	TEST(an_empty_cgroup_is_not_small),
	TEST(unknown_memory_is_not_small),
	TEST(sparse_means_base_pages_where_zeroes_may_fill_up),
	TEST(wasteful_is_more_than_half_and_more_than_the_allowance),
	TEST(a_fuller_process_is_never_more_wasteful),
	TEST(a_limit_is_none_while_large_folios_have_not_had_their_share),
	TEST(room_is_as_defined),
	TEST(headroom_agrees_with_its_definition),
	TEST(headroom_is_graded_order_by_order),
	TEST(room_for_the_largest_is_room_for_all),
	TEST(the_host_is_graded_order_by_order),
	TEST(more_headroom_never_allows_less),
	TEST(no_headroom_leaves_base_pages),
	TEST(no_limit_means_no_opinion),
	TEST(a_factor_of_zero_does_not_divide),
	TEST(max_order_caps_every_order),
	TEST(max_order_is_each_reasons_own),
	TEST(a_rule_that_is_off_narrows_nothing),
	TEST(rules_compose_by_and),
};

int main(int argc, char **argv)
{
	return run_tests(tests, sizeof(tests) / sizeof(tests[0]), argc, argv);
}
