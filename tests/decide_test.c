// SPDX-License-Identifier: GPL-2.0-only
/*
 * Unit tests of the decision: bpf/decide.h, the code the kernel runs, compiled
 * for the host.  tests/decide.rs runs each by its name.
 */
#include "facts.h"

/* The types of the kernel that it names are those of hook.h. */
#define MTHP_KERNEL_H
#include "count.bpf.h"

static void the_decision_has_orders_that_there_are(void)
{
	for (int i = 0; i < 1000000; i++) {
		struct mthp_facts f = nasty_facts();
		struct mthp_tunables t = nasty_tunables();
		__u64 got = decide(&f, &t);

		/* Order 0 is in no mask: what is first reported has all others. */
		CHECK(!(got & ~MTHP_ALL_ORDERS), "%llx", got);
	}
}

static void a_rule_is_named_iff_it_narrows(void)
{
	for (int i = 0; i < 1000000; i++) {
		struct mthp_facts f = nasty_facts();
		struct mthp_tunables t = nasty_tunables();
		struct mthp_decision d = decided(&f, &t);

		CHECK(!!(MTHP_ALL_ORDERS & ~d.orders) == (d.rule != MTHP_NONE), "rule %u", d.rule);
		CHECK(d.rule == MTHP_NONE || (t.rules & (1u << d.rule)), "rule %u is off", d.rule);
	}
}

/* Alone it would have decided the same. */
static void the_rule_named_leaves_what_is_allowed(void)
{
	for (int i = 0; i < 1000000; i++) {
		struct mthp_facts f = nasty_facts();
		struct mthp_tunables t = nasty_tunables();
		struct mthp_decision d = decided(&f, &t);

		if (d.rule == MTHP_NONE)
			continue;
		t.rules = 1u << d.rule;
		CHECK(decide(&f, &t) == d.orders, "rule %u", d.rule);
	}
}

/* The walk to the root costs the most: not for those that a rule refuses anyway. */
static void room_is_read_only_where_it_can_change_anything(void)
{
	for (int i = 0; i < 1000000; i++) {
		struct mthp_facts f = nasty_facts();
		struct mthp_tunables t = nasty_tunables();
		struct mthp_decision d;
		int wanted;

		rooms_read = 0;
		d = decided(&f, &t);
		wanted = mthp_governed(f.reason, &t) && (t.rules & MTHP_RULE(ROOM)) &&
			 (d.rule == MTHP_NONE || d.rule == MTHP_ROOM || d.rule == MTHP_CAP);
		CHECK(rooms_read == wanted, "read %d times for rule %u", rooms_read, d.rule);
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
			CHECK(decide(&f, &t) == MTHP_ALL_ORDERS, "reason %u", reason);
		}
}

static void forced_collapse_is_free(void)
{
	for (int i = 0; i < 100000; i++) {
		struct mthp_facts f = nasty_facts();
		struct mthp_tunables t = nasty_tunables();

		f.reason = BPF_MTHP_COLLAPSE;
		t.bind &= ~MTHP_BIND_COLLAPSE;
		CHECK(decide(&f, &t) == MTHP_ALL_ORDERS, "%llx", decide(&f, &t));
	}
}

/* Then it is bound like a fault, which fills with zeroes as well. */
static void forced_collapse_is_bound_on_request(void)
{
	for (int i = 0; i < 1000000; i++) {
		struct mthp_facts f = nasty_facts();
		struct mthp_tunables t = nasty_tunables();
		__u64 collapse;

		t.bind |= MTHP_BIND_COLLAPSE;
		t.cap[BPF_MTHP_COLLAPSE] = t.cap[BPF_MTHP_FAULT];
		/* Forced, it is not lifted: there is no stall that it ends. */
		f.lifted = 0;
		f.reason = BPF_MTHP_COLLAPSE;
		collapse = decide(&f, &t);
		f.reason = BPF_MTHP_FAULT;
		CHECK(decide(&f, &t) == collapse, "%llx", collapse);
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
		f.room_bytes = MTHP_NO_LIMIT;
		t.bind &= ~MTHP_BIND_ADVISED;
		CHECK(!(MTHP_ALL_ORDERS & ~decide(&f, &t)), "%llx", decide(&f, &t));
	}
}

