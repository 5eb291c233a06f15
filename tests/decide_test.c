// SPDX-License-Identifier: GPL-2.0-only
/*
 * Unit tests of the decision: bpf/decide.h, the code the kernel runs, compiled
 * for the host.  tests/decide.rs runs each by its name.
 */
#include "facts.h"

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
	/* 0, which is no reason, and those of later kernels. */
	for (__u32 reason = 0; reason < 100; reason += reason ? 1 : MTHP_NR_REASONS)
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

		f.reason = BPF_MTHP_COLLAPSE;
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
		t.max_order[BPF_MTHP_COLLAPSE] = t.max_order[BPF_MTHP_FAULT];
		f.reason = BPF_MTHP_COLLAPSE;
		collapse = decide(&f, &t);
		f.reason = BPF_MTHP_FAULT;
		CHECK(decide(&f, &t) == collapse, "offer %llx: %llx", f.orders, collapse);
	}
}

/* Where it can be held, whatever it wastes and whatever else is capped. */
static void advised_memory_that_fits_is_left_alone(void)
{
	for (int i = 0; i < 100000; i++) {
		struct mthp_facts f = nasty_facts();
		struct mthp_tunables t = nasty_tunables();

		f.flags |= BPF_MTHP_ADVISED;
		f.pressure = 0;
		f.headroom_bytes = f.host_bytes = MTHP_NO_LIMIT;
		t.narrow_advised = 0;
		CHECK(decide(&f, &t) == f.orders, "offer %llx", f.orders);
	}
}

static void advice_never_takes_away(void)
{
	for (int i = 0; i < 500000; i++) {
		struct mthp_facts f = nasty_facts();
		struct mthp_tunables t = nasty_tunables();
		__u64 plain;

		f.flags &= ~(__u64)BPF_MTHP_ADVISED;
		plain = decide(&f, &t);
		f.flags |= BPF_MTHP_ADVISED;
		CHECK(!(plain & ~decide(&f, &t)), "offer %llx", f.orders);
	}
}

static void advised_memory_has_to_fit_once(void)
{
	struct mthp_tunables t = defaults();
	struct mthp_facts f = calm(BPF_MTHP_FAULT);

	f.headroom_bytes = 2 * MIB;
	CHECK(decide(&f, &t) == 0, "none fits 1024 times");
	f.flags = BPF_MTHP_ADVISED;
	CHECK(decide(&f, &t) == MTHP_ALL_ORDERS, "2 MiB fit once");
	f.headroom_bytes = 2 * MIB - 1;
	CHECK(decide(&f, &t) == 0x1fe, "1 MiB fits");
	f.headroom_bytes = 0;
	for (__u32 reason = BPF_MTHP_FAULT; reason < MTHP_NR_REASONS; reason++) {
		f.reason = reason;
		CHECK(decide(&f, &t) == (reason == BPF_MTHP_COLLAPSE ? MTHP_ALL_ORDERS : 0),
		      "reason %u, no room", reason);
	}
	f = calm(BPF_MTHP_FAULT);
	f.flags = BPF_MTHP_ADVISED;
	f.host_bytes = MIB;
	CHECK(decide(&f, &t) == 0x1fe, "the host has 1 MiB");
	f = calm(BPF_MTHP_FAULT);
	f.flags = BPF_MTHP_ADVISED;
	f.pressure = 1;
	CHECK(decide(&f, &t) == 0, "pressure");
}

static void advised_memory_is_bound_on_request(void)
{
	struct mthp_tunables t = defaults();
	struct mthp_facts f = calm(BPF_MTHP_FAULT);

	f.flags = BPF_MTHP_ADVISED;
	f.memory_bytes = 0;
	CHECK(decide(&f, &t) == f.orders, "untouched by default");
	t.narrow_advised = 1;
	CHECK(decide(&f, &t) == 0, "bound on request");
}

static void calm_and_large_gets_everything(void)
{
	struct mthp_tunables t = defaults();

	for (__u32 reason = BPF_MTHP_FAULT; reason < MTHP_NR_REASONS; reason++) {
		struct mthp_facts f = calm(reason);

		CHECK(decide(&f, &t) == MTHP_ALL_ORDERS, "reason %u", reason);
	}
}

static void pressure_means_base_pages_for_all_but_collapse(void)
{
	static const __u64 expected[] = {
		[BPF_MTHP_FAULT] = 0, [BPF_MTHP_SWAPIN] = 0, [BPF_MTHP_KHUGEPAGED] = 0,
		[BPF_MTHP_COLLAPSE] = MTHP_ALL_ORDERS, [BPF_MTHP_RECLAIM] = 0,
	};
	struct mthp_tunables t = defaults();

	for (__u32 reason = BPF_MTHP_FAULT; reason < MTHP_NR_REASONS; reason++) {
		struct mthp_facts f = calm(reason);

		f.pressure = 1;
		CHECK(decide(&f, &t) == expected[reason], "reason %u", reason);
	}
}