static void advice_never_takes_away(void)
{
	for (int i = 0; i < 500000; i++) {
		struct mthp_facts f = nasty_facts();
		struct mthp_tunables t = nasty_tunables();
		__u64 plain;

		/* What is lifted is lifted of other memory alone. */
		f.lifted = 0;
		f.flags &= ~(__u64)BPF_MTHP_ADVISED;
		plain = decide(&f, &t);
		f.flags |= BPF_MTHP_ADVISED;
		CHECK(!(plain & ~decide(&f, &t)), "%llx", plain);
	}
}

/* Beside the reserve, of four times 2 MiB. */
static void advised_memory_has_to_fit_once(void)
{
	struct mthp_tunables t = defaults();
	struct mthp_facts f = calm(BPF_MTHP_FAULT);

	f.room_bytes = 10 * MIB;
	CHECK(decide(&f, &t) == 0x2, "no more than 8 KiB fit 1024 times");
	f.flags = BPF_MTHP_ADVISED;
	CHECK(decide(&f, &t) == MTHP_ALL_ORDERS, "2 MiB fit once");
	f.room_bytes--;
	CHECK(decide(&f, &t) == 0x1fe, "1 MiB fits");
	/* Or small folios would fill the reserve one by one. */
	f.room_bytes = 8 * MIB - 1;
	for (__u32 reason = BPF_MTHP_FAULT; reason < MTHP_NR_REASONS; reason++) {
		f.reason = reason;
		CHECK((decide(&f, &t) == MTHP_ALL_ORDERS) ==
		      (reason == BPF_MTHP_COLLAPSE || reason == BPF_MTHP_RECLAIM) &&
		      (reason != BPF_MTHP_FAULT || decide(&f, &t) == 0),
		      "reason %u, the reserve", reason);
	}
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
	CHECK(decide(&f, &t) == MTHP_ALL_ORDERS, "untouched by default");
	t.bind |= MTHP_BIND_ADVISED;
	CHECK(decide(&f, &t) == 0, "bound on request");
}