/* If some is to be left under pressure, the other rules still take from it. */
static void pressure_may_leave_small_folios(void)
{
	struct mthp_tunables t = defaults();
	struct mthp_facts f = calm(BPF_MTHP_FAULT);
	__u32 rules;

	f.pressure = 1;
	t.pressure_order = 4;
	CHECK(mthp_decide(&f, &t, &rules) == 0x1e, "64 KiB");
	CHECK(rules == MTHP_RULE(PRESSURE), "rules %x", rules);
	f.headroom_bytes = 1024 * (8 << 12);
	CHECK(decide(&f, &t) == 0xe, "room for 32 KiB");
	t.max_order[BPF_MTHP_FAULT] = 2;
	CHECK(decide(&f, &t) == 0x6, "a cap of 16 KiB");
	f.orders = 0x6;
	t.max_order[BPF_MTHP_FAULT] = MTHP_NO_MAX_ORDER;
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
			[BPF_MTHP_FAULT] = 0, [BPF_MTHP_SWAPIN] = MTHP_ALL_ORDERS,
			[BPF_MTHP_KHUGEPAGED] = fills ? 0 : MTHP_ALL_ORDERS,
			[BPF_MTHP_COLLAPSE] = MTHP_ALL_ORDERS,
			[BPF_MTHP_RECLAIM] = MTHP_ALL_ORDERS,
		};

		t.bind_khugepaged = fills;
		for (__u32 reason = BPF_MTHP_FAULT; reason < MTHP_NR_REASONS; reason++) {
			facts.reason = reason;
			CHECK(decide(&facts, &t) == expected[reason], "reason %u", reason);
		}
	}
}

static void small_means_base_pages_where_zeroes_may_fill_up(void)
{
	struct mthp_facts f = calm(BPF_MTHP_FAULT);

	f.memory_bytes = MIB;
	check_wasters(f);
}

static void small_ends_at_the_very_byte(void)
{
	struct mthp_tunables t = defaults();
	struct mthp_facts f = calm(BPF_MTHP_FAULT);

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
	struct mthp_facts f = calm(BPF_MTHP_FAULT);

	f.memory_bytes = 0;
	f.populated = 0;
	CHECK(decide(&f, &t) == MTHP_ALL_ORDERS, "empty");
}

/* W3, W16: without the memory controller there is no opinion on size. */
static void unknown_memory_is_not_small(void)
{
	struct mthp_tunables t = defaults();
	struct mthp_facts f = calm(BPF_MTHP_FAULT);

	f.memory_bytes = 0;
	f.memory_known = 0;
	CHECK(decide(&f, &t) == MTHP_ALL_ORDERS, "unknown");
}

static void sparse_means_base_pages_where_zeroes_may_fill_up(void)
{
	struct mthp_tunables t = defaults();
	struct mthp_facts f = calm(BPF_MTHP_FAULT);

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

static void max_order_caps_every_order(void)
{
	struct mthp_tunables t = defaults();

	for (__u32 max = 0; max < 63; max++) {
		struct mthp_facts f = calm(BPF_MTHP_FAULT);
		__u64 got;

		t.max_order[BPF_MTHP_FAULT] = max;
		got = decide(&f, &t);
		for (__u32 order = 1; order < 64; order++)
			CHECK(!!(got & (1ULL << order)) == (order <= max),
			      "order %u under cap %u", order, max);
	}
	for (__u32 max = 63; max < 70; max++) {
		struct mthp_facts f = calm(BPF_MTHP_FAULT);

		t.max_order[BPF_MTHP_FAULT] = max;
		CHECK(decide(&f, &t) == MTHP_ALL_ORDERS, "cap %u is none", max);
	}
}

static void max_order_is_each_reasons_own(void)
{
	struct mthp_tunables t = defaults();

	t.narrow_collapse = 1;
	for (__u32 capped = BPF_MTHP_FAULT; capped < MTHP_NR_REASONS; capped++) {
		for (__u32 reason = BPF_MTHP_FAULT; reason < MTHP_NR_REASONS; reason++)
			t.max_order[reason] = reason == capped ? 4 : MTHP_NO_MAX_ORDER;
		for (__u32 reason = BPF_MTHP_FAULT; reason < MTHP_NR_REASONS; reason++) {
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
	struct mthp_facts f = calm(BPF_MTHP_FAULT);

	f.pressure = 1;
	f.memory_bytes = 0;
	f.headroom_bytes = 0;
	f.host_bytes = 0;
	f.sparse = 1;
	t.max_order[BPF_MTHP_FAULT] = 0;
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
	TEST(advised_memory_that_fits_is_left_alone),
	TEST(advised_memory_has_to_fit_once),
	TEST(advice_never_takes_away),
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
	TEST(max_order_caps_every_order),
	TEST(max_order_is_each_reasons_own),
	TEST(a_rule_that_is_off_narrows_nothing),
	TEST(rules_compose_by_and),
};

RUN_TESTS(tests)