static void calm_and_large_gets_everything(void)
{
	struct mthp_tunables t = defaults();

	for (__u32 reason = BPF_MTHP_FAULT; reason < MTHP_NR_REASONS; reason++) {
		struct mthp_facts f = calm(reason);

		CHECK(!(MTHP_ALL_ORDERS & ~decide(&f, &t)), "reason %u", reason);
		CHECK(decided(&f, &t).rule == MTHP_NONE, "reason %u", reason);
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

/* Under stall and at its limit.  By pages comes what is wanted back, and khugepaged waits. */
static void what_is_not_missed_may_be_large(void)
{
	static const __u64 expected[] = {
		[BPF_MTHP_FAULT] = MTHP_ALL_ORDERS, [BPF_MTHP_SWAPIN] = 0, [BPF_MTHP_KHUGEPAGED] = 0,
		[BPF_MTHP_COLLAPSE] = MTHP_ALL_ORDERS, [BPF_MTHP_RECLAIM] = 0,
	};
	struct mthp_tunables t = defaults();

	for (__u32 reason = BPF_MTHP_FAULT; reason < MTHP_NR_REASONS; reason++)
		for (int pressure = 0; pressure < 2; pressure++) {
			struct mthp_facts f = calm(reason);

			f.lifted = 1;
			f.pressure = pressure;
			f.room_bytes = 0;
			CHECK(decide(&f, &t) == expected[reason], "reason %u", reason);
		}
}

/* Nobody sees if it is filled; unless the rules bind it, of which one does. */
static void what_is_wanted_is_not_lifted(void)
{
	struct mthp_tunables t = defaults();

	for (int bound = 0; bound < 2; bound++) {
		struct mthp_facts f = calm(BPF_MTHP_FAULT);

		t.bind = bound ? MTHP_BIND_ADVISED : 0;
		f.flags = BPF_MTHP_ADVISED;
		f.lifted = 1;
		f.pressure = 1;
		CHECK(decide(&f, &t) == (bound ? MTHP_ALL_ORDERS : 0), "pressure, %d", bound);
		f.pressure = 0;
		f.room_bytes = 8 * MIB - 1;
		CHECK(decide(&f, &t) == (bound ? MTHP_ALL_ORDERS : 0), "the reserve, %d", bound);
		f.room_bytes = 10 * MIB - 1;
		CHECK(decide(&f, &t) == (bound ? MTHP_ALL_ORDERS : 0x1fe), "room, %d", bound);
		f.sparse = 1;
		CHECK(decide(&f, &t) == (bound ? 0 : 0x1fe), "gaps, %d", bound);
	}
}

/* Others would pay: 2 MiB have to fit as often there as below a limit. */
static void a_machine_without_room_lifts_nothing(void)
{
	struct mthp_tunables t = defaults();

	CHECK(mthp_lifts(1, MTHP_NO_LIMIT, &t), "it does not count");
	CHECK(mthp_lifts(1, 2048 * MIB, &t), "2 MiB, 1024 times");
	CHECK(!mthp_lifts(1, 2048 * MIB - 1, &t), "not quite");
	CHECK(!mthp_lifts(0, MTHP_NO_LIMIT, &t), "missed");
	t.page_shift = 16;
	t.largest_pages = 8192;
	CHECK(mthp_lifts(1, 512 * 1024 * MIB, &t), "512 MiB, 1024 times");
	CHECK(!mthp_lifts(1, 512 * 1024 * MIB - 1, &t), "not quite");
}

static void to_be_lifted_never_takes_away(void)
{
	for (int i = 0; i < 1000000; i++) {
		struct mthp_facts f = nasty_facts();
		struct mthp_tunables t = nasty_tunables();
		__u64 missed;

		f.lifted = 0;
		missed = decide(&f, &t);
		f.lifted = 1;
		CHECK(!(missed & ~decide(&f, &t)), "%llx", missed);
	}
}

/* Small and sparse bind khugepaged where that is wanted. */
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

/* What was charged since may be anon; what went since was perhaps not, but what is left bounds it. */
static void growth_since_the_scan_counts_as_memory(void)
{
	struct mthp_cgroup state = { .memory_bytes = 3 * MIB, .usage_pages = 1000 };
	struct mthp_tunables t = defaults();

	CHECK(mthp_memory_now(&state, 1000, &t) == 3 * MIB, "as of the scan");
	CHECK(mthp_memory_now(&state, 1256, &t) == 4 * MIB, "and 256 pages");
	CHECK(mthp_memory_now(&state, 900, &t) == 3 * MIB, "less is charged, and holds it all");
	CHECK(mthp_memory_now(&state, 512, &t) == 2 * MIB, "less than it had");
	t.page_shift = 16;
	CHECK(mthp_memory_now(&state, 1016, &t) == 4 * MIB, "of 64 KiB");
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

/* A table has 512 places; eight of them are 4096. */
static struct mthp_process process(__u64 places, __u64 present)
{
	return (struct mthp_process){ .places = places, .private = 1ULL << 40, .present = present };
}

static struct mthp_growth met(__u64 places, __u64 present)
{
	const struct mthp_tunables t = defaults();
	struct mthp_process p = process(places, present);
	struct mthp_growth g;

	mthp_meet(&g, &p, &t);
	return g;
}

static __u32 grown(struct mthp_growth *g, __u64 places, __u64 present)
{
	const struct mthp_tunables t = defaults();
	struct mthp_process p = process(places, present);

	mthp_grow(g, &p, &t);
	return g->sparse;
}

static void a_process_is_judged_by_what_it_grows_by(void)
{
	struct mthp_tunables t = defaults();
	struct mthp_growth g = met(12000, 1000);
	struct mthp_process p;

	CHECK(!grown(&g, 16095, 1000) && !g.known, "less than eight tables say nothing");
	CHECK(grown(&g, 16096, 2023) && g.known, "just less than a quarter of them");
	CHECK(grown(&g, 20192, 3047), "of all of them");
	CHECK(!grown(&g, 20192, 3048) && g.known, "a quarter, though the whole is far from half full");
	CHECK(!grown(&g, 24287, 3048) && g.known, "measured from then on");
	CHECK(grown(&g, 24288, 3048), "nothing of it");
	g = met(12000, 1000);
	CHECK(!grown(&g, 12000, 5000) && grown(&g, 16096, 5000), "what fills old tables is no growth");
	g = met(20000, 10100);
	CHECK(!grown(&g, 20000, 19000) && grown(&g, 60000, 19000), "not even where it fills half of all");
	t.page_shift = 14;
	p = process(20480, 17000);
	mthp_meet(&g, &p, &t);
	p = process(36863, 17000);
	mthp_grow(&g, &p, &t);
	CHECK(!g.known, "a table of larger pages has more places");
	p = process(36864, 17000);
	mthp_grow(&g, &p, &t);
	CHECK(g.known && g.sparse, "a table of larger pages has more places");
}

/* In no order: its tables come with the first pages. */
static void a_region_that_is_filled_is_not_sparse_for_long(void)
{
	struct mthp_growth g = met(12000, 1000);

	CHECK(grown(&g, 12000 + 8 * 512, 1022), "22 pages in eight tables");
	for (__u64 page = 23; page < 1024; page++)
		CHECK(grown(&g, 12000 + 8 * 512, 1000 + page), "%llu", page);
	CHECK(!grown(&g, 12000 + 8 * 512, 1000 + 1024) && g.known, "a quarter of eight tables");
	CHECK(!grown(&g, 12000 + 8 * 512, 1000 + 4096), "all of them");
	/* A larger one has to be filled as much. */
	g = met(12000, 1000);
	CHECK(grown(&g, 12000 + 128 * 512, 1128) && grown(&g, 12000 + 128 * 512, 17383), "less than a quarter");
	CHECK(!grown(&g, 12000 + 128 * 512, 17384), "a quarter");
}

static void what_a_process_gave_back_says_nothing(void)
{
	struct mthp_growth g = met(40000, 19000);

	CHECK(!grown(&g, 50000, 10000) && !g.known, "fewer pages, in more tables");
	CHECK(grown(&g, 54096, 10000), "counted from there");
	CHECK(grown(&g, 54096, 8000) && grown(&g, 54096, 9023), "it may give back more");
	CHECK(!grown(&g, 54096, 9024), "a quarter, counted from there");
	CHECK(!grown(&g, 58191, 9024) && !grown(&g, 58191, 8000), "pages that it had got before");
	CHECK(!grown(&g, 62286, 8000) && grown(&g, 62287, 8000), "counted from there");
}

static void tables_that_go_say_nothing_any_more(void)
{
	struct mthp_growth g = met(40000, 10000);

	CHECK(grown(&g, 45000, 10000) && grown(&g, 44096, 10000), "what is left shows it");
	CHECK(!grown(&g, 44095, 10000) && !g.known, "it does not");
	CHECK(grown(&g, 44096, 10000) && g.known, "it does");
	CHECK(!grown(&g, 30000, 10000) && !g.known, "more go than had come");
	CHECK(!grown(&g, 34095, 10000) && !g.known && grown(&g, 34096, 10000), "counted from there");
}

static void a_process_that_is_full_is_not_sparse(void)
{
	const struct mthp_tunables t = defaults();
	struct mthp_growth g = met(100000, 52047);
	struct mthp_process p;

	CHECK(grown(&g, 104096, 52047), "less than half is there");
	CHECK(!grown(&g, 104096, 52048) && g.known, "half");
	CHECK(!grown(&g, 108190, 54095) && !grown(&g, 112286, 56143), "an empty part of a full whole");
	g = met(4000, 600);
	CHECK(!grown(&g, 4095, 4000) && !g.known, "it is too small to show that");
	CHECK(!grown(&g, 4096, 4000) && g.known, "it is not");
	/* Files and stacks are not of the whole, either. */
	g = met(40000, 10000);
	p = process(44096, 10000);
	mthp_grow(&g, &p, &t);
	CHECK(g.sparse, "nothing of it");
	p.mapped = 14096;
	p.threads = 19;
	mthp_grow(&g, &p, &t);
	CHECK(g.sparse, "less than half without them");
	p.threads = 20;
	mthp_grow(&g, &p, &t);
	CHECK(!g.sparse, "half without them");
}

static void what_is_swapped_keeps_its_place(void)
{
	const struct mthp_tunables t = defaults();
	struct mthp_process p = process(12000, 500);
	struct mthp_growth g;

	p.swapped = 500;
	mthp_meet(&g, &p, &t);
	p.places = 16096;
	p.swapped = 1523;
	mthp_grow(&g, &p, &t);
	CHECK(g.known && g.sparse, "less than a quarter of it is there or in swap");
	p.swapped = 1524;
	mthp_grow(&g, &p, &t);
	CHECK(g.known && !g.sparse, "a quarter of it is");
}

static void what_is_not_of_the_heap_is_no_growth_and_neither_is_its_end(void)
{
	const struct mthp_tunables t = defaults();
	struct mthp_process p = process(12000, 1000);
	struct mthp_growth g = met(12000, 1000);

	p.places = 12000 + 4096 + 20 * 512 + 10 * 512;
	p.mapped = 20;
	p.threads = 11;
	mthp_grow(&g, &p, &t);
	CHECK(!g.known, "tables of files, shared memory and threads");
	p.mapped = 0;
	p.threads = 0;
	mthp_grow(&g, &p, &t);
	CHECK(!g.known, "which stay when these have gone");
	p.mapped = 20;
	p.threads = 11;
	p.places += 511;
	mthp_grow(&g, &p, &t);
	CHECK(!g.known, "and may be used again");
	p.places++;
	mthp_grow(&g, &p, &t);
	CHECK(g.sparse, "more than that is of the heap");
	/* Most of 64 stacks share a table.  Who had them before has grown by none of them. */
	p = process(12000, 1000);
	p.mapped = 20;
	p.threads = 64;
	mthp_meet(&g, &p, &t);
	p.places += 4096;
	mthp_grow(&g, &p, &t);
	CHECK(g.sparse, "what comes later is of the heap");
	/* Files take more than they have tables. */
	g = met(12000, 1000);
	p = process(12000, 1000);
	p.mapped = 100;
	mthp_grow(&g, &p, &t);
	p.places = 16095;
	mthp_grow(&g, &p, &t);
	CHECK(!g.known, "measured from then on");
	p.places = 16096;
	mthp_grow(&g, &p, &t);
	CHECK(g.sparse, "measured from then on");
	/* Files are unmapped, and their tables go. */
	g = met(12000, 1000);
	p = process(12000 + 100 * 512, 1000);
	p.mapped = 100;
	mthp_grow(&g, &p, &t);
	p = process(12000, 1000);
	mthp_grow(&g, &p, &t);
	p = process(12000 + 200 * 512, 1000);
	p.mapped = 200;
	mthp_grow(&g, &p, &t);
	CHECK(!g.known, "other files are no growth, either");
	p.places += 4096;
	mthp_grow(&g, &p, &t);
	CHECK(g.sparse, "what comes beside them is");
	p.places -= 100 * 512;
	p.mapped = 100;
	mthp_grow(&g, &p, &t);
	CHECK(g.sparse, "and their end is none of its");
}

static void who_has_shown_nothing_does_not_end_what_others_have_shown(void)
{
	const struct mthp_tunables t = defaults();
	const struct mthp_process p = process(4000, 600), waste = process(40000, 600);
	struct mthp_growth nothing = met(4000, 600), dense = nothing, sparse = nothing;
	__u32 left = MTHP_SPARSE_HOLD;

	grown(&sparse, 8096, 600);
	grown(&dense, 8096, 5000);
	for (__u32 before = 0; before <= MTHP_SPARSE_HOLD; before += MTHP_SPARSE_HOLD) {
		CHECK(mthp_sparse_after(before, &sparse, &p, &t) == MTHP_SPARSE_HOLD, "%u", before);
		CHECK(!mthp_sparse_after(before, &dense, &p, &t), "%u", before);
		CHECK(mthp_sparse_after(before, &dense, &waste, &t) == 1, "%u", before);
		CHECK(mthp_sparse_after(before, &nothing, &waste, &t), "%u", before);
	}
	for (__u32 sample = 1; sample < MTHP_SPARSE_HOLD; sample++) {
		left = mthp_sparse_after(left, &nothing, sample % 2 ? &p : &waste, &t);
		CHECK(left == MTHP_SPARSE_HOLD - sample, "%u", left);
	}
	CHECK(!mthp_sparse_after(left, &nothing, &p, &t), "it wears off");
	CHECK(mthp_sparse_after(left, &nothing, &waste, &t) == 1, "waste is each process' own");
	CHECK(!mthp_sparse_after(1, &nothing, &p, &t), "waste is each process' own");
}

/* The gaps that are shown are of the one that made it sparse. */
static void gaps_are_of_the_process_that_shows_them(void)
{
	const struct mthp_process p = process(8096, 600), waste = process(40000, 600);
	struct mthp_growth nothing = met(4000, 500), sparse = nothing, dense = nothing;
	struct mthp_gaps gaps = { 0 };

	grown(&sparse, 8096, 600);
	grown(&dense, 8096, 5000);
	mthp_show_gaps(&gaps, 0, 0, &nothing, &p);
	CHECK(!gaps.of, "nobody is");
	mthp_show_gaps(&gaps, 0, MTHP_SPARSE_HOLD, &sparse, &p);
	CHECK(gaps.grew && gaps.of == 4096 && gaps.filled == 100, "%llu of %llu", gaps.filled, gaps.of);
	mthp_show_gaps(&gaps, MTHP_SPARSE_HOLD, MTHP_SPARSE_HOLD - 1, &nothing, &waste);
	CHECK(gaps.grew && gaps.of == 4096, "those of the other still count");
	mthp_show_gaps(&gaps, MTHP_SPARSE_HOLD, 1, &dense, &waste);
	CHECK(!gaps.grew && gaps.of == 40000 && gaps.filled == 600, "%llu of %llu", gaps.filled, gaps.of);
	mthp_show_gaps(&gaps, 1, 1, &nothing, &waste);
	CHECK(!gaps.grew && gaps.of == 40000, "as a whole");
}

static void what_could_not_be_written_is_not_of_the_heap(void)
{
	const struct mthp_tunables t = defaults();
	const struct mthp_growth nothing = met(0, 0);
	struct mthp_process p = process(40000, 0);
	struct mthp_growth g;

	p.private = 16383;
	CHECK(!mthp_sparse_after(0, &nothing, &p, &t), "tables of files");
	p.private = 16384;
	CHECK(mthp_sparse_after(0, &nothing, &p, &t), "the allowance");
	p = process(40000, 0);
	p.mapped = 40000 - 16384 + 1;
	CHECK(!mthp_sparse_after(0, &nothing, &p, &t), "nor are those of pages of files");
	p.places = p.mapped * 2;
	CHECK(mthp_sparse_after(0, &nothing, &p, &t), "which are not more than all else");
	p.places = 40000;
	p.mapped--;
	CHECK(mthp_sparse_after(0, &nothing, &p, &t), "the allowance");
	p.threads = 20;
	CHECK(mthp_sparse_after(0, &nothing, &p, &t), "which is for stacks, too");
	/* Tables that nobody counts, of hugetlbfs or of devices. */
	g = met(12000, 600);
	p = process(12000 + 8192, 600);
	p.private = 600 + 6143;
	mthp_grow(&g, &p, &t);
	CHECK(!g.sparse && !g.known, "it could not write as much");
	p.private++;
	mthp_grow(&g, &p, &t);
	CHECK(g.sparse && g.known, "it could");
	p.private--;
	mthp_grow(&g, &p, &t);
	CHECK(!g.sparse && !g.known, "it cannot any more");
	g = met(12000, 600);
	CHECK(!grown(&g, 16096, 5000) && g.known, "dense so far");
	p = process(24288, 5000);
	p.private = 5000 + 6143;
	mthp_grow(&g, &p, &t);
	CHECK(!g.sparse && !g.known, "of what comes next nothing is known");
}

/* In one sample, from the same start; with less than there was nothing is judged. */
static void fuller_growth_is_never_sparser(void)
{
	int judged = 0, sparse = 0;

	for (int i = 0; i < 500000; i++) {
		struct mthp_tunables t = nasty_tunables();
		struct mthp_process p = process(nasty_u64() >> 13, nasty_u64() >> 14);
		struct mthp_growth less, more;
		__u64 a = p.present + (nasty_u64() >> 14), b = p.present + (nasty_u64() >> 14);

		mthp_meet(&less, &p, &t);
		more = less;
		p.places += nasty_u64() >> 13;
		p.private = i % 5 ? 1ULL << 40 : nasty_u64() >> 13;
		p.mapped = i % 4 ? 0 : nasty_u64() >> 24;
		p.threads = i % 3 ? 0 : nasty_u64() >> 44;
		p.present = a < b ? a : b;
		mthp_grow(&less, &p, &t);
		p.present = a < b ? b : a;
		mthp_grow(&more, &p, &t);
		CHECK(less.sparse >= more.sparse, "%llu: %llu, %llu", p.places, a, b);
		judged += more.known;
		sparse += less.sparse;
	}
	CHECK(judged > 10000 && sparse > 10000, "%d, %d", judged, sparse);
}

static void a_cap_caps_every_order(void)
{
	struct mthp_tunables t = defaults();

	for (__u32 max = 0; max < 63; max++) {
		struct mthp_facts f = calm(BPF_MTHP_FAULT);
		__u64 got;

		t.cap[BPF_MTHP_FAULT] = max;
		got = decide(&f, &t);
		for (__u32 order = 1; order < 64; order++)
			CHECK(!!(got & (1ULL << order)) == (order <= max),
			      "order %u under cap %u", order, max);
	}
	for (__u32 max = 63; max < 70; max++) {
		struct mthp_facts f = calm(BPF_MTHP_FAULT);

		t.cap[BPF_MTHP_FAULT] = max;
		CHECK(decide(&f, &t) == MTHP_ALL_ORDERS, "cap %u is none", max);
	}
}

static void a_cap_is_each_reasons_own(void)
{
	struct mthp_tunables t = defaults();

	t.bind |= MTHP_BIND_COLLAPSE;
	for (__u32 capped = BPF_MTHP_FAULT; capped < MTHP_NR_REASONS; capped++) {
		for (__u32 reason = BPF_MTHP_FAULT; reason < MTHP_NR_REASONS; reason++)
			t.cap[reason] = reason == capped ? 4 : MTHP_NO_CAP;
		for (__u32 reason = BPF_MTHP_FAULT; reason < MTHP_NR_REASONS; reason++) {
			struct mthp_facts f = calm(reason);
			__u64 expected = reason == capped ? 0x1e : MTHP_ALL_ORDERS;

			CHECK(decide(&f, &t) == expected, "reason %u, capped is %u", reason, capped);
		}
	}
}

/* Each set of rules: the first that is on refuses all. */
static void a_rule_that_is_off_narrows_nothing(void)
{
	struct mthp_tunables t = defaults();
	struct mthp_facts f = calm(BPF_MTHP_FAULT);

	f.pressure = 1;
	f.memory_bytes = 0;
	f.room_bytes = 0;
	f.sparse = 1;
	t.cap[BPF_MTHP_FAULT] = 0;
	for (__u32 rules = 0; rules <= ALL_RULES; rules += 1u << MTHP_PRESSURE) {
		__u32 first = rules ? __builtin_ctz(rules) : MTHP_NONE;
		struct mthp_decision d;

		t.rules = rules;
		d = decided(&f, &t);
		CHECK(d.orders == (rules ? 0 : MTHP_ALL_ORDERS), "rules %x", rules);
		CHECK(d.rule == first, "rules %x rule %u", rules, d.rule);
	}
}

/* The default is what each of its rules allows: the rules compose by AND. */
static void rules_compose_by_and(void)
{
	for (int i = 0; i < 500000; i++) {
		struct mthp_facts f = nasty_facts();
		struct mthp_tunables t = nasty_tunables(), one;
		__u64 all = MTHP_ALL_ORDERS;

		for (__u32 rule = 0; rule < MTHP_NR_RULES; rule++) {
			one = t;
			one.rules = t.rules & (1U << rule);
			all &= decide(&f, &one);
		}
		CHECK(decide(&f, &t) == all, "rules %x", t.rules);
	}
}

/* The kernel asks about a PUD alone, and never about no order at all. */
static void each_size_is_counted_in_its_place(void)
{
	for (__u32 order = MTHP_LEAST_ORDER; order < MTHP_LEAST_ORDER + MTHP_PUD_SIZE; order++) {
		CHECK(mthp_size(1ULL << order) == order - MTHP_LEAST_ORDER, "order %u alone", order);
		CHECK(mthp_size((2ULL << order) - 4) == order - MTHP_LEAST_ORDER, "order %u of several", order);
	}
	for (__u32 order = MTHP_LEAST_ORDER + MTHP_PUD_SIZE; order < 64; order++)
		CHECK(mthp_size(1ULL << order) == MTHP_PUD_SIZE, "order %u", order);
	_Static_assert(MTHP_PUD_SIZE == MTHP_NR_SIZES - 1, "a place of its own");
}

static const struct test tests[] = {
	TEST(the_decision_has_orders_that_there_are),
	TEST(a_rule_is_named_iff_it_narrows),
	TEST(the_rule_named_leaves_what_is_allowed),
	TEST(room_is_read_only_where_it_can_change_anything),
	TEST(unknown_reason_passes_unchanged),
	TEST(forced_collapse_is_free),
	TEST(forced_collapse_is_bound_on_request),
	TEST(advised_memory_that_fits_is_left_alone),
	TEST(advised_memory_has_to_fit_once),
	TEST(advice_never_takes_away),
	TEST(advised_memory_is_bound_on_request),
	TEST(calm_and_large_gets_everything),
	TEST(pressure_means_base_pages_for_all_but_collapse),
	TEST(what_is_not_missed_may_be_large),
	TEST(what_is_wanted_is_not_lifted),
	TEST(a_machine_without_room_lifts_nothing),
	TEST(to_be_lifted_never_takes_away),
	TEST(small_means_base_pages_where_zeroes_may_fill_up),
	TEST(growth_since_the_scan_counts_as_memory),
	TEST(small_ends_at_the_very_byte),
	TEST(an_empty_cgroup_is_not_small),
	TEST(unknown_memory_is_not_small),
	TEST(sparse_means_base_pages_where_zeroes_may_fill_up),
	TEST(wasteful_is_more_than_half_and_more_than_the_allowance),
	TEST(a_fuller_process_is_never_more_wasteful),
	TEST(a_process_is_judged_by_what_it_grows_by),
	TEST(a_region_that_is_filled_is_not_sparse_for_long),
	TEST(what_a_process_gave_back_says_nothing),
	TEST(tables_that_go_say_nothing_any_more),
	TEST(a_process_that_is_full_is_not_sparse),
	TEST(what_is_swapped_keeps_its_place),
	TEST(what_is_not_of_the_heap_is_no_growth_and_neither_is_its_end),
	TEST(who_has_shown_nothing_does_not_end_what_others_have_shown),
	TEST(gaps_are_of_the_process_that_shows_them),
	TEST(what_could_not_be_written_is_not_of_the_heap),
	TEST(fuller_growth_is_never_sparser),
	TEST(a_cap_caps_every_order),
	TEST(a_cap_is_each_reasons_own),
	TEST(a_rule_that_is_off_narrows_nothing),
	TEST(rules_compose_by_and),
	TEST(each_size_is_counted_in_its_place),
};

RUN_TESTS(tests)
